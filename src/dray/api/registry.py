"""The one table of what is served: each API module registers its handler and versions, this lists them.

Adding an API is adding its module here. ApiVersions, the dispatcher and the documentation all read this.
"""

from __future__ import annotations

from typing import Final

from dray.api import (
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
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
    # --- groups
    offset_commit.handle,
    offset_fetch.handle,
    join_group.handle,
    heartbeat.handle,
    leave_group.handle,
    sync_group.handle,
    describe_groups.handle,
    list_groups.handle,
    delete_groups.handle,
    offset_delete.handle,
    consumer_group_heartbeat.handle,
    consumer_group_describe.handle,
)
