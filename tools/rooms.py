"""The house: its folders in order, and the rooms in them with the rooms that each may use.

`tests/unit/test_house.py` holds the code to both. `python -m tools.rooms` writes the table of
`docs/architecture.md` from them. A new edge between rooms is a decision: it is made here, in the open.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import NamedTuple

BEGINS = "<!-- rooms: python -m tools.rooms -->\n"
ENDS = "<!-- /rooms -->\n"

FOLDERS = (
    "cli",
    "daemons",
    "console",
    "inspection",
    "migration",
    "tables",
    "broker",
    "log",
    "metadata",
    "objects",
    "kafka",
    "base",
)
"""From the top down: a folder uses itself and those below it."""

ANY_BELOW = {"cli", "daemons"}
"""They put the others together, and may use any room below them."""


class Room(NamedTuple):
    holds: str
    uses: frozenset[str]


def _room(holds: str, uses: str = "") -> Room:
    return Room(holds, frozenset(uses.split()))


# A room is a folder, or a part of one. What no part claims belongs to the folder itself.
ROOMS: dict[str, Room] = {
    "cli": _room("`drayd`: its commands, what they print, and how they fail"),
    "daemons": _room(
        "the processes: `broker/`, `compactor/`, `migrator/`, `console/`, `supervisor/`; `config/` is the "
        "one config, `assembly/` makes their parts from it; `direct.py` and `recovery/` work on the stores "
        "without a broker"
    ),
    "console": _room(
        "the cluster in a browser: pages, live records, what may change something",
        "inspection broker/security broker/topics metadata kafka/client base/runtime",
    ),
    "inspection": _room(
        "a cluster as typed views, from Kafka's protocol and from the stores; no HTTP",
        "migration tables broker/cluster broker/topics log metadata objects kafka/client "
        "kafka/protocol kafka/records base/runtime",
    ),
    "migration": _room(
        "logs that others wrote become topics: `attach/` takes what a stopped system left, `live/` moves "
        "topics of a running one, `mirror/` commits what those write meanwhile, `groups/` their consumer "
        "groups",
        "migration/source migration/entries migration/formats broker/groups broker/topics log log/wal "
        "metadata objects kafka/client kafka/protocol kafka/records base/runtime",
    ),
    "migration/source": _room(
        "a Kafka cluster that still owns a topic: what is read of it, passed on to it, fenced there and "
        "followed, until Dray owns the topic",
        "migration/formats kafka/client kafka/protocol kafka/records base/runtime",
    ),
    "migration/entries": _room(
        "index entries of segments that others wrote: how they are laid down, read, compacted, and whose "
        "they are; processes give these to their log and to compaction",
        "migration/formats tables/compaction broker/topics log log/parquet metadata objects kafka/records "
        "base/runtime",
    ),
    "migration/formats": _room(
        "logs that others wrote, as bytes: Kafka's segments, tiered storage, KafScale, DriftQ",
        "kafka/protocol kafka/records",
    ),
    "tables": _room(
        "what compaction asks of tables (`contract.py`), answered by `iceberg/` on pyiceberg",
        "log objects base/runtime",
    ),
    "tables/compaction": _room(
        "the log becomes files and tables: what is next (`planning/`), units of work (`writing/`, `spark/`), "
        "the saga, and what is collected (`upkeep/`)",
        "tables broker/topics log log/wal log/parquet metadata objects kafka/records base/config "
        "base/runtime",
    ),
    "tables/spark_source": _room(
        "the log and its tables as a data source of Spark: batches and streams",
        "tables kafka/client kafka/protocol kafka/records base/runtime",
    ),
    "broker": _room("the settings of what clients meet", "base/config"),
    "broker/server": _room(
        "sockets, framing, pipelining, back-pressure; TLS; HTTP for health and metrics",
        "broker base/runtime base/telemetry",
    ),
    "broker/api": _room(
        "one module per Kafka API: request in, response out",
        "broker broker/cluster broker/groups broker/security broker/topics log kafka kafka/protocol "
        "kafka/records base/runtime base/telemetry",
    ),
    "broker/groups": _room(
        "consumer groups: two pure state machines, assignors, and the coordinator that stores and times them",
        "broker broker/cluster broker/topics metadata kafka/protocol base/runtime",
    ),
    "broker/topics": _room(
        "topics and their configs: create, alter, delete, retain", "broker log metadata base/runtime"
    ),
    "broker/cluster": _room(
        "the cluster's record, whose bucket it is, membership, zones, affinity, clocks compared",
        "metadata objects base/runtime",
    ),
    "broker/security": _room(
        "who may do what: credentials, SASL, principals, ACLs, quotas; pure rules, and where they are kept",
        "metadata kafka base base/runtime",
    ),
    "log": _room(
        "streams: `append/`, `read/`, `jobs/` (compacting and packing) and `life/` (retention, collector)",
        "log/wal log/parquet metadata objects kafka/records base/config base/runtime",
    ),
    "log/wal": _room("the WAL object format", "kafka/records"),
    "log/parquet": _room(
        "Parquet files of the tables' schema: written as a stream, read by row group", "kafka/records"
    ),
    "metadata": _room(
        "the `MetadataStore` contract, its engines, the key schema", "base/config base/runtime"
    ),
    "objects": _room("the `ObjectStore` contract and its engines", "base/runtime"),
    "kafka": _room(
        "what Kafka defines and both sides of a connection need: ACLs, quotas, SASL", "base/runtime"
    ),
    "kafka/client": _room(
        "a small Kafka client: how to connect, brokers and leaders, topics, groups, records",
        "kafka kafka/protocol kafka/records base base/runtime",
    ),
    "kafka/protocol": _room("messages generated from Kafka's schema, headers, error codes"),
    "kafka/records": _room("Kafka record batches: validate, patch, decode (a compiled core)"),
    "base": _room("what no other room knows of: HTTPS as a client"),
    "base/telemetry": _room("metrics and logs", "base/runtime"),
    "base/config": _room("how a room says what an operator may set, and of which kinds that is"),
    "base/runtime": _room("time, randomness, threads, tasks and what becomes of them: injected everywhere"),
}


def room_of(path: PurePath) -> str:
    """The room of a module or a package below `src/dray`: the nearest that has a name here."""
    parts = path.with_suffix("").parts
    prefixes = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in ROOMS), parts[0])


def folder_of(room: str) -> str:
    return room.partition("/")[0]


def below(folder: str) -> tuple[str, ...]:
    """The folders that a folder may use besides itself."""
    return FOLDERS[FOLDERS.index(folder) + 1 :]


def table() -> str:
    rows = ["| room | what lives there | what it uses |", "|---|---|---|"]
    for room, (holds, uses) in ROOMS.items():
        shown = ", ".join(other for other in ROOMS if other in uses) or "nothing"
        rows.append(f"| `{room}/` | {holds} | {'everything below' if room in ANY_BELOW else shown} |")
    return "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    return f"{before}{BEGINS}\n{table()}\n{ENDS}{after}"


if __name__ == "__main__":
    architecture = Path("docs/architecture.md")
    architecture.write_text(with_table(architecture.read_text(encoding="utf-8")), encoding="utf-8")
