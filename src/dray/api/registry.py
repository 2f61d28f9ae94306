"""The one table of what is served: each API module registers its handler and versions, this lists them.

Adding an API is adding its module here. ApiVersions, the dispatcher and the documentation all read this.
"""

from __future__ import annotations

from typing import Final

from dray.api import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from dray.api.handler import Handler

HANDLERS: Final[tuple[Handler, ...]] = (
    produce.handle,
    fetch.handle,
    list_offsets.handle,
    metadata.handle,
    find_coordinator.handle,
    api_versions.handle,
    create_topics.handle,
    delete_topics.handle,
    delete_records.handle,
    init_producer_id.handle,
    offset_for_leader_epoch.handle,
    describe_configs.handle,
    alter_configs.handle,
    create_partitions.handle,
    incremental_alter_configs.handle,
    describe_cluster.handle,
    describe_topic_partitions.handle,
)
