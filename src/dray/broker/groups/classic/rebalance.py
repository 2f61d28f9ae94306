"""The rounds of a group: for which members to wait, when a generation is settled, and which members drop out.

Empty --------> Preparing --> Completing --> Stable
  ^   a member   |     ^   all are here,  |    |    the leader has
  |     joins    |     |   or time is up  |    |    sent assignments
  +--------------+     +------------------+----+
   no member is left     a member came, left, or changed
"""

from __future__ import annotations

from dataclasses import replace

from dray.broker.groups.classic.events import (
    Answer,
    CancelTimer,
    ClassicResult,
    Effect,
    JoinAnswer,
    JoinedMember,
    Reply,
    Result,
    ScheduleTimer,
    SyncAnswer,
    TimerKind,
)
from dray.broker.groups.classic.state import (
    NO_ASSIGNMENT,
    ClassicGroup,
    ClassicGroupSettings,
    GroupState,
    InitialDelay,
    Member,
    Token,
    subscribed_topics,
)
from dray.kafka.protocol import ErrorCode

GROUP_WIDE = ""


class Step:
    """One event being worked on: the state so far, and what goes out with it. It lives for one `handle`."""

    __slots__ = ("_effects", "_replies", "group", "now_ms", "persist", "settings")

    def __init__(
        self, group: ClassicGroup, now_ms: int, settings: ClassicGroupSettings, persist: bool = False
    ) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self.persist = persist
        self._replies: list[Reply] = []
        self._effects: list[Effect] = []

    def enter(self, state: GroupState) -> None:
        self.group = replace(self.group, state=state, since_ms=self.now_ms)

    def reply(self, token: Token | None, answer: Answer) -> None:
        """Without effect where no request is parked."""
        if token is not None:
            self._replies.append(Reply(token, answer))

    def schedule(self, kind: TimerKind, member_id: str, after_ms: int) -> None:
        self._effects.append(ScheduleTimer(kind, member_id, self.now_ms + after_ms))

    def cancel(self, kind: TimerKind, member_id: str = GROUP_WIDE) -> None:
        self._effects.append(CancelTimer(kind, member_id))

    def start_session(self, member: Member) -> None:
        self.schedule(TimerKind.SESSION, member.member_id, member.session_timeout_ms)

    def result(self) -> ClassicResult:
        return Result(self.group, tuple(self._replies), self.persist, tuple(self._effects))


# --- voting


def chosen_protocol(group: ClassicGroup) -> str:
    """Each member votes for its first choice among those that all know; most votes win.

    Kafka counts votes in a Java hash map and takes the first that has most, in that map's order. Names alone
    decide that order, so a tie can be broken here as it is there.
    """
    everyone = len(group.members)
    votes: dict[str, int] = {}
    for member in group.members.values():
        for protocol in member.protocols:
            if group.support[protocol.name] == everyone:
                votes[protocol.name] = votes.get(protocol.name, 0) + 1
                break
    assert sum(votes.values()) == everyone, "a member joined that has no protocol in common with the others"
    most = max(votes.values())
    tied = [name for name, count in votes.items() if count == most]
    if len(tied) == 1:
        return tied[0]
    buckets = 16
    while len(votes) > buckets * 3 // 4:
        buckets *= 2
    return min(tied, key=lambda name: _java_bucket(name, buckets))


def _java_bucket(name: str, buckets: int) -> int:
    code = 0
    units = name.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return (code ^ code >> 16) & buckets - 1


_LAST_GENERATION = 2**31 - 1


# --- rounds


def rebalance(step: Step) -> None:
    """The members have changed: a new round, or one step further in the one that is running."""
    if step.group.state is GroupState.PREPARING:
        complete_if_everyone_joined(step)
    else:
        prepare(step)


def prepare(step: Step) -> None:
    """Have all members join again."""
    founding = step.group.state is GroupState.EMPTY
    _call_off_syncs(step)
    step.enter(GroupState.PREPARING)
    if founding:
        # The first of perhaps many that start together: wait for the others.
        delay = step.settings.initial_rebalance_delay_ms
        remaining = max(step.group.rebalance_timeout_ms - delay, 0)
        step.group = replace(step.group, initial_delay=InitialDelay(delay, remaining, member_came=False))
        step.schedule(TimerKind.JOIN, GROUP_WIDE, delay)
    elif step.group.has_everyone_joined:
        _complete(step)
    else:
        step.schedule(TimerKind.JOIN, GROUP_WIDE, step.group.rebalance_timeout_ms)


def complete_if_everyone_joined(step: Step) -> None:
    group = step.group
    if group.state is GroupState.PREPARING and group.initial_delay is None and group.has_everyone_joined:
        _complete(step)


