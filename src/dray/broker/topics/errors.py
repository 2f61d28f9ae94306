"""Why a topic operation was refused. No Kafka codes here: `broker/api/` maps each class to one."""

from __future__ import annotations

from uuid import UUID

from dray.base.runtime import cut


class TopicError(Exception):
    """A topic operation was refused; the text is fit for the client."""


class InvalidTopicName(TopicError):
    """The name breaks Kafka's rules, or collides with an existing one."""


class TopicExists(TopicError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Topic '{name}' already exists.")


class UnknownTopic(TopicError):
    """There is no topic of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic '{cut(name)}' does not exist.")


class UnknownTopicId(TopicError):
    """There is no topic with that id."""

    def __init__(self, topic_id: UUID) -> None:
        super().__init__(f"There is no topic with the id {topic_id}.")


class InvalidPartitions(TopicError):
    """The number of partitions is out of bounds."""


class InvalidReplicationFactor(TopicError):
    """The replication factor is neither a positive number nor -1."""


class InvalidReplicaAssignment(TopicError):
    """A manual assignment does not name the partitions and brokers it should."""


class InvalidConfig(TopicError):
    """A config name is unknown, or its value is not allowed."""


class InvalidTopicRequest(TopicError):
    """The parts of the request contradict each other."""


class TopicsUnavailable(TopicError):
    """A store failed or answered unclearly: whether it happened must be asked again."""


class TopicUnreadable(TopicsUnavailable):
    """The topic is there, and this build cannot read it: another broker can, or this one once it is upgraded.
    Nothing was done, and nothing may be taken for gone."""
