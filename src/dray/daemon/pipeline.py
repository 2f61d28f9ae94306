"""The parts of the data pipeline as a config names them; whatever is wrong with them is one line."""

from __future__ import annotations

from dataclasses import dataclass

from dray.cluster.identity import ClusterInfo
from dray.compaction.settings import CompactionSettings
from dray.config import Settings
from dray.daemon.catalogs import make_tables
from dray.daemon.stores import Stores, read_cluster
from dray.log.deletions import Brake
from dray.log.stream_store import StreamStore
from dray.runtime import Runtime
from dray.tables.contract import Tables
from dray.topics.live import StoredTopics


@dataclass(frozen=True)
class Pipeline:
    """What a compactor works with, and what looks at its work."""

    stores: Stores
    cluster: ClusterInfo
    streams: StreamStore
    topics: StoredTopics
    tables: Tables | None
    """None where Iceberg is off for the cluster."""


async def open_pipeline(settings: Settings, runtime: Runtime, stores: Stores) -> Pipeline:
    cluster = await read_cluster(stores)
    expiry_ms = round(settings.log.producer_expiry * 1000)
    return Pipeline(
        stores,
        cluster,
        StreamStore(stores.metadata, cluster.domains, expiry_ms),
        StoredTopics(stores.metadata, settings.topics.defaults),
        make_tables(settings, cluster.cluster_id, runtime) if settings.iceberg.enabled else None,
    )


def compaction_settings(settings: Settings) -> CompactionSettings:
    compaction, iceberg = settings.compaction, settings.iceberg
    return CompactionSettings(
        interval_seconds=compaction.interval,
        wal_max_age_ms=round(compaction.wal_max_age * 1000),
        wal_max_bytes=compaction.wal_max_bytes,
        wal_max_entries=compaction.wal_max_entries,
        cycle_bytes=compaction.cycle_bytes,
        parquet_max_files=compaction.parquet_max_files,
        target_file_bytes=compaction.target_file_bytes,
        takeover_seconds=compaction.takeover,
        reread_seconds=compaction.reread_interval,
        collect_seconds=compaction.collect_interval,
        grace_seconds=compaction.collect_grace,
        snapshot_keep_ms=round(iceberg.keep_snapshots * 1000),
        drop_tables=iceberg.drop_tables,
        brake=Brake(settings.log.collect_percent / 100),
    )
