"""JoinGroup: who gets in, who has to come again, and who merely asks once more."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dray.broker.groups.classic.events import (
    ClassicResult,
    Join,
    JoinAnswer,
    Reply,
    Result,
    SyncAnswer,
    TimerKind,
    protocols_of,
)
from dray.broker.groups.classic.rebalance import (
    Step,
    chosen_protocol,
    complete_if_everyone_joined,
    drop,
    forget_pending,
    generation_answer,
    prepare,
    rebalance,
)
from dray.broker.groups.classic.state import (
    ClassicGroup,
    ClassicGroupSettings,
    GroupState,
    Member,
    Protocol,
    size_of,
    subscribed_topics,
)
from dray.broker.groups.classic.validation import member_fault
from dray.kafka.protocol import ErrorCode

FIRST_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_VERSION_WITH_KNOWN_MEMBER_ID: Final = 4
FIRST_VERSION_WITH_SKIP_ASSIGNMENT: Final = 9


def on_join(
    group: ClassicGroup | None, join: Join, now_ms: int, settings: ClassicGroupSettings
) -> ClassicResult:
    protocols = protocols_of(join.protocols)
    if join.version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
        join = join._replace(rebalance_timeout_ms=join.session_timeout_ms)
    fault = _fault_before_group(join, protocols, settings)
    if fault is ErrorCode.NONE and group is None:
        if join.member_id:
            fault = ErrorCode.UNKNOWN_MEMBER_ID
        elif not (join.protocol_type and protocols):
            fault = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if fault is not ErrorCode.NONE:
        return Result(group, (Reply(join.token, JoinAnswer(fault, join.member_id)),))
    if group is None:
        step = Step(ClassicGroup(join.group_id, now_ms), now_ms, settings, persist=True)
    else:
        step = Step(group, now_ms, settings)
    _join(step, join, protocols)
    return step.result()


def _fault_before_group(
    join: Join, protocols: tuple[Protocol, ...], settings: ClassicGroupSettings
) -> ErrorCode:
    if not join.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if _size_of(join, join.member_id or join.fresh_member_id, protocols) > settings.largest_member_bytes:
        return ErrorCode.INVALID_REQUEST
    if not (
        settings.session_timeout_minimum_ms <= join.session_timeout_ms <= settings.session_timeout_maximum_ms
    ):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _join(step: Step, join: Join, protocols: tuple[Protocol, ...]) -> None:
    group = step.group
    if not (
        _has_room(group, join.member_id, step.settings.largest_group)
        and _fits(group, join, protocols, step.settings.largest_group_bytes)
    ):
        _turn_away(step, join)
    elif not group.supports(join.protocol_type, protocols):
        step.reply(join.token, JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
    elif not join.member_id:
        _join_newcomer(step, join, protocols)
    elif join.member_id in group.pending and join.instance_id is None:
        _add(step, join, join.member_id, protocols)
    else:
        fault = member_fault(group, join.member_id, join.instance_id)
        if fault is not ErrorCode.NONE:
            step.reply(join.token, JoinAnswer(fault, join.member_id))
        else:
            _rejoin(step, join, group.members[join.member_id], protocols)


def _has_room(group: ClassicGroup, member_id: str, largest: int) -> bool:
    """While joins are parked those who are here count, so that a group that is too large can shrink."""
    if group.state is GroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING:
        return group.parked_joins < largest or (member is not None and member.parked_join is not None)
    return len(group.members) < largest or member is not None


def _fits(group: ClassicGroup, join: Join, protocols: tuple[Protocol, ...], largest: int) -> bool:
    """Members of a round that has not ended are stored nowhere, so that the store does not refuse them."""
    before = group.members.get(join.member_id or group.static.get(join.instance_id or "", ""))
    more = _size_of(join, join.member_id or join.fresh_member_id, protocols)
    return group.size + more - (0 if before is None else before.size) <= largest


def _size_of(join: Join, member_id: str, protocols: tuple[Protocol, ...]) -> int:
    return size_of(member_id, join.instance_id, join.client_id, protocols)


def _turn_away(step: Step, join: Join) -> None:
    step.reply(join.token, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    member = step.group.members.get(join.member_id)
    if member is not None:
        drop(step, member)
    elif join.member_id in step.group.pending:
        forget_pending(step, join.member_id)
    complete_if_everyone_joined(step)


def _join_newcomer(step: Step, join: Join, protocols: tuple[Protocol, ...]) -> None:
    group = step.group
    if join.instance_id is not None:
        holder = group.static.get(join.instance_id)
        if holder is None:
            _add(step, join, join.fresh_member_id, protocols)
        else:
            _replace_static(step, join, group.members[holder], protocols)
    elif join.version >= FIRST_VERSION_WITH_KNOWN_MEMBER_ID:
        # A client whose request was lost in a timeout would otherwise leave a member behind at each attempt.
        member_id = join.fresh_member_id
        step.group = group.with_pending(member_id)
        step.schedule(TimerKind.SESSION, member_id, join.session_timeout_ms)
        step.reply(join.token, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(step, join, join.fresh_member_id, protocols)


def _add(step: Step, join: Join, member_id: str, protocols: tuple[Protocol, ...]) -> None:
    group = step.group
    member = Member(
        member_id,
        join.instance_id,
        join.client_id,
        join.client_host,
        join.session_timeout_ms,
        join.rebalance_timeout_ms,
        protocols,
        parked_join=join.token,
        is_new=True,
        size=_size_of(join, member_id, protocols),
    )
    if not group.members:
        group = replace(group, protocol_type=join.protocol_type)
    if group.leader_id is None:
        group = replace(group, leader_id=member_id)
    if group.initial_delay is not None:
        group = replace(group, initial_delay=group.initial_delay._replace(member_came=True))
    step.group = group.without_pending(member_id).with_member(member)
    step.schedule(TimerKind.SESSION, member_id, step.settings.new_member_join_timeout_ms)
    rebalance(step)


def _rejoin(step: Step, join: Join, member: Member, protocols: tuple[Protocol, ...]) -> None:
    group = step.group
    unchanged = member.protocols == protocols
    if group.state is GroupState.COMPLETING and unchanged:
        # The answer with this generation may have been lost.
        step.reply(join.token, generation_answer(group, member.member_id))
    elif group.state is GroupState.STABLE and unchanged and member.member_id != group.leader_id:
        step.reply(join.token, generation_answer(group, member.member_id))
    else:
        # A leader joins again when what it assigns has changed, such as the partitions of a topic.
        step.reply(member.parked_join, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        step.group = group.with_member(_updated(member, join, protocols))
        rebalance(step)


def _replace_static(step: Step, join: Join, before: Member, protocols: tuple[Protocol, ...]) -> None:
    """A static member has come back after a restart and does not know its id: it gets a new one.

    A client that still uses the old id is fenced.
    """
    step.reply(before.parked_join, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, before.member_id))
    step.reply(before.parked_sync, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
    step.cancel(TimerKind.SESSION, before.member_id)
    old_leader = step.group.leader_id or ""
    after = replace(
        _updated(before, join, protocols), member_id=join.fresh_member_id, parked_sync=None, is_new=False
    )
    step.group = step.group.with_replaced(before, after)
    step.start_session(after)
    if step.group.state is GroupState.COMPLETING:
        # The leader may be assigning to the old id.
        prepare(step)
    elif step.group.state is not GroupState.STABLE:
        complete_if_everyone_joined(step)
    elif chosen_protocol(step.group) != step.group.protocol_name:
        prepare(step)
    else:
        _carry_on(step, join, after, old_leader)


def _carry_on(step: Step, join: Join, member: Member, old_leader: str) -> None:
    """The generation stays as it is, with the static member in its old place under its new id."""
    group = step.group.with_member(replace(member, parked_join=None))
    step.group = replace(group, subscribed_topics=subscribed_topics(group))
    step.persist = True
    answer = generation_answer(step.group, member.member_id)
    if join.version >= FIRST_VERSION_WITH_SKIP_ASSIGNMENT:
        answer = answer._replace(skip_assignment=member.member_id == group.leader_id)
    else:
        # It must not take itself for the leader: an assignment that it made now would go nowhere.
        answer = answer._replace(leader_id=old_leader, members=())
    step.reply(join.token, answer)


def _updated(member: Member, join: Join, protocols: tuple[Protocol, ...]) -> Member:
    return replace(
        member,
        protocols=protocols,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        session_timeout_ms=join.session_timeout_ms,
        parked_join=join.token,
        size=size_of(member.member_id, member.instance_id, member.client_id, protocols),
    )
