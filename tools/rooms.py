"""The rooms of the house: what each holds, and which rooms below it may be used.

`tests/unit/test_house.py` holds the code to this. `python -m tools.rooms` writes the table of
`docs/architecture.md` from it. A new edge between rooms is a decision: it is made here, in the open.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

BEGINS = "<!-- rooms: python -m tools.rooms -->\n"
ENDS = "<!-- /rooms -->\n"


class Room(NamedTuple):
    holds: str
    uses: frozenset[str]


def _room(holds: str, uses: str = "") -> Room:
    return Room(holds, frozenset(uses.split()))


_BELOW_DAEMON = (
    "api client cluster compaction config console groups inspection log metadata migration objects "
    "parquet protocol records runtime security server tables telemetry topics upstream wal"
)

ROOMS: dict[str, Room] = {
    "cli": _room(
        "`drayd`: its commands, what they print, and how they fail", f"daemon simulation {_BELOW_DAEMON}"
    ),
    "simulation": _room("whole clusters on virtual time, from one seed", f"daemon foreign {_BELOW_DAEMON}"),
    "daemon": _room(
        "the processes: broker (`node.py`), compactor, migrator, supervisor; from the one config to the "
        "rooms (`settings.py`)",
        _BELOW_DAEMON,
    ),
    "console": _room(
        "the cluster in a browser: pages, live records, what may change something",
        "client inspection metadata runtime security topics",
    ),
    "inspection": _room(
        "a cluster as typed views, from Kafka's protocol and from the stores; no HTTP",
        "client cluster groups log metadata migration protocol records runtime tables topics",
    ),
    "spark_source": _room(
        "the log as a data source of Spark: batches and streams", "client protocol records runtime"
    ),
    "client": _room(
        "a small Kafka client: how to connect, brokers and leaders, topics, groups, records",
        "protocol records runtime security",
    ),
    "server": _room(
        "sockets, framing, pipelining, back-pressure; HTTP for health and metrics",
        "runtime telemetry",
    ),
    "api": _room(
        "one module per Kafka API: request in, response out",
        "cluster groups log protocol records runtime security telemetry topics",
    ),
    "security": _room(
        "who may do what: credentials, SASL, principals, ACLs, quotas; pure rules, and where they are kept",
        "metadata runtime",
    ),
    "groups": _room(
        "consumer groups: two pure state machines, assignors, and the coordinator that stores and times them",
        "cluster metadata protocol runtime topics",
    ),
    "cluster": _room(
        "the cluster's record, whose bucket it is, membership, zones, affinity, clocks compared",
        "metadata objects runtime",
    ),
    "compaction": _room(
        "plans, units of work (in process or on Spark), the saga, collectors of files",
        "log metadata objects parquet records runtime tables topics wal",
    ),
    "topics": _room("topics and their configs: create, alter, delete, retain", "log metadata runtime"),
    "tables": _room(
        "what compaction asks of tables (`contract.py`), answered by `iceberg/` on pyiceberg", "log runtime"
    ),
    "log": _room(
        "streams: append pipeline, offset index, reads, time lookup, producer state, collector of objects",
        "foreign metadata objects parquet records runtime wal",
    ),
    "migration": _room(
        "logs that others wrote become topics: inventory, lineage, plan, the steps of an attach; live ones "
        "are mirrored and switched",
        "client foreign groups log metadata objects records runtime topics upstream",
    ),
    "foreign": _room(
        "logs that others wrote, as bytes: Kafka's segments, tiered storage, KafScale, DriftQ",
        "protocol records",
    ),
    "upstream": _room(
        "a Kafka cluster that still owns a topic: what is read of it, passed on to it, fenced there and "
        "followed, until Dray owns the topic",
        "client foreign protocol records runtime",
    ),
    "wal": _room("the WAL object format", "records"),
    "parquet": _room(
        "Parquet files of the tables' schema: written as a stream, read by row group", "records"
    ),
    "records": _room("Kafka record batches: validate, patch, decode (a compiled core)"),
    "protocol": _room("messages generated from Kafka's schema, headers, error codes"),
    "metadata": _room("the `MetadataStore` contract, its engines, the key schema", "runtime"),
    "objects": _room("the `ObjectStore` contract and its engines", "runtime"),
    "telemetry": _room("metrics and logs", "runtime"),
    "config": _room("the one config model and its sources"),
    "runtime": _room("time, randomness, threads, tasks and what becomes of them: injected everywhere"),
}


@cache
def depth(room: str) -> int:
    """How many rooms stand below it, one on the other. Raises `RecursionError` for a circle."""
    return 1 + max((depth(used) for used in ROOMS[room].uses), default=0)


def in_order() -> list[str]:
    """From the top down: a room uses only rooms that come after it."""
    return sorted(ROOMS, key=lambda room: -depth(room))


def table() -> str:
    rows = ["| room | what lives there | what it uses |", "|---|---|---|"]
    for room in in_order():
        uses = ROOMS[room].uses
        below = {other for other in ROOMS if depth(other) < depth(room)}
        if uses >= below - {"spark_source"} and len(uses) > 10:
            shown = "everything below"
        else:
            shown = ", ".join(other for other in in_order() if other in uses) or "nothing"
        rows.append(f"| `{room}/` | {ROOMS[room].holds} | {shown} |")
    return "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    return f"{before}{BEGINS}\n{table()}\n{ENDS}{after}"


if __name__ == "__main__":
    architecture = Path("docs/architecture.md")
    architecture.write_text(with_table(architecture.read_text(encoding="utf-8")), encoding="utf-8")