def on_join_timer(step: Step) -> None:
    group = step.group
    if group.state is not GroupState.PREPARING:
        return
    initial = group.initial_delay
    if initial is not None and initial.member_came and initial.remaining_ms:
        delay = min(step.settings.initial_rebalance_delay_ms, initial.remaining_ms)
        remaining = max(initial.remaining_ms - initial.delay_ms, 0)
        step.group = replace(group, initial_delay=InitialDelay(delay, remaining, member_came=False))
        step.schedule(TimerKind.JOIN, GROUP_WIDE, delay)
    else:
        _complete(step)


def on_sync_timer(step: Step) -> None:
    """A member that has not asked for its assignment by now is not coming."""
    if not step.group.owed_syncs:
        return
    for member in list(step.group.members.values()):
        if member.owes_sync:
            drop(step, member)
    prepare(step)


def on_session_timer(step: Step, member_id: str) -> None:
    group = step.group
    if member_id in group.pending:
        forget_pending(step, member_id)
        complete_if_everyone_joined(step)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if not member.is_new and (member.parked_join is not None or member.parked_sync is not None):
        # It waits for us, not we for it; it cannot send heartbeats meanwhile.
        step.start_session(member)
        return
    drop(step, member)
    rebalance(step)


def drop(step: Step, member: Member) -> None:
    """Take a member out. A client that is still there learns that it must start anew."""
    step.reply(member.parked_join, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, ""))
    step.reply(member.parked_sync, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    step.cancel(TimerKind.SESSION, member.member_id)
    step.group = step.group.without_member(member)


def forget_pending(step: Step, member_id: str) -> None:
    step.cancel(TimerKind.SESSION, member_id)
    step.group = step.group.without_pending(member_id)


def generation_answer(group: ClassicGroup, member_id: str) -> JoinAnswer:
    """The answer to a member of the present generation."""
    members: tuple[JoinedMember, ...] = ()
    if member_id == group.leader_id:
        members = tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name) or b"")
            for member in group.members.values()
        )
    return JoinAnswer(
        ErrorCode.NONE,
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        skip_assignment=False,
        members=members,
    )


def _complete(step: Step) -> None:
    """Settle the next generation out of those who are here, if anyone is."""
    step.cancel(TimerKind.JOIN)
    for member in list(step.group.members.values()):
        if member.parked_join is None and member.instance_id is None:
            drop(step, member)
    group = step.group
    if group.members and not group.parked_joins:
        # Only static members are left, and none is here: wait for one, or for their sessions to end.
        step.schedule(TimerKind.JOIN, GROUP_WIDE, group.rebalance_timeout_ms)
        return
    generation = 0 if group.generation == _LAST_GENERATION else group.generation + 1
    step.group = replace(group, generation=generation, initial_delay=None)
    step.persist = True
    if group.members:
        _settle_generation(step)
    else:
        step.group = replace(step.group, protocol_name=None)
        step.group = replace(step.group, subscribed_topics=subscribed_topics(step.group))
        step.enter(GroupState.EMPTY)


def _settle_generation(step: Step) -> None:
    group = replace(step.group, leader_id=_elected(step.group), protocol_name=chosen_protocol(step.group))
    group = replace(group, subscribed_topics=subscribed_topics(group))
    for member in group.members.values():
        step.reply(member.parked_join, generation_answer(group, member.member_id))
        step.start_session(member)
    step.group = group.with_members(
        replace(member, parked_join=None, is_new=False, owes_sync=True) for member in group.members.values()
    )
    step.enter(GroupState.COMPLETING)
    step.schedule(TimerKind.SYNC, GROUP_WIDE, group.rebalance_timeout_ms)


def _elected(group: ClassicGroup) -> str:
    """The leader stays, if it is here; else the first who is."""
    if group.leader_id is not None and group.members[group.leader_id].parked_join is not None:
        return group.leader_id
    return next(member.member_id for member in group.members.values() if member.parked_join is not None)


def _call_off_syncs(step: Step) -> None:
    """No member gets an assignment of this generation any more."""
    group = step.group
    step.cancel(TimerKind.SYNC)
    if group.state is GroupState.COMPLETING:
        for member in group.members.values():
            if member.parked_sync is not None:
                step.reply(member.parked_sync, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
                step.start_session(member)
        step.group = group.with_members(
            replace(member, parked_sync=None, owes_sync=False, assignment=NO_ASSIGNMENT)
            for member in group.members.values()
        )
    elif group.owed_syncs:
        step.group = group.with_members(replace(member, owes_sync=False) for member in group.members.values())
