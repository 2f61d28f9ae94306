"""A heartbeat of a member that is in the group or wants to be.

Step by step: find the member, take what it says, decide whether the group needs a new epoch, compute targets
if it does, move this one member towards its target, and give it another session. Others move when they send
their own heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dray.base.runtime import cut
from dray.broker.groups.consumer.events import (
    PATTERN_UNJUDGED,
    Answer,
    CancelTimer,
    ConsumerResult,
    Effect,
    Heartbeat,
    HeartbeatAnswer,
    Refusal,
    ScheduleTimer,
    TimerKind,
)
from dray.broker.groups.consumer.reconciliation import reconciled, with_new_targets
from dray.broker.groups.consumer.state import (
    AWAY,
    ConsumerGroup,
    ConsumerGroupSettings,
    Member,
    MemberState,
    TopicsView,
)
from dray.broker.groups.consumer.subscription import (
    PatternChange,
    due_resolution,
    pattern_change,
    subscribed_topic_ids,
    subscribed_topics,
    topics_have_changed,
    with_patterns_in_use,
)
from dray.broker.groups.consumer.validation import (
    fault_of,
    fault_of_epoch,
    static_member,
    unknown_group,
    unknown_member,
)
from dray.kafka.protocol import ErrorCode


def on_heartbeats(
    group: ConsumerGroup | None,
    beats: Sequence[Heartbeat],
    now_ms: int,
    view: TopicsView,
    settings: ConsumerGroupSettings,
) -> ConsumerResult:
    """Heartbeats that came together, as far as `count_together` allows: what they say is taken in one after
    the other, then targets are computed once for them all, and then each of their members moves."""
    before = group
    arrivals: list[_Arrival | Refusal] = []
    effects: list[Effect] = []
    for beat in beats:
        arrival = fault_of(beat, settings) or _arrived(group, beat, view, settings)
        if isinstance(arrival, _Arrival):
            group = arrival.group
            effects += arrival.effects
            if group.patterns and (resolution := due_resolution(group, now_ms, view, settings)) is not None:
                group = replace(group, notes=group.notes._replace(resolving=True, asked_ms=now_ms))
                effects.append(resolution._replace(may_describe=beat.may_describe))
        arrivals.append(arrival)
    if group is None:
        return ConsumerResult(None, [arrival for arrival in arrivals if isinstance(arrival, Refusal)])
    if group.epoch > group.assignment_epoch and any(isinstance(one, _Arrival) for one in arrivals):
        group = with_new_targets(group, settings)
    answers: list[Answer] = []
    for beat, arrival in zip(beats, arrivals, strict=True):
        if isinstance(arrival, Refusal):
            answers.append(arrival)
            continue
        group, member = _moved(group, beat, arrival, now_ms, effects)
        effects.append(session_timer(member, now_ms, settings))
        answers.append(
            HeartbeatAnswer(
                member.member_id,
                member.epoch,
                settings.heartbeat_interval_ms,
                member.assigned if _wants_assignment(beat, arrival.found, member) else None,
            )
        )
    persist = before is None or not group.stored_alike(before)
    return ConsumerResult(group, answers, persist, tuple(effects))


def count_together(group: ConsumerGroup | None, beats: Sequence[Heartbeat]) -> int:
    """How many of these, from the first on, `on_heartbeats` may be given at once.

    They must be of different members: each is answered by where its member is after all of them. A member
    that leaves, or that takes the place of a static member, is served alone.
    """
    seen: set[str] = set()
    for count, beat in enumerate(beats):
        names = {beat.member_id or beat.fresh_member_id}
        if beat.instance_id is not None:
            names.add(f"instance {beat.instance_id}")
        takes_over = group is not None and beat.member_epoch == 0 and beat.instance_id in group.static
        if beat.member_epoch < 0 or takes_over or not seen.isdisjoint(names):
            return max(count, 1)
        seen |= names
    return len(beats)


def session_timer(member: Member, now_ms: int, settings: ConsumerGroupSettings) -> ScheduleTimer:
    return ScheduleTimer(
        TimerKind.SESSION, member.member_id, now_ms + settings.session_timeout_ms, member.epoch
    )


def rebalance_timer(member: Member, now_ms: int) -> ScheduleTimer:
    return ScheduleTimer(
        TimerKind.REBALANCE, member.member_id, now_ms + member.rebalance_timeout_ms, member.epoch
    )


class _Arrival(NamedTuple):
    """A heartbeat whose member is in the group, and has yet to move."""

    group: ConsumerGroup
    found: Member
    """The member as it was before; new, or in a static one's place, if it comes for that."""

    subscription_changed: bool
    effects: tuple[Effect, ...]


