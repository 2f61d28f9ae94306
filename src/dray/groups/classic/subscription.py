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
    # Mostly all members say the same, so each saying is read once.
    for metadata in {member.metadata(group.protocol_name) for member in group.members.values()}:
        named = None if metadata is None else _topics_in(metadata)
        if named is None:
            return None
        topics.update(named)
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
