"""Topics: their names, configs, lifecycle, and what this broker knows of them. See `service`."""

from dray.broker.topics.alterations import Alteration, AlterOperation
from dray.broker.topics.configs import CONFIGS, ConfigDefinition, ConfigType
from dray.broker.topics.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    InvalidTopicRequest,
    TopicError,
    TopicExists,
    TopicsUnavailable,
    TopicUnreadable,
    UnknownTopic,
    UnknownTopicId,
)
from dray.broker.topics.model import Streams, Topic, TopicSettings
from dray.broker.topics.service import NewTopic, Topics

__all__ = [
    "CONFIGS",
    "AlterOperation",
    "Alteration",
    "ConfigDefinition",
    "ConfigType",
    "InvalidConfig",
    "InvalidPartitions",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidTopicName",
    "InvalidTopicRequest",
    "NewTopic",
    "Streams",
    "Topic",
    "TopicError",
    "TopicExists",
    "TopicSettings",
    "TopicUnreadable",
    "Topics",
    "TopicsUnavailable",
    "UnknownTopic",
    "UnknownTopicId",
]
