"""The subscriptions of members: names, and patterns that stand for names once they are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from uuid import UUID

from dray.broker.groups.consumer.events import ResolvePatterns
from dray.broker.groups.consumer.state import (
    ConsumerGroup,
    ConsumerGroupSettings,
    Member,
    TopicShape,
    TopicsView,
)


class PatternChange(Enum):
    NONE = "none"
    UNRESOLVED = "unresolved"
    """The topics of the new pattern are not known yet: the group epoch waits for them."""

    RESOLVED = "resolved"


def subscribed_names(member: Member, patterns: Mapping[str, frozenset[str] | None]) -> frozenset[str]:
    matching = patterns.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names | matching if matching else member.topic_names


def subscribed_topic_ids(group: ConsumerGroup, member: Member) -> frozenset[UUID]:
    return frozenset(
        group.topics[name].topic_id
        for name in subscribed_names(member, group.patterns)
        if name in group.topics
    )


def subscribed_topics(group: ConsumerGroup, view: TopicsView) -> Mapping[str, TopicShape]:
    """The subscribed topics that exist now; the very table of the group where that is the same."""
    names = _all_names(group)
    shapes = {name: shape for name in names if (shape := view.shape(name)) is not None}
    return group.topics if shapes == group.topics else shapes


def topics_have_changed(group: ConsumerGroup, view: TopicsView) -> bool:
    """Whether a subscribed topic was created, deleted or has grown since the group epoch was decided.

    A topic that is subscribed to no longer is no change of topics. It leaves the table with the next epoch,
    which may have to wait until a pattern is resolved.
    """
    return any(view.shape(name) != group.topics.get(name) for name in _all_names(group))


def _all_names(group: ConsumerGroup) -> set[str]:
    names: set[str] = set()
    for topic_names in {member.topic_names for member in group.members.values()}:
        names |= topic_names
    for matching in group.patterns.values():
        names |= matching or frozenset()
    return names


def is_subscribed(group: ConsumerGroup, topic_name: str) -> bool:
    return any(topic_name in subscribed_names(member, group.patterns) for member in group.members.values())


def all_alike(group: ConsumerGroup) -> bool:
    """Whether all members asked for the same, in the same way."""
    members = group.members.values()
    if not group.patterns:
        return len({member.topic_names for member in members}) <= 1
    return len({member.topic_regex or None for member in members}) == 1 and not any(
        member.topic_names for member in members
    )


def pattern_change(group: ConsumerGroup, before: Member, after: Member) -> PatternChange:
    """The meaning of a member's new pattern for the group. An empty pattern is none."""
    new = after.topic_regex or None
    if new == (before.topic_regex or None):
        return PatternChange.NONE
    if new is None or group.patterns.get(new) is not None:
        return PatternChange.RESOLVED
    return PatternChange.UNRESOLVED


def with_patterns_in_use(group: ConsumerGroup) -> ConsumerGroup:
    """The group with the patterns that its members use now, as far as they are resolved."""
    in_use = {member.topic_regex for member in group.members.values() if member.topic_regex}
    if in_use == group.patterns.keys():
        return group
    return replace(group, patterns={pattern: group.patterns.get(pattern) for pattern in sorted(in_use)})


def due_resolution(
    group: ConsumerGroup, now_ms: int, view: TopicsView, settings: ConsumerGroupSettings
) -> ResolvePatterns | None:
    """Whether the patterns must be matched (again): one is new, topics came or went, or it was long ago."""
    notes = group.notes
    if notes.resolving:
        return None
    if notes.asked_ms is not None:
        if now_ms <= notes.asked_ms + settings.regex_refresh_pause_ms:
            return None
        if (
            notes.resolved_version == view.version
            and now_ms <= notes.asked_ms + settings.regex_refresh_interval_ms
            and None not in group.patterns.values()
        ):
            return None
    return ResolvePatterns(frozenset(group.patterns))
