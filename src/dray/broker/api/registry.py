"""The one table of what is served: the names of the API modules. Adding an API is adding its module here.

ApiVersions, the dispatcher and the documentation all read this.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from dray.broker.api.shared import Handler

MODULES: Final = (
    # --- records, topics and the cluster
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "find_coordinator",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "describe_configs",
    "alter_configs",
    "create_partitions",
    "incremental_alter_configs",
    "describe_cluster",
    "describe_topic_partitions",
    # --- for administrators
    "describe_log_dirs",
    "alter_replica_log_dirs",
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "describe_producers",
    "list_transactions",
    "describe_transactions",
    "describe_acls",
    "create_acls",
    "delete_acls",
    "describe_client_quotas",
    "alter_client_quotas",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
    "describe_quorum",
    "update_features",
    "list_config_resources",
    # --- authentication
    "sasl_handshake",
    "sasl_authenticate",
    # --- groups
    "offset_commit",
    "offset_fetch",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "delete_groups",
    "offset_delete",
    "consumer_group_heartbeat",
    "consumer_group_describe",
)

HANDLERS: Final[tuple[Handler, ...]] = tuple(
    import_module(f"dray.broker.api.{name}").handle for name in MODULES
)
