"""What several APIs say of a topic's partitions, and which stream one is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

from dray.api.shared.context import Context
from dray.protocol import ErrorCode
from dray.records import LEADER_EPOCH
from dray.topics import Topic, TopicsUnavailable

T = TypeVar("T")


def broker_ids(context: Context) -> set[int]:
    """The brokers that are there, as far as this one knows."""
    return {broker.broker_id for broker in context.services.membership.brokers()}


async def find_topic(
    context: Context, name: str, partition: int, topic_id: UUID | None = None
) -> Topic | None:
    """A topic by its id, if one is given, else by its name. Read again where it is not known or does not have
    the partition: either may be new. Raises `TopicsUnavailable`."""
    topics = context.services.topics
    if topic_id is None:
        topic = topics.cached(name)
        if topic is None or partition >= len(topic.streams):
            topic = await topics.refresh(name)
        if topic is None or partition >= len(topic.streams):
            topic = await topics.refresh(name, barrier=True)  # the first read may have been stale
        return topic
    topic = await topics.get_by_id(topic_id)
    if topic is not None and partition >= len(topic.streams):
        topic = await topics.refresh(topic.name)
    return topic if topic is not None and topic.topic_id == topic_id else None


async def find_stream(context: Context, name: str, partition: int) -> int | ErrorCode:
    """The stream of a partition addressed by its topic's name, or why there is none."""
    try:
        topic = await find_topic(context, name, partition)
    except TopicsUnavailable:
        return ErrorCode.LEADER_NOT_AVAILABLE
    stream = None if topic is None else topic.stream_of(partition)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if stream is None else stream


async def find_leading(context: Context, name: str, partition: int) -> tuple[int, int] | ErrorCode:
    """The stream of a partition and the leader epoch of its topic, or why there is none."""
    stream = await find_stream(context, name, partition)
    if isinstance(stream, ErrorCode):
        return stream
    topic = context.services.topics.cached(name)
    return stream, LEADER_EPOCH if topic is None else topic.leader_epoch


def repeated(items: Iterable[T]) -> dict[T, int]:
    """What a request names more than once, and how often, in the order it does."""
    return {item: count for item, count in Counter(items).items() if count > 1}


async def forget_closed(context: Context, name: str) -> None:
    """A stream of this topic is closed, so what is known of the topic is old: read it again."""
    try:
        await context.services.topics.refresh(name)
    except TopicsUnavailable as error:
        context.logger().warning("a deleted topic could not be read again", error=str(error))
