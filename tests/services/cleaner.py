"""Compaction by key, now and of everything there is: a compactor's cycle, in this process, without Spark."""

from __future__ import annotations

import asyncio

from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.assembly.stores import open_stores
from dray.daemons.compactor.pipeline import open_pipeline
from dray.daemons.config import Settings, load
from dray.daemons.recovery.ownership import claimed_bucket
from dray.log.jobs.clean_shares import CleanShares
from dray.migration.entries.rows import ForeignRows
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.writing.executor import LocalUnitWriter
from tests.services.dray import DrayProcess


def clean(broker: DrayProcess, *, restart: bool = True) -> CycleSummary:
    """Compact all topics of a broker's stores, each partition by key from its start on. The broker is started
    again after that: what it has in memory it would go on to serve, removed or not."""
    if restart:
        broker.terminate()
    settings = settings_of(broker)

    async def cycle() -> CycleSummary:
        runtime = SystemRuntime()
        stores = await open_stores(settings, runtime)
        try:
            pipeline = await open_pipeline(settings, runtime, stores)
            interval = settings.tally_interval
            guard = await claimed_bucket(stores, pipeline.cluster, runtime, interval)
            compactor = Compactor(
                CompactorStores(pipeline.streams, stores.objects, guard),
                runtime,
                LocalUnitWriter(stores.objects, runtime, ForeignRows(stores.objects, runtime)),
                pipeline.tables,
                pipeline.topics,
                compaction_settings(settings),
                log_settings(settings),
            )
            return await compactor.run_cycle(everything=True)
        finally:
            await stores.close()
            runtime.close()

    summary = asyncio.run(cycle())
    assert summary.troubles == []
    if restart:
        broker.start()
    return summary


def shares_of(broker: DrayProcess, topic: str) -> CleanShares:
    """What of a topic is clean, dirty and gone."""
    settings = settings_of(broker)

    async def look() -> CleanShares:
        runtime = SystemRuntime()
        stores = await open_stores(settings, runtime)
        try:
            pipeline = await open_pipeline(settings, runtime, stores)
            [found] = [each for each in (await pipeline.topics.live()).known if each.name == topic]
            views = [await pipeline.streams.view(stream) for stream in found.streams]
            return sum((CleanShares.of(view) for view in views if view is not None), CleanShares())
        finally:
            await stores.close()
            runtime.close()

    return asyncio.run(look())


def settings_of(broker: DrayProcess) -> Settings:
    stores = {key: value for key, value in broker.environment().items() if key.startswith("DRAY_")}
    return load(None, stores | {"DRAY_DATA_DIR": str(broker.data_directory)}).settings
