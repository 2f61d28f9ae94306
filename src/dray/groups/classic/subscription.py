"""The topics that a group of consumers is subscribed to: the one thing read out of the members' metadata.

Metadata is whatever a client sends. What cannot be read makes the group's topics unknown, which counts as
subscribed to everything: then no offset is deleted or expires that a member may still need.
"""

from __future__ import annotations

from dray.groups.classic.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from dray.protocol import DecodeError
from dray.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

_VERSION_SIZE = 2


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """None where that cannot be known."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    # Mostly all members name the same topics, each with more of its own behind: those are read once.
    last_read = b""
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name)
        if metadata is None:
            return None
        if last_read and metadata.startswith(last_read, _VERSION_SIZE):
            continue
        named = _topics_in(metadata)
        if named is None:
            return None
        topics.update(named)
        last_read = metadata[_VERSION_SIZE : _VERSION_SIZE + _size_of(named)]
    return frozenset(topics)


def _topics_in(metadata: bytes) -> list[str] | None:
    """Every version of a subscription starts as version 0 does, so even one of the future can be read."""
    if len(metadata) < _VERSION_SIZE:
        return None
    try:
        subscription, _ = ConsumerProtocolSubscription.decode(memoryview(metadata), _VERSION_SIZE, 0)
    except DecodeError:
        return None
    return subscription.topics


def _size_of(topics: list[str]) -> int:
    """Of the list of topics as it is encoded: its length, then each with its own."""
    return 4 + sum(2 + len(topic.encode()) for topic in topics)
