"""The target of each member: which assignor decides, and what it is told."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from dray.groups.assignors import ASSIGNORS, MemberSubscription
from dray.groups.consumer.settings import ConsumerGroupSettings
from dray.groups.consumer.state import ConsumerGroup
from dray.groups.consumer.subscription import all_alike, subscribed_topic_ids


def chosen_assignor(group: ConsumerGroup, settings: ConsumerGroupSettings) -> str:
    """The one that most members name, else the first that is configured."""
    votes = Counter(
        member.server_assignor for member in group.members.values() if member.server_assignor is not None
    )
    candidates = [name for name in ASSIGNORS if votes[name] and name in settings.assignors]
    return max(candidates, key=votes.__getitem__, default=settings.assignors[0])


def with_new_targets(group: ConsumerGroup, settings: ConsumerGroupSettings) -> ConsumerGroup:
    """The group with targets for its present epoch."""
    topic_ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    subscriptions: dict[str, MemberSubscription] = {}
    for member_id, member in group.members.items():
        asked = (member.topic_names, member.topic_regex)
        if asked not in topic_ids:
            topic_ids[asked] = subscribed_topic_ids(group, member)
        subscriptions[member_id] = MemberSubscription(
            topic_ids[asked], member.instance_id, member.rack_id, member.target
        )
    targets = ASSIGNORS[chosen_assignor(group, settings)](
        subscriptions,
        {shape.topic_id: shape.partitions for shape in group.topics.values()},
        same_subscription=all_alike(group),
    )
    return group.with_targets(targets, group.epoch)
