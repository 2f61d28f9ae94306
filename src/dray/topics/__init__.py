"""Topics: their names, configs, lifecycle, and what this broker knows of them. See `service`."""

from dray.topics.alterations import Alteration, AlterOperation
from dray.topics.configs import CONFIGS, ConfigDefinition, ConfigType
from dray.topics.errors import (
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
from dray.topics.model import Topic
from dray.topics.service import NewTopic, Topics, TopicsOptions
from dray.topics.settings import TopicSettings
from dray.topics.streams import Streams

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
    "TopicsOptions",
    "TopicsUnavailable",
    "UnknownTopic",
    "UnknownTopicId",
]
