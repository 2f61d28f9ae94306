"""One round of all the collectors, outside of any broker or compactor."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec

from dray.base.runtime import ExpiryClock, Runtime, SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.cluster import ClockGuard
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.parts import clock_guard
from dray.daemons.assembly.process import local_machine
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.assembly.stores import NoCluster, open_stores
from dray.daemons.compactor.pipeline import Pipeline, open_pipeline
from dray.daemons.config import Settings
from dray.daemons.recovery.ownership import owned_bucket
from dray.log.append.carried_hints import survey_carried
from dray.log.life.collector import Collector
from dray.log.life.deletions import RELEASED, MayDelete
from dray.metadata.contract import MetadataError
from dray.migration.entries.kind import ForeignEntries
from dray.objects import ObjectError
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.upkeep.rounds import Upkeep


@dataclass(frozen=True, slots=True)
class CollectionRequest:
    now: bool
    dry_run: bool = False
    release_brake: bool = False


@dataclass(frozen=True, slots=True)
class CollectionReport:
    counts: dict[str, int]
    """The counts of what the round saw and did (in a dry run: would do), by name."""
    held: str | None
    """Why it did not delete all that is garbage, as far as this metadata store knows."""


def collect(settings: Settings, wanted: CollectionRequest) -> CollectionReport:
    with quiet_logs():
        return asyncio.run(_collect(settings, wanted))


async def _collect(settings: Settings, wanted: CollectionRequest) -> CollectionReport:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    clocks: ClockGuard | None = None
    knobs = log_settings(settings)
    if wanted.now:
        knobs = replace(knobs, collect_grace=0.0, orphan_ttl=0.0)
    if wanted.release_brake:
        knobs = replace(knobs, brake=RELEASED)
    try:
        asks_tables = settings.iceberg.enabled and find_spec("pyiceberg") is not None
        try:
            pipeline = await open_pipeline(_with_tables(settings, asks_tables), runtime, stores)
        except NoCluster:
            raise Failure("there is no cluster on these stores yet: nothing to collect") from None
        guard = await owned_bucket(stores, pipeline.cluster, runtime, settings.tally_interval)
        machine = local_machine().name
        clocks = clock_guard(settings, stores.metadata, stores.objects, runtime, machine)
        clocks.start()
        if (doubt := await clocks.until_certain()) is not None:
            raise Failure(f"nothing is collected, since this machine's clock is doubted: {doubt}")
        files = CollectionReport({}, None)
        if asks_tables or not settings.iceberg.enabled:
            files = await _collect_files(settings, pipeline, runtime, guard, clocks, wanted)
        collector = Collector(
            pipeline.streams,
            stores.objects,
            runtime,
            knobs,
            may_delete=guard,
            expiry=clocks,
            outside=ForeignEntries(stores.objects, runtime, stores.foreign, settings.foreign.cache_bytes),
        )
        seen = await collector.run(dry_run=wanted.dry_run)
        counts = {name: count for name, count in asdict(seen).items() if isinstance(count, int)}
        hint_ms = None if wanted.dry_run else runtime.wall_ms()
        counts |= asdict(await survey_carried(pipeline.streams, hint_ms=hint_ms))
        return CollectionReport(counts | files.counts, seen.held or seen.braked or files.held)
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    finally:
        if clocks is not None:
            await clocks.stop()
        await stores.close()
        runtime.close()


def _with_tables(settings: Settings, enabled: bool) -> Settings:
    """A broker-only install cannot ask the tables, and collects WAL objects only."""
    return replace(settings, iceberg=replace(settings.iceberg, enabled=enabled))


async def _collect_files(
    settings: Settings,
    pipeline: Pipeline,
    runtime: Runtime,
    guard: MayDelete,
    expiry: ExpiryClock,
    wanted: CollectionRequest,
) -> CollectionReport:
    knobs = compaction_settings(settings)
    if wanted.now:
        # Metadata of tables waits all the same: nothing but its age tells garbage from the files of a commit
        # that is under way, and without those a table could not be read any more.
        knobs = replace(knobs, collect_grace=0.0)
    if wanted.release_brake:
        knobs = replace(knobs, brake=RELEASED)
    objects = pipeline.stores.objects
    upkeep = Upkeep(
        pipeline.streams,
        objects,
        runtime,
        pipeline.tables,
        pipeline.topics,
        knobs,
        may_delete=guard,
        expiry=expiry,
    )
    summary = CycleSummary()
    await upkeep.drop_dead_tables(summary, dry_run=wanted.dry_run)
    await upkeep.collect(summary, dry_run=wanted.dry_run)
    if summary.troubles:
        raise Failure(summary.troubles[0].reason)
    counts = {
        "files_deleted": summary.files_deleted,
        "files_pending": summary.files_pending,
        "tables_dropped": summary.tables_dropped,
        "metadata_deleted": summary.metadata_deleted,
    }
    return CollectionReport(counts, summary.held or summary.braked)
