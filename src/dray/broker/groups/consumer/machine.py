"""The coordinator of a KIP-848 group as a function: state and event in, next state and answer out.

The rules for the caller:

- The state of a result is the group's state from then on. When the result says `persist`, it is stored first;
  answer and effects come after. When storing fails, the old state still holds and nothing has happened.
- A timer that was scheduled anew or cancelled never fires.
- `ResolvePatterns` is always answered by `PatternsResolved`, be it empty.
- After loading a group, `timers_after_load` starts every member's session anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from dray.broker.groups.assignors import NOTHING, Assignment
from dray.broker.groups.consumer.events import (
    Answer,
    CancelTimer,
    ConsumerResult,
    Effect,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    PatternsResolved,
    Refusal,
    RemovalAnswer,
    RemoveMembers,
    TimerFired,
    TimerKind,
)
from dray.broker.groups.consumer.heartbeat import on_heartbeats, rebalance_timer, session_timer
from dray.broker.groups.consumer.reconciliation import chosen_assignor
from dray.broker.groups.consumer.state import (
    AWAY,
    LEAVING,
    ConsumerGroup,
    ConsumerGroupSettings,
    GroupState,
    Member,
    MemberState,
    TopicsView,
)
from dray.broker.groups.consumer.subscription import subscribed_topics, with_patterns_in_use
from dray.broker.groups.consumer.validation import fault_of, static_member, unknown_group, unknown_member
from dray.kafka.protocol import ErrorCode


def handle(
    group: ConsumerGroup | None,
    event: Event,
    now_ms: int,
    view: TopicsView,
    settings: ConsumerGroupSettings,
) -> ConsumerResult:
    if isinstance(event, Heartbeat):
        if event.member_epoch in (LEAVING, AWAY):
            fault = fault_of(event, settings)
            return _on_leave(group, event, view) if fault is None else ConsumerResult(group, (fault,))
        return on_heartbeats(group, [event], now_ms, view, settings)
    if isinstance(event, TimerFired):
        return _on_timer(group, event, view)
    if isinstance(event, RemoveMembers):
        return _on_removal(group, event, view)
    return _on_patterns(group, event, view)


def timers_after_load(
    group: ConsumerGroup, now_ms: int, settings: ConsumerGroupSettings
) -> tuple[Effect, ...]:
    """Every member gets a whole session: how much of it was left is not known."""
    sessions = [session_timer(member, now_ms, settings) for member in group.members.values()]
    rebalances = [
        rebalance_timer(member, now_ms)
        for member in group.members.values()
        if member.state is MemberState.UNREVOKED
    ]
    return *sessions, *rebalances


def _on_leave(group: ConsumerGroup | None, beat: Heartbeat, view: TopicsView) -> ConsumerResult:
    if group is None:
        return ConsumerResult(None, (unknown_group(beat.group_id),))
    member = _named(group, beat.member_id, beat.instance_id)
    if isinstance(member, Refusal):
        return ConsumerResult(group, (member,))
    answer = HeartbeatAnswer(member.member_id, beat.member_epoch, 0, None)
    if beat.member_epoch == LEAVING:
        return _without(group, [member], view, (answer,))
    away = replace(member, epoch=AWAY, state=MemberState.STABLE, pending=NOTHING)
    changed = group.with_member(away) if away != member else group
    return ConsumerResult(
        changed, (answer,), changed is not group, (CancelTimer(TimerKind.REBALANCE, member.member_id),)
    )


def _on_timer(group: ConsumerGroup | None, event: TimerFired, view: TopicsView) -> ConsumerResult:
    member = group.members.get(event.member_id) if group is not None else None
    if group is None or member is None:
        return ConsumerResult(group)
    if event.kind is TimerKind.REBALANCE and member.epoch != event.member_epoch:
        return ConsumerResult(group)
    return _without(group, [member], view, ())


def _on_removal(group: ConsumerGroup | None, event: RemoveMembers, view: TopicsView) -> ConsumerResult:
    if group is None:
        return ConsumerResult(None, (RemovalAnswer((ErrorCode.UNKNOWN_MEMBER_ID,) * len(event.members)),))
    gone: dict[str, Member] = {}
    errors: list[ErrorCode] = []
    for member_id, instance_id in event.members:
        member = _named(group, member_id, instance_id, admin=True)
        if isinstance(member, Refusal):
            errors.append(member.error)
        else:
            errors.append(ErrorCode.NONE)
            gone[member.member_id] = member
    answer = RemovalAnswer(tuple(errors))
    return _without(group, list(gone.values()), view, (answer,)) if gone else ConsumerResult(group, (answer,))


def _on_patterns(group: ConsumerGroup | None, event: PatternsResolved, view: TopicsView) -> ConsumerResult:
    if group is None:
        return ConsumerResult(None)
    notes = group.notes._replace(resolved_version=event.topics_version, resolving=False)
    resolved = replace(group, notes=notes)
    news = {
        pattern: names
        for pattern, names in event.topic_names.items()
        if pattern in group.patterns and group.patterns[pattern] != names
    }
    if not news:
        return ConsumerResult(resolved)
    # A topic that is gone is no news of the pattern: the group's topics tell of it.
    new_epoch = any(
        names != {name for name in group.patterns[pattern] or () if view.shape(name) is not None}
        for pattern, names in news.items()
    )
    resolved = replace(resolved, patterns={**group.patterns, **news})
    topics = subscribed_topics(resolved, view)
    resolved = replace(
        resolved,
        epoch=group.epoch + (new_epoch or topics is not group.topics),
        topics=topics,
        notes=notes._replace(topics_version=view.version),
    )
    return ConsumerResult(resolved, persist=True)


def _named(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, admin: bool = False
) -> Member | Refusal:
    """The member that a request is about. An administrator may name a static one by its instance id alone."""
    if instance_id is None:
        return group.members.get(member_id) or unknown_member(group, member_id)
    if admin and not member_id:
        member_id = group.static.get(instance_id, member_id)
    return static_member(group, member_id, instance_id)


def _without(
    group: ConsumerGroup,
    gone: list[Member],
    view: TopicsView,
    answers: tuple[Answer, ...],
) -> ConsumerResult:
    """The group without some members, at its next epoch: the others must share what they had."""
    left = with_patterns_in_use(group.without_members(gone))
    left = replace(
        left,
        epoch=group.epoch + 1,
        topics=subscribed_topics(left, view),
        notes=left.notes._replace(topics_version=view.version),
    )
    cancelled = tuple(CancelTimer(kind, member.member_id) for member in gone for kind in TimerKind)
    return ConsumerResult(left, answers, True, cancelled)


# --- as ConsumerGroupDescribe shows it


class TopicPartitions(NamedTuple):
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    """Empty where there is none, as Kafka has it."""

    assignment: tuple[TopicPartitions, ...]
    target_assignment: tuple[TopicPartitions, ...]


class ConsumerGroupDescription(NamedTuple):
    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ConsumerMemberDescription, ...]


def description_of(
    group: ConsumerGroup, view: TopicsView, settings: ConsumerGroupSettings
) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group.group_id,
        group.state,
        group.epoch,
        group.assignment_epoch,
        chosen_assignor(group, settings),
        tuple(_member(group.members[member_id], view) for member_id in sorted(group.members)),
    )


def _member(member: Member, view: TopicsView) -> ConsumerMemberDescription:
    return ConsumerMemberDescription(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topic_names)),
        member.topic_regex or "",
        _by_name(member.assigned, view),
        _by_name(member.target, view),
    )


def _by_name(assignment: Assignment, view: TopicsView) -> tuple[TopicPartitions, ...]:
    """Without topics that are gone: they have no name any more."""
    named = [
        TopicPartitions(topic_id, name, tuple(sorted(partitions)))
        for topic_id, partitions in assignment.items()
        if (name := view.name_of(topic_id)) is not None
    ]
    return tuple(sorted(named, key=lambda topic: topic.topic_name))