def _arrived(
    group: ConsumerGroup | None, beat: Heartbeat, view: TopicsView, settings: ConsumerGroupSettings
) -> _Arrival | Refusal:
    if group is None:
        if beat.member_epoch != 0:
            return unknown_group(beat.group_id)
        group = ConsumerGroup(beat.group_id)
    found = _find(group, beat, settings)
    if isinstance(found, Refusal):
        return found
    entry = _taken_in(group, found, beat)
    if isinstance(entry, Refusal):
        return entry
    group = _with_epoch(entry.group, entry.new_epoch, view)
    return _Arrival(group, found, entry.subscription_changed, entry.effects)


def _moved(
    group: ConsumerGroup, beat: Heartbeat, arrival: _Arrival, now_ms: int, effects: list[Effect]
) -> tuple[ConsumerGroup, Member]:
    """The member one step nearer to its target."""
    member = group.members[arrival.found.member_id]
    if not arrival.subscription_changed and member.is_reconciled_to(group.assignment_epoch):
        return group, member
    following = reconciled(
        member,
        group.assignment_epoch,
        group.owned,
        subscribed_topic_ids(group, member),
        beat.owned,
        arrival.subscription_changed,
    )
    if following is member:
        return group, member
    effects += _rebalance_timer(member, following, now_ms)
    return group.with_member(following), following


def _find(group: ConsumerGroup, beat: Heartbeat, settings: ConsumerGroupSettings) -> Member | Refusal:
    """The member that sent this: one we know, one that is new, or one that takes a static member's place."""
    if len(group.members) >= settings.largest_group and beat.member_id not in group.members:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {settings.largest_group} members, and no room"
        )
    joins = beat.member_epoch == 0
    if beat.instance_id is not None:
        if not joins:
            member = static_member(group, beat.member_id, beat.instance_id)
            return member if isinstance(member, Refusal) else fault_of_epoch(member, beat) or member
        if beat.instance_id in group.static:
            return _returning(group.members[group.static[beat.instance_id]], beat)
    if beat.member_id in group.members:
        known = group.members[beat.member_id]
        return fault_of_epoch(known, beat) or known
    if not joins:
        return unknown_member(group, beat.member_id)
    return Member(beat.member_id or beat.fresh_member_id)


def _returning(holder: Member, beat: Heartbeat) -> Member | Refusal:
    """A member that comes for the instance id of `holder` takes over all that it had, under its own member
    id."""
    if holder.epoch != AWAY:
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"member '{holder.member_id}' has the instance id '{holder.instance_id}', and has not left",
        )
    return replace(holder, member_id=beat.member_id or beat.fresh_member_id, epoch=0)


class _Entry(NamedTuple):
    group: ConsumerGroup
    new_epoch: bool
    subscription_changed: bool
    effects: tuple[Effect, ...]


