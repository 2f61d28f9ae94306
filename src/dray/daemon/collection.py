"""One round of all the collectors, outside of any broker or compactor."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec

from dray.cluster import ClockGuard
from dray.compaction.summary import CycleSummary
from dray.compaction.upkeep import Upkeep
from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.ownership import owned_bucket
from dray.daemon.parts import clock_guard
from dray.daemon.pipeline import Pipeline, open_pipeline
from dray.daemon.process import local_machine
from dray.daemon.settings import compaction_settings, log_settings
from dray.daemon.stores import NoCluster, open_stores
from dray.log.carried_survey import survey_carried
from dray.log.collector import Collector
from dray.log.deletions import RELEASED, MayDelete
from dray.metadata.contract import MetadataError
from dray.objects import ObjectError
from dray.runtime import ExpiryClock, Runtime, SystemRuntime
from dray.telemetry import quiet_logs


@dataclass(frozen=True, slots=True)
class CollectionRequest:
    now: bool
    dry_run: bool = False
    release_brake: bool = False


@dataclass(frozen=True, slots=True)
class CollectionReport:
    counts: dict[str, int]
    """What the round saw and did (in a dry run: would do), by name."""
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
        knobs = replace(knobs, grace_seconds=0.0, orphan_seconds=0.0)
    if wanted.release_brake:
        knobs = replace(knobs, brake=RELEASED)
    try:
        asks_tables = settings.iceberg.enabled and find_spec("pyiceberg") is not None
        try:
            pipeline = await open_pipeline(_with_tables(settings, asks_tables), runtime, stores)
        except NoCluster:
            raise Failure("there is no cluster on these stores yet: nothing to collect") from None
        guard = await owned_bucket(stores, pipeline.cluster)
        machine = local_machine().name
        clocks = clock_guard(settings, stores.metadata, stores.objects, runtime, machine)
        clocks.start()
        if (doubt := await clocks.settle()) is not None:
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
            foreign=stores.foreign,
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
    return settings.model_copy(update={"iceberg": settings.iceberg.model_copy(update={"enabled": enabled})})


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
        knobs = replace(knobs, grace_seconds=0.0, metadata_orphan_seconds=0.0)
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
