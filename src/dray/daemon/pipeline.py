"""The parts of the data pipeline as a config names them; whatever is wrong with them is one line."""

from __future__ import annotations

from dataclasses import dataclass

from dray.cluster.identity import ClusterInfo
from dray.config import Settings
from dray.daemon.catalogs import make_tables
from dray.daemon.settings import log_settings
from dray.daemon.store_settings import table_names
from dray.daemon.stores import Stores, read_cluster
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
    return Pipeline(
        stores,
        cluster,
        StreamStore(stores.metadata, cluster.domains, log_settings(settings).producer_expiry_ms),
        StoredTopics(stores.metadata, settings.topics.defaults, table_names(settings)),
        make_tables(settings, cluster.cluster_id, runtime) if settings.iceberg.enabled else None,
    )
