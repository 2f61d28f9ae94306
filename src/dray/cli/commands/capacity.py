"""`drayd capacity`: what a load takes, by a model whose figures were measured (docs/growth.md).

It asks nobody and starts nothing. Every figure that it rests on is in its answer, since each is of one
machine: a load like the real one, on real machines, says more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil, inf, log
from typing import Annotated, Final

import typer

from dray.base.config.kinds import DAY, KIB, MIB, Duration, InvalidValue, Kind, Size, size_text
from dray.cli.options import JsonOption
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.inspection.storage.costs import GIGABYTE, MONTH_DAYS, Prices
from dray.log.settings import LogSettings
from dray.metadata.oxia.settings import INLINE
from dray.tables.compaction.settings import CompactionSettings

MONTH_SECONDS: Final = MONTH_DAYS * DAY
CORE_HOUR: Final = 0.04
"""Dollars of a core for an hour, on demand: a round figure."""
LEAST_DOMAINS: Final = 16

_RATE: Final = Size(1, 1024**5)
_BATCH: Final = Size(100, 64 * MIB)
_TIME: Final = Duration(60.0, 3650 * DAY)
_LINGER: Final = Duration(1e-3, 10.0)
_MERGED: Final = 16  # files of a partition become one: `parquet_max_files`
_LOG: Final = LogSettings(waits=True)
_COMPACTION: Final = CompactionSettings()


@dataclass(frozen=True)
class Costs:
    """Processor seconds, and bytes, by docs/growth.md."""

    write_gigabyte: float = 1.82
    """0.62 of the broker, and 1.2 for a signed PUT over TLS."""
    write_object: float = 1.26e-3
    commit: float = 55e-6
    """Of one partition in a commit, and 26 us of it in Oxia."""
    store_commit: float = 26e-6
    hear: float = 7e-6
    """Of one partition in a commit of another broker."""
    read_near: float = 0.20
    """A gigabyte, from the memory of the broker that wrote it."""
    read_far: float = 0.46
    """A gigabyte, from objects that a broker of another zone wrote: measured on files, without TLS."""
    compact_gigabyte: float = 6.4
    compact_file: float = 5.6e-3
    busy: float = 0.6
    """A broker is one core, and may use this share of it."""
    partition_bytes: int = 640
    """In the metadata store, of a partition that was written to."""
    commit_bytes: int = 515
    """In the metadata store, of one partition in a commit that was not compacted yet."""
    commit_keys: int = 3
    file_keys: int = 9
    """Keys written for one compacted file: its job, step by step, and its entry."""


@dataclass(frozen=True)
class Load:
    throughput: float
    """Bytes a second that producers send, as they arrive: compressed or not."""
    partitions: int
    retention: float
    zones: int = 1
    readers: int = 1
    batch: int = 16 * KIB
    domains: int | None = None
    linger: float = _LOG.linger_seconds
    object_bytes: int = _LOG.object_bytes


@dataclass(frozen=True)
class Bill:
    """Dollars a month."""

    puts: float
    gets: float
    stored: float
    brokers: float
    compaction: float
    metadata: float

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


@dataclass(frozen=True)
class Capacity:
    """What a load takes. Rates are per second."""

    domains: int
    brokers_per_zone: int
    brokers: int
    broker_cores: float
    """What they use together; more are there, for the hour in which a zone is gone."""
    objects: float
    object_bytes: float
    carried: bool
    """Small appends ride in commits, and become objects when they are packed."""
    partition_commits: float
    metadata_writes: float
    """Keys put; as many are deleted later."""
    metadata_cores: float
    metadata_bytes: float
    gets: float
    files: float
    file_bytes: float
    compaction_cores: float
    objects_stored: float
    bytes_stored: float
    bill: Bill


def capacity(load: Load, prices: Prices, core_hour: float, costs: Costs) -> Capacity:
    """The number of domains has to be enough for the brokers of a zone, and each domain of each zone fills
    objects of its own."""
    domains = load.domains or LEAST_DOMAINS
    while True:
        found = _with_domains(load, domains, prices, core_hour, costs)
        if load.domains is not None or found.brokers_per_zone <= domains or domains >= 1024:
            return found
        domains = min(1024, 2 * domains)


def _with_domains(load: Load, domains: int, prices: Prices, core_hour: float, costs: Costs) -> Capacity:
    gigabytes = load.throughput / GIGABYTE
    lane = load.throughput / (load.zones * domains)
    carried = lane <= INLINE.rate
    most = INLINE.pack_bytes if carried else load.object_bytes
    filled = most if carried else min(most, max(lane * load.linger, load.batch))
    objects = load.throughput / filled
    # What is written at once: an object, or a carried write, which holds no more than the engine lets it.
    batches = load.throughput / load.batch
    apart = INLINE.write_bytes if carried else filled
    commits = load.throughput / apart * min(load.partitions / domains, max(1.0, apart / load.batch))
    commits = min(commits, batches)

    aged = load.partitions / _COMPACTION.wal_max_age
    files = max(min(aged, batches), load.throughput / _COMPACTION.wal_max_bytes)
    files = max(files, commits / _COMPACTION.wal_max_entries)
    file_bytes = load.throughput / files
    merges = max(0, ceil(log(_COMPACTION.target_file_bytes / file_bytes, _MERGED) - 0.5))
    rewritten = sum(_MERGED**-level for level in range(1, merges + 1))
    largest = min(_COMPACTION.target_file_bytes, file_bytes * _MERGED**merges)
    compaction_cores = (
        gigabytes * (1 + merges) * costs.compact_gigabyte + files * (1 + rewritten) * costs.compact_file
    )

    away = (load.zones - 1) / load.zones
    cores = (
        gigabytes * costs.write_gigabyte
        + (0 if carried else objects) * costs.write_object
        + commits * costs.commit
        + (commits * costs.hear * load.zones if load.readers else 0.0)
        + gigabytes * load.readers * (costs.read_near * (1 - away) + costs.read_far * away)
    )
    whole = load.zones - 1 or 1  # zones that are left when one is gone
    per_zone = max(1, ceil(cores / costs.busy / whole)) + (load.zones == 1)

    waits = _COMPACTION.wal_max_age + _COMPACTION.interval
    lies = waits + _LOG.collect_grace
    compacted = max(0.0, load.retention - waits)
    parquet = load.throughput * compacted / largest + load.partitions * _MERGED / 2
    metadata_bytes = (
        load.partitions * costs.partition_bytes + (commits * waits + parquet) * costs.commit_bytes
    )
    metadata_cores = commits * costs.store_commit
    gets = objects * (load.zones - 1) * min(1, load.readers) + commits + 2 * files
    stored = load.throughput * (load.retention + lies)
    month = MONTH_SECONDS / 1000
    bill = Bill(
        puts=(objects + files * (1 + rewritten)) * month * prices.puts,
        gets=gets * month * prices.gets,
        stored=stored / GIGABYTE * prices.stored,
        brokers=per_zone * load.zones * core_hour * MONTH_SECONDS / 3600,
        compaction=compaction_cores * core_hour * MONTH_SECONDS / 3600,
        metadata=max(1.0, metadata_cores / costs.busy) * 3 * core_hour * MONTH_SECONDS / 3600,
    )
    return Capacity(
        domains=domains,
        brokers_per_zone=per_zone,
        brokers=per_zone * load.zones,
        broker_cores=cores,
        objects=objects,
        object_bytes=filled,
        carried=carried,
        partition_commits=commits,
        metadata_writes=commits * costs.commit_keys + 2 * objects + files * costs.file_keys,
        metadata_cores=metadata_cores,
        metadata_bytes=metadata_bytes,
        gets=gets,
        files=files,
        file_bytes=file_bytes,
        compaction_cores=compaction_cores,
        objects_stored=objects * lies + parquet,
        bytes_stored=stored,
        bill=bill,
    )


def explained(load: Load, found: Capacity, prices: Prices, core_hour: float, costs: Costs) -> list[str]:
    """Advice, and the assumptions."""
    lines = []
    if found.brokers_per_zone > found.domains:
        lines.append("advice: a zone has more brokers than domains, so some lead nothing: more --domains")
    elif found.domains > LEAST_DOMAINS and load.domains is None:
        lines.append(f"advice: make the cluster with cluster.domains: {found.domains}: it is fixed then")
    early = not found.carried and found.object_bytes < load.object_bytes
    if early and found.bill.puts > found.bill.total / 4:
        slow = capacity(replace(load, linger=5 * load.linger), prices, core_hour, costs)
        lines.append(
            f"advice: objects close early: with log.flush_linger: {5000 * load.linger:g}ms puts cost "
            f"${slow.bill.puts:,.0f}, and a record may wait for as long; fewer domains do the same"
        )
    if found.bill.gets > found.bill.total / 4:
        lines.append(
            "advice: most gets are compaction's, one per partition in an object: larger batches (linger.ms "
            "and batch.size of producers), fewer partitions or a longer log.flush_linger make them fewer"
        )
    return [
        *lines,
        f"load: batches of {size_text(load.batch)}, spread evenly; each record read at the tail by so many "
        f"groups: {load.readers}; clients say their zone, so records cross zones by the object store alone",
        f"objects: one per zone and domain, closed after {1000 * load.linger:g} ms or at "
        f"{size_text(load.object_bytes)}; below {size_text(INLINE.rate)}/s of each, appends are carried",
        f"brokers: one core each, {costs.busy:.0%} busy without one zone (with one zone: without a broker); "
        f"{costs.write_gigabyte:g} CPU s per GB written, {1e3 * costs.write_object:g} ms per object, "
        f"{1e6 * costs.commit:g} us per partition in a commit, {1e6 * costs.hear:g} us in each zone that "
        f"hears it, {costs.read_near:g} s per GB read from memory, {costs.read_far:g} s from other zones' "
        "objects",
        f"metadata: Oxia, three servers, {1e6 * costs.store_commit:g} us per partition in a commit, "
        f"{costs.commit_bytes} bytes each until it is compacted",
        f"compaction: {costs.compact_gigabyte:g} CPU s per GB and {1e3 * costs.compact_file:g} ms per file, "
        "merging alike; files as large as what they were made of",
        f"dollars: {prices.puts:g} per 1,000 puts, {prices.gets:g} per 1,000 gets, {prices.stored:g} per GB "
        f"and month, {core_hour:g} per core and hour; no network, no memory, no discounts",
        "all this was measured on one machine of two cores, and put together on paper: try a load like yours",
    ]


def parsed(flag: str, kind: Kind, text: str) -> float:
    try:
        return float(kind.parse(text))
    except InvalidValue as error:
        raise Failure(f"{flag} = {text!r}: must be {kind.allowed()}", USAGE) from error


def parsed_prices(given: list[str]) -> tuple[Prices, float]:
    found = {"puts": Prices.puts, "gets": Prices.gets, "stored": Prices.stored, "core": CORE_HOUR}
    for each in given:
        name, _, text = each.partition("=")
        try:
            dollars = float(text)
        except ValueError:
            dollars = -1.0
        if name not in found or not 0 <= dollars < inf:
            known = ", ".join(found)
            raise Failure(f"--price = {each!r}: must be NAME=DOLLARS, with a name of {known}", USAGE)
        found[name] = dollars
    core_hour = found.pop("core")
    return Prices(**found), core_hour


def size(value: float) -> str:
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


def show(found: Capacity) -> None:
    bill = found.bill
    lane = "carried, then packed into" if found.carried else "written in"
    rows = [
        ("brokers", f"{found.brokers}, {found.brokers_per_zone} in each zone", bill.brokers),
        ("", f"{found.broker_cores:.2f} cores busy in all", None),
        ("object puts", f"{found.objects:,.1f}/s, {lane} objects of {size(found.object_bytes)}", bill.puts),
        ("object gets", f"{found.gets:,.1f}/s", bill.gets),
        ("stored", f"{size(found.bytes_stored)} in {found.objects_stored:,.0f} objects", bill.stored),
        ("metadata", f"{found.metadata_writes:,.0f} keys written/s, as many deleted", bill.metadata),
        (
            "",
            f"{found.metadata_cores:.2f} cores busy, {size(found.metadata_bytes)}, {found.domains} domains",
            None,
        ),
        ("", f"{found.partition_commits:,.0f} commits of a partition/s", None),
        ("compaction", f"{found.compaction_cores:.2f} cores busy", bill.compaction),
        ("", f"{found.files:,.1f} files/s of {size(found.file_bytes)}, before merging", None),
        ("in all", "", bill.total),
    ]
    shown = [(name, what, "" if dollars is None else f"{dollars:,.0f}") for name, what, dollars in rows]
    print_table(("", "needs", "$ a month"), shown, right=("$ a month",))


def command(
    *,
    throughput: Annotated[
        str, typer.Option("--throughput", metavar="SIZE/s", help="What producers send, such as 200MB/s.")
    ],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Of all topics together.")],
    retention: Annotated[
        str, typer.Option("--retention", metavar="TIME", help="How long records are kept, such as 7d.")
    ] = "7d",
    zones: Annotated[
        int, typer.Option("--zones", min=1, max=100, help="Availability zones with brokers and clients.")
    ] = 1,
    readers: Annotated[
        int, typer.Option("--readers", min=0, help="Consumer groups that read every record.")
    ] = 1,
    batch: Annotated[
        str, typer.Option("--batch", metavar="SIZE", help="The usual batch of a producer.")
    ] = "16KiB",
    domains: Annotated[
        int | None,
        typer.Option(
            "--domains", min=1, max=1024, help="cluster.domains. \\[16, or enough]", show_default=False
        ),
    ] = None,
    linger: Annotated[
        str, typer.Option("--linger", metavar="TIME", help="log.flush_linger, on a bucket.")
    ] = "100ms",
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price",
            metavar="NAME=DOLLARS",
            help="puts and gets of 1,000, stored of a GB and month, core of an hour: core=0.05. Repeatable.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say what a load takes: brokers, objects, metadata, storage, and the price, with all assumptions.

    It is a model with measured costs, on S3 and Oxia. It asks nobody and starts nothing.

    [dim]Example:[/] drayd capacity --throughput 200MB/s --partitions 5000 --retention 7d --zones 3
    """
    prices, core_hour = parsed_prices(price or [])
    load = Load(
        throughput=parsed("--throughput", _RATE, throughput.removesuffix("/s")),
        partitions=partitions,
        retention=parsed("--retention", _TIME, retention),
        zones=zones,
        readers=readers,
        batch=int(parsed("--batch", _BATCH, batch)),
        domains=domains,
        linger=parsed("--linger", _LINGER, linger),
    )
    costs = Costs()
    found = capacity(load, prices, core_hour, costs)
    assumptions = explained(load, found, prices, core_hour, costs)
    if json:
        bill = asdict(found.bill) | {"total": found.bill.total}
        print_json(asdict(found) | {"bill": bill, "assumptions": assumptions})
        return
    show(found)
    print()
    for line in assumptions:
        print(f"- {line}")
