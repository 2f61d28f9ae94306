"""The coordinator of a classic group as a function: state and event in, next state and replies out.

The rules for the caller:

- The state of a result is the group's state from then on. When the result says `persist`, it is stored first;
  replies and effects come after. When storing fails, the old state still holds, nothing has happened, and the
  request that the event was made of is answered by the caller.
- One event at a time.
- A timer that was scheduled anew or cancelled never fires.
- After loading a group that another coordinator stored, `TakenOver` comes first.
- A coordinator that gives a group up answers what is parked: `abandoned`.

Stored are new groups, settled generations, assignments, new ids of static members, and that a group is empty:
all that a member has seen in an answer and may act upon. A rebalance that has only begun is not: if its
coordinator dies, the next one finds the last generation, whose members go on in it or join again, and new
members start anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from dray.broker.groups.classic.events import (
    CancelTimer,
    ClassicResult,
    CommitCheck,
    DeleteGroup,
    ErrorAnswer,
    Event,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Reply,
    Result,
    ScheduleTimer,
    Sync,
    SyncAnswer,
    TimerFired,
    TimerKind,
)
from dray.broker.groups.classic.join import on_join
from dray.broker.groups.classic.rebalance import (
    GROUP_WIDE,
    Step,
    drop,
    forget_pending,
    on_join_timer,
    on_session_timer,
    on_sync_timer,
    prepare,
    rebalance,
)
from dray.broker.groups.classic.state import (
    CONSUMER_PROTOCOL_TYPE,
    NO_ASSIGNMENT,
    ClassicGroup,
    ClassicGroupSettings,
    GroupState,
    Member,
)
from dray.broker.groups.classic.validation import commit_fault, deletion_fault, generation_fault, member_fault
from dray.broker.groups.offsets import ExpiryRule
from dray.kafka.protocol import ErrorCode

_GOOD = ErrorAnswer(ErrorCode.NONE)


def handle(
    group: ClassicGroup | None, event: Event, now_ms: int, settings: ClassicGroupSettings
) -> ClassicResult:
    if isinstance(event, Heartbeat):
        return _on_heartbeat(group, event, now_ms)
    if isinstance(event, CommitCheck):
        return _on_commit(group, event, now_ms)
    if isinstance(event, Join):
        return on_join(group, event, now_ms, settings)
    if isinstance(event, Sync):
        return _on_sync(group, event, now_ms, settings)
    if isinstance(event, Leave):
        return _on_leave(group, event, now_ms, settings)
    if isinstance(event, DeleteGroup):
        return _on_delete(group, event)
    if group is None:
        return Result(None)
    step = Step(group, now_ms, settings)
    if isinstance(event, TimerFired):
        _on_timer(step, event)
    else:
        _on_takeover(step)
    return step.result()


def abandoned(group: ClassicGroup, error: ErrorCode) -> tuple[Reply, ...]:
    """An answer for everything that is parked, by a coordinator that is none any more."""
    members = group.members.values()
    joins = [
        Reply(member.parked_join, JoinAnswer(error, member.member_id))
        for member in members
        if member.parked_join is not None
    ]
    syncs = [
        Reply(member.parked_sync, SyncAnswer(error)) for member in members if member.parked_sync is not None
    ]
    return *joins, *syncs


def _on_heartbeat(group: ClassicGroup | None, beat: Heartbeat, now_ms: int) -> ClassicResult:
    if not beat.group_id:
        fault = ErrorCode.INVALID_GROUP_ID
    elif group is None:
        fault = ErrorCode.UNKNOWN_MEMBER_ID
    else:
        fault = generation_fault(group, beat.member_id, beat.instance_id, beat.generation)
        if fault is ErrorCode.NONE:
            session = _session_timer(group.members[beat.member_id], now_ms)
            verdict = (
                ErrorAnswer(ErrorCode.REBALANCE_IN_PROGRESS) if group.state is GroupState.PREPARING else _GOOD
            )
            return Result(group, (Reply(beat.token, verdict),), effects=(session,))
    return Result(group, (Reply(beat.token, ErrorAnswer(fault)),))


def _on_commit(group: ClassicGroup | None, commit: CommitCheck, now_ms: int) -> ClassicResult:
    fault = commit_fault(group, commit)
    reply = Reply(commit.token, ErrorAnswer(fault))
    if fault is not ErrorCode.NONE:
        return Result(group, (reply,))
    if group is None:
        # Only offsets, no members: a simple group.
        return Result(ClassicGroup(commit.group_id, now_ms), (reply,), persist=True)
    member = group.members.get(commit.member_id)
    return Result(group, (reply,), effects=() if member is None else (_session_timer(member, now_ms),))


def _on_sync(
    group: ClassicGroup | None, sync: Sync, now_ms: int, settings: ClassicGroupSettings
) -> ClassicResult:
    fault = _sync_fault(group, sync)
    if fault is not ErrorCode.NONE or group is None:
        return Result(group, (Reply(sync.token, SyncAnswer(fault)),))
    step = Step(group, now_ms, settings)
    member = group.members[sync.member_id]
    if member.owes_sync and group.owed_syncs == 1:
        step.cancel(TimerKind.SYNC)
    if group.state is GroupState.STABLE:
        step.group = group.with_member(replace(member, owes_sync=False)) if member.owes_sync else group
        step.reply(sync.token, _assignment_answer(group, member))
    else:
        step.reply(member.parked_sync, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        step.group = group.with_member(replace(member, parked_sync=sync.token, owes_sync=False))
        if member.member_id == group.leader_id:
            _assign(step, sync)
    return step.result()


def _sync_fault(group: ClassicGroup | None, sync: Sync) -> ErrorCode:
    if not sync.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    fault = generation_fault(group, sync.member_id, sync.instance_id, sync.generation)
    if fault is not ErrorCode.NONE:
        return fault
    if sync.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE


def _assign(step: Step, sync: Sync) -> None:
    """The leader has spoken: everyone gets what it said, or nothing where it said nothing."""
    assignments = dict(sync.assignments)
    group = step.group.with_members(
        replace(member, assignment=assignments.get(member.member_id, NO_ASSIGNMENT))
        for member in step.group.members.values()
    )
    for member in group.members.values():
        if member.parked_sync is not None:
            step.reply(member.parked_sync, _assignment_answer(group, member))
            step.start_session(member)
    step.group = group.with_members(replace(member, parked_sync=None) for member in group.members.values())
    step.enter(GroupState.STABLE)
    step.persist = True


def _assignment_answer(group: ClassicGroup, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _on_leave(
    group: ClassicGroup | None, leave: Leave, now_ms: int, settings: ClassicGroupSettings
) -> ClassicResult:
    if not leave.group_id:
        return Result(group, (Reply(leave.token, LeaveAnswer(ErrorCode.INVALID_GROUP_ID)),))
    if group is None:
        answers = [(*member, ErrorCode.UNKNOWN_MEMBER_ID) for member in leave.members]
        return Result(None, (Reply(leave.token, LeaveAnswer(ErrorCode.NONE, tuple(answers))),))
    step = Step(group, now_ms, settings)
    answers = [(*member, _leave(step, *member)) for member in leave.members]
    step.reply(leave.token, LeaveAnswer(ErrorCode.NONE, tuple(answers)))
    if group.state is not GroupState.EMPTY and any(error is ErrorCode.NONE for _, _, error in answers):
        rebalance(step)
    return step.result()


def _leave(step: Step, member_id: str, instance_id: str | None) -> ErrorCode:
    group = step.group
    if not member_id and instance_id is not None:
        member_id = group.static.get(instance_id, member_id)
    if member_id in group.pending:
        forget_pending(step, member_id)
        return ErrorCode.NONE
    fault = member_fault(group, member_id, instance_id)
    if fault is ErrorCode.NONE:
        drop(step, group.members[member_id])
    return fault


def _on_delete(group: ClassicGroup | None, delete: DeleteGroup) -> ClassicResult:
    fault = deletion_fault(group)
    reply = Reply(delete.token, ErrorAnswer(fault))
    if fault is not ErrorCode.NONE or group is None:
        return Result(group, (reply,))
    cancelled = tuple(CancelTimer(TimerKind.SESSION, member_id) for member_id in sorted(group.pending))
    return Result(None, (reply,), persist=True, effects=cancelled)


def _on_timer(step: Step, timer: TimerFired) -> None:
    if timer.kind is TimerKind.SESSION:
        on_session_timer(step, timer.member_id)
    elif timer.kind is TimerKind.JOIN:
        on_join_timer(step)
    else:
        on_sync_timer(step)


def _on_takeover(step: Step) -> None:
    """Every member gets a whole session, every phase its whole time: how much was left is not known."""
    group = step.group
    for member in group.members.values():
        step.start_session(member)
    if group.state is GroupState.PREPARING:
        step.schedule(TimerKind.JOIN, GROUP_WIDE, group.rebalance_timeout_ms)
    elif len(group.members) > step.settings.largest_group:
        prepare(step)
    elif group.owed_syncs:
        step.schedule(TimerKind.SYNC, GROUP_WIDE, group.rebalance_timeout_ms)


def _session_timer(member: Member, now_ms: int) -> ScheduleTimer:
    return ScheduleTimer(TimerKind.SESSION, member.member_id, now_ms + member.session_timeout_ms)


# --- when offsets and groups expire


def expiry_rule(group: ClassicGroup) -> ExpiryRule | None:
    """None while nothing may expire."""
    if group.protocol_type is None:
        return ExpiryRule(None, group.is_subscribed_to)  # a simple group: it never had members
    if group.state is GroupState.EMPTY:
        return ExpiryRule(group.since_ms, group.is_subscribed_to)
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ExpiryRule(None, group.is_subscribed_to)
    return None


def may_go(group: ClassicGroup) -> bool:
    """Whether a group whose last offset has expired is of no more use to anyone."""
    return group.state is GroupState.EMPTY and not group.pending


# --- as DescribeGroups and ListGroups show it

GROUP_TYPE: Final = "classic"
"""As ListGroups says it; clients show it as "Classic" and filter by it in any case."""

FIRST_DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6


class ClassicMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicGroupDescription(NamedTuple):
    error: ErrorCode
    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[ClassicMemberDescription, ...] = ()


class ClassicGroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str = GROUP_TYPE


def description_of(group: ClassicGroup) -> ClassicGroupDescription:
    """Only a stable group has settled what its protocol and its members' metadata are."""
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return ClassicGroupDescription(
        ErrorCode.NONE,
        group.group_id,
        group.state,
        group.protocol_type or "",
        protocol_name or "",
        tuple(_member(group.members[member_id], protocol_name) for member_id in sorted(group.members)),
    )


def description_of_none(group_id: str, version: int) -> ClassicGroupDescription:
    """Of a group that does not exist: older clients know no error for that."""
    known = version >= FIRST_DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND
    error = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.NONE
    return ClassicGroupDescription(error, group_id, GroupState.DEAD)


def listing_of(group: ClassicGroup) -> ClassicGroupListing:
    return ClassicGroupListing(group.group_id, group.protocol_type or "", group.state)


def _member(member: Member, protocol_name: str | None) -> ClassicMemberDescription:
    return ClassicMemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol_name) or b"",
        member.assignment,
    )