def _taken_in(group: ConsumerGroup, found: Member, beat: Heartbeat) -> _Entry | Refusal:
    """The group with the member as it is by now, in the place of a static one if it comes for that."""
    known = group.members.get(found.member_id)
    member = _with_fields(found, beat, group)
    if member is known:
        return _Entry(group, False, False, ())
    change = pattern_change(group, found, member)
    fault = _fault_of_pattern(group, member, beat)
    if fault is not None:
        return fault
    effects: tuple[Effect, ...] = ()
    replaced = group.static.get(found.instance_id) if found.instance_id is not None else None
    takes_over = replaced is not None and replaced != found.member_id
    if replaced is not None and takes_over:
        group = group.without_members([group.members[replaced]])
        effects = tuple(CancelTimer(kind, replaced) for kind in TimerKind)
    group = group.with_member(member)
    names_changed = member.topic_names != found.topic_names
    new_epoch = (
        names_changed
        or change is PatternChange.RESOLVED
        # It was here under the id it takes over with: what its own target had is free now.
        or (takes_over and known is not None)
    )
    return _Entry(
        group if change is PatternChange.NONE and not takes_over else with_patterns_in_use(group),
        new_epoch,
        names_changed or change is not PatternChange.NONE,
        effects,
    )


def _fault_of_pattern(group: ConsumerGroup, member: Member, beat: Heartbeat) -> Refusal | None:
    """One that a member of the group uses has been looked at."""
    if not member.topic_regex or member.topic_regex in group.patterns:
        return None
    if not beat.regex_is_judged:
        return PATTERN_UNJUDGED
    if beat.regex_fault is None:
        return None
    return Refusal(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"'{cut(member.topic_regex)}' is no pattern: {beat.regex_fault}"
    )


def _with_fields(member: Member, beat: Heartbeat, group: ConsumerGroup) -> Member:
    """The member with what the request supplies; the same object where that is nothing new."""
    names = member.topic_names
    if beat.topic_names is not None and names != (supplied := frozenset(beat.topic_names)):
        # Members mostly ask for the same: let them share one set of names.
        names = next(
            (other.topic_names for other in group.members.values() if other.topic_names == supplied), supplied
        )
    instance_id = member.instance_id if beat.instance_id is None else beat.instance_id
    rack_id = member.rack_id if beat.rack_id is None else beat.rack_id
    regex = member.topic_regex if beat.topic_regex is None else beat.topic_regex
    assignor = member.server_assignor if beat.server_assignor is None else beat.server_assignor
    timeout = member.rebalance_timeout_ms if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms
    if (
        names is member.topic_names
        and beat.client_id == member.client_id
        and beat.client_host == member.client_host
        and timeout == member.rebalance_timeout_ms
        and instance_id == member.instance_id
        and rack_id == member.rack_id
        and regex == member.topic_regex
        and assignor == member.server_assignor
    ):
        return member
    return replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_timeout_ms=timeout,
        topic_names=names,
        topic_regex=regex,
        server_assignor=assignor,
    )


def _with_epoch(group: ConsumerGroup, subscription_changed: bool, view: TopicsView) -> ConsumerGroup:
    """The group at its next epoch if anything that targets depend on has changed."""
    new_epoch = group.epoch == 0 or subscription_changed
    if not new_epoch and group.notes.topics_version == view.version:
        return group
    notes = group.notes._replace(topics_version=view.version)
    if not new_epoch and not topics_have_changed(group, view):
        return replace(group, notes=notes)
    return replace(group, epoch=group.epoch + 1, topics=subscribed_topics(group, view), notes=notes)


def _rebalance_timer(before: Member, after: Member, now_ms: int) -> tuple[Effect, ...]:
    if after.state is MemberState.UNREVOKED:
        return (rebalance_timer(after, now_ms),)
    if before.state is MemberState.UNREVOKED:
        return (CancelTimer(TimerKind.REBALANCE, before.member_id),)
    return ()


def _wants_assignment(beat: Heartbeat, before: Member, after: Member) -> bool:
    """It joins, sent a full request (as clients do after any error), or has something new."""
    if beat.member_epoch == 0 or (
        beat.owned is not None
        and beat.rebalance_timeout_ms != -1
        and (beat.topic_names is not None or beat.topic_regex is not None)
    ):
        return True
    return before.assigned is not after.assigned and before.assigned != after.assigned
