"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

The keys of Kafka's APIs, and the versions of those that have messages here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from dray.kafka.protocol.message import NEVER_FLEXIBLE


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiSchema(NamedTuple):
    module: str
    name: str
    first_version: int
    last_version: int
    flexible_from: int


SCHEMAS: Final[dict[int, ApiSchema]] = {
    0: ApiSchema("produce", "Produce", 3, 13, 9),
    1: ApiSchema("fetch", "Fetch", 4, 18, 12),
    2: ApiSchema("list_offsets", "ListOffsets", 1, 11, 6),
    3: ApiSchema("metadata", "Metadata", 0, 13, 9),
    8: ApiSchema("offset_commit", "OffsetCommit", 2, 10, 8),
    9: ApiSchema("offset_fetch", "OffsetFetch", 1, 10, 6),
    10: ApiSchema("find_coordinator", "FindCoordinator", 0, 6, 3),
    11: ApiSchema("join_group", "JoinGroup", 0, 9, 6),
    12: ApiSchema("heartbeat", "Heartbeat", 0, 4, 4),
    13: ApiSchema("leave_group", "LeaveGroup", 0, 5, 4),
    14: ApiSchema("sync_group", "SyncGroup", 0, 5, 4),
    15: ApiSchema("describe_groups", "DescribeGroups", 0, 6, 5),
    16: ApiSchema("list_groups", "ListGroups", 0, 5, 3),
    17: ApiSchema("sasl_handshake", "SaslHandshake", 0, 1, NEVER_FLEXIBLE),
    18: ApiSchema("api_versions", "ApiVersions", 0, 4, 3),
    19: ApiSchema("create_topics", "CreateTopics", 2, 7, 5),
    20: ApiSchema("delete_topics", "DeleteTopics", 1, 6, 4),
    21: ApiSchema("delete_records", "DeleteRecords", 0, 2, 2),
    22: ApiSchema("init_producer_id", "InitProducerId", 0, 6, 2),
    23: ApiSchema("offset_for_leader_epoch", "OffsetForLeaderEpoch", 2, 4, 4),
    29: ApiSchema("describe_acls", "DescribeAcls", 1, 3, 2),
    30: ApiSchema("create_acls", "CreateAcls", 1, 3, 2),
    31: ApiSchema("delete_acls", "DeleteAcls", 1, 3, 2),
    32: ApiSchema("describe_configs", "DescribeConfigs", 1, 4, 4),
    33: ApiSchema("alter_configs", "AlterConfigs", 0, 2, 2),
    34: ApiSchema("alter_replica_log_dirs", "AlterReplicaLogDirs", 1, 2, 2),
    35: ApiSchema("describe_log_dirs", "DescribeLogDirs", 1, 5, 2),
    36: ApiSchema("sasl_authenticate", "SaslAuthenticate", 0, 2, 2),
    37: ApiSchema("create_partitions", "CreatePartitions", 0, 3, 2),
    42: ApiSchema("delete_groups", "DeleteGroups", 0, 2, 2),
    43: ApiSchema("elect_leaders", "ElectLeaders", 0, 2, 2),
    44: ApiSchema("incremental_alter_configs", "IncrementalAlterConfigs", 0, 1, 1),
    45: ApiSchema("alter_partition_reassignments", "AlterPartitionReassignments", 0, 1, 0),
    46: ApiSchema("list_partition_reassignments", "ListPartitionReassignments", 0, 0, 0),
    47: ApiSchema("offset_delete", "OffsetDelete", 0, 0, NEVER_FLEXIBLE),
    48: ApiSchema("describe_client_quotas", "DescribeClientQuotas", 0, 1, 1),
    49: ApiSchema("alter_client_quotas", "AlterClientQuotas", 0, 1, 1),
    50: ApiSchema("describe_user_scram_credentials", "DescribeUserScramCredentials", 0, 0, 0),
    51: ApiSchema("alter_user_scram_credentials", "AlterUserScramCredentials", 0, 0, 0),
    55: ApiSchema("describe_quorum", "DescribeQuorum", 0, 2, 0),
    57: ApiSchema("update_features", "UpdateFeatures", 0, 2, 0),
    60: ApiSchema("describe_cluster", "DescribeCluster", 0, 2, 0),
    61: ApiSchema("describe_producers", "DescribeProducers", 0, 0, 0),
    65: ApiSchema("describe_transactions", "DescribeTransactions", 0, 0, 0),
    66: ApiSchema("list_transactions", "ListTransactions", 0, 2, 0),
    68: ApiSchema("consumer_group_heartbeat", "ConsumerGroupHeartbeat", 0, 1, 0),
    69: ApiSchema("consumer_group_describe", "ConsumerGroupDescribe", 0, 1, 0),
    74: ApiSchema("list_config_resources", "ListConfigResources", 0, 1, 0),
    75: ApiSchema("describe_topic_partitions", "DescribeTopicPartitions", 0, 0, 0),
}
