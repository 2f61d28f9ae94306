"""The parts of the data pipeline as a config names them; whatever is wrong with them is one line."""

from __future__ import annotations

from dataclasses import dataclass

from dray.base.runtime import Runtime
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.topics.live import StoredTopics
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.store_settings import table_names
from dray.daemons.assembly.stores import Stores, read_cluster
from dray.daemons.compactor.catalogs import make_tables
from dray.daemons.config import Settings
from dray.log.stream_store import StreamStore
from dray.tables.contract import Tables


@dataclass(frozen=True)
class Pipeline:
    """The parts that a compactor works with, and those that look at its work."""

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
