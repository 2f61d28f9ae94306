"""One round of all the collectors, outside of any broker or compactor."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dray.cli.failures import Failure

if TYPE_CHECKING:
    from dray.cli.pipeline import Pipeline
    from dray.config import Settings
    from dray.runtime import Runtime


def collect(settings: Settings, *, now: bool, dry_run: bool = False) -> dict[str, int]:
    """What the round saw and did (in a dry run: would do), by name."""
    from dray.telemetry import quiet_logs

    with quiet_logs():
        return asyncio.run(_collect(settings, now=now, dry_run=dry_run))


async def _collect(settings: Settings, *, now: bool, dry_run: bool) -> dict[str, int]:
    from dray.cli.pipeline import open_pipeline
    from dray.cli.stores import NoCluster, open_stores
    from dray.log.collector import Collector
    from dray.metadata.contract import MetadataError
    from dray.node import log_settings
    from dray.objects import ObjectError
    from dray.runtime import SystemRuntime

    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    knobs = log_settings(settings)
    if now:
        knobs = replace(knobs, grace_seconds=0.0, orphan_seconds=0.0)
    try:
        asks_tables = settings.iceberg.enabled and find_spec("pyiceberg") is not None
        try:
            pipeline = await open_pipeline(_with_tables(settings, asks_tables), runtime, stores)
        except NoCluster:
            raise Failure("there is no cluster on these stores yet: nothing to collect") from None
        files = {}
        if asks_tables or not settings.iceberg.enabled:
            files = await _collect_files(settings, pipeline, runtime, now=now, dry_run=dry_run)
        collector = Collector(pipeline.streams, stores.objects, runtime, knobs)
        return asdict(await collector.run(dry_run=dry_run)) | files
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    finally:
        await stores.close()
        runtime.close()


def _with_tables(settings: Settings, enabled: bool) -> Settings:
    """A broker-only install cannot ask the tables, and collects WAL objects only."""
    return settings.model_copy(update={"iceberg": settings.iceberg.model_copy(update={"enabled": enabled})})


async def _collect_files(
    settings: Settings, pipeline: Pipeline, runtime: Runtime, *, now: bool, dry_run: bool
) -> dict[str, int]:
    from dray.cli.pipeline import compaction_settings
    from dray.compaction.summary import CycleSummary
    from dray.compaction.upkeep import Upkeep

    knobs = compaction_settings(settings)
    if now:
        knobs = replace(knobs, grace_seconds=0.0, metadata_orphan_seconds=0.0)
    objects = pipeline.stores.objects
    upkeep = Upkeep(pipeline.streams, objects, runtime, pipeline.tables, pipeline.topics, knobs)
    summary = CycleSummary()
    await upkeep.drop_dead_tables(summary, dry_run=dry_run)
    await upkeep.collect(summary, dry_run=dry_run)
    if summary.troubles:
        raise Failure(summary.troubles[0].reason)
    return {
        "files_deleted": summary.files_deleted,
        "files_pending": summary.files_pending,
        "tables_dropped": summary.tables_dropped,
        "metadata_deleted": summary.metadata_deleted,
    }
