"""A coordinator in a test: it keeps state, clock, timers and store, and checks what always holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dray.broker.groups.classic import (
    Answer,
    CancelTimer,
    ClassicGroup,
    ClassicGroupSettings,
    ClassicResult,
    CommitCheck,
    DeleteGroup,
    ErrorAnswer,
    Event,
    GroupState,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Member,
    ScheduleTimer,
    Sync,
    SyncAnswer,
    TakenOver,
    TimerFired,
    TimerKind,
    abandoned,
    decode_group,
    encode_group,
    handle,
)
from dray.broker.groups.classic.events import Result
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000

AnswerType = TypeVar("AnswerType", JoinAnswer, SyncAnswer, LeaveAnswer, ErrorAnswer)


def subscription(*topics: str, version: int = 1) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + b"".join(bytes(part) for part in message.encode(min(version, 3)))


def protocols(*names: str, topics: Sequence[str] = ("orders",)) -> list[tuple[str, bytes]]:
    return [(name, subscription(*topics)) for name in names or ("range",)]


@dataclass
class Coordinator:
    settings: ClassicGroupSettings = field(default_factory=ClassicGroupSettings)
    group: ClassicGroup | None = None
    now_ms: int = 1_000_000
    timers: dict[tuple[TimerKind, str], int] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    stored: bytes | None = None
    writes: int = 0
    last: ClassicResult = field(default_factory=lambda: Result(None))
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    # What is there

    @property
    def there(self) -> ClassicGroup:
        assert self.group is not None, "there is no group"
        return self.group

    @property
    def state(self) -> GroupState:
        return GroupState.DEAD if self.group is None else self.group.state

    def member(self, member_id: str) -> Member:
        return self.there.members[member_id]

    def answer(self, token: int, kind: type[AnswerType]) -> AnswerType:
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer

    def joined(self, token: int) -> JoinAnswer:
        return self.answer(token, JoinAnswer)

    def is_parked(self, *tokens: int) -> bool:
        return all(token in self.asked and token not in self.answers for token in tokens)

    # What happens

    def handle(self, event: Event) -> ClassicResult:
        before = self.group
        result = handle(before, event, self.now_ms, self.settings)
        if result.persist:
            self.writes += 1
            self.stored = None if result.group is None else encode_group(result.group)
        else:
            assert (result.group is None) == (before is None), "a group came or went, and is not stored"
        self.group, self.last = result.group, result
        for effect in result.effects:
            key = (effect.kind, effect.member_id)
            if isinstance(effect, ScheduleTimer):
                self.timers[key] = effect.at_ms
            else:
                assert isinstance(effect, CancelTimer)
                self.timers.pop(key, None)
        for reply in result.replies:
            self._answered(reply.token, reply.answer)
        self.check(before)
        return result

    def _answered(self, token: object, answer: Answer) -> None:
        assert isinstance(token, int)
        assert token in self.asked, "an answer to no request"
        assert token not in self.answers, "a request was answered twice"
        self.answers[token] = answer

    def _token(self) -> int:
        token = next(self.numbers)
        self.asked.add(token)
        return token

    def fresh_id(self, prefix: str = "client") -> str:
        return f"{prefix}-{next(self.numbers):036}"

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 7,
        instance_id: str | None = None,
        using: Iterable[tuple[str, bytes]] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group_id: str = GROUP,
    ) -> int:
        token = self._token()
        self.handle(
            Join(
                token,
                group_id,
                member_id,
                version,
                session_ms,
                rebalance_ms,
                protocol_type,
                protocols() if using is None else list(using),
                instance_id,
                "client",
                "/127.0.0.1",
                "" if member_id else self.fresh_id(instance_id or "client"),
            )
        )
        return token

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Sequence[tuple[str, bytes]] = (),
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group_id: str = GROUP,
    ) -> int:
        token = self._token()
        asked = self.there.generation if generation is None else generation
        self.handle(
            Sync(token, group_id, member_id, asked, instance_id, protocol_type, protocol_name, assignments)
        )
        return token

    def beat(
        self,
        member_id: str,
        generation: int | None = None,
        instance_id: str | None = None,
        group_id: str = GROUP,
    ) -> ErrorCode:
        token = self._token()
        asked = self.there.generation if generation is None else generation
        self.handle(Heartbeat(token, group_id, member_id, asked, instance_id))
        return self.answer(token, ErrorAnswer).error

    def leave(self, *members: str | tuple[str, str | None], group_id: str = GROUP) -> list[ErrorCode]:
        token = self._token()
        named = [(member, None) if isinstance(member, str) else member for member in members]
        self.handle(Leave(token, group_id, named))
        answer = self.answer(token, LeaveAnswer)
        if answer.error is not ErrorCode.NONE:
            return [answer.error]
        assert [(member_id, instance_id) for member_id, instance_id, _ in answer.members] == named
        return [error for _, _, error in answer.members]

    def commit(
        self, member_id: str = "", generation: int = -1, instance_id: str | None = None, version: int = 8
    ) -> ErrorCode:
        token = self._token()
        self.handle(CommitCheck(token, GROUP, member_id, generation, version, instance_id))
        return self.answer(token, ErrorAnswer).error

    def delete(self) -> ErrorCode:
        token = self._token()
        self.handle(DeleteGroup(token))
        return self.answer(token, ErrorAnswer).error

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and every timer fire that runs out on the way."""
        end = self.now_ms + milliseconds
        while self.timers:
            (kind, member_id), at = min(self.timers.items(), key=lambda timer: timer[1])
            if at > end:
                break
            del self.timers[kind, member_id]
            self.now_ms = max(self.now_ms, at)
            self.handle(TimerFired(kind, member_id))
        self.now_ms = end

    def take_over(self) -> None:
        """The coordinator dies, and another one loads what is stored."""
        if self.group is not None:
            for reply in abandoned(self.group, ErrorCode.NOT_COORDINATOR):
                self._answered(reply.token, reply.answer)
        assert self.answers.keys() == self.asked, "a parked request was forgotten"
        self.timers.clear()
        self.group = None if self.stored is None else decode_group(GROUP, self.stored)
        if self.group is not None:
            self.handle(TakenOver())

    # Shortcuts to a state

    def enrol(self, *instances: str | None, **how: object) -> list[str]:
        """Members that joined an empty group together. The generation is settled, and the first one leads."""
        tokens = [
            self.join(version=7 if instance is not None else 3, instance_id=instance, **how)  # type: ignore[arg-type]
            for instance in instances
        ]
        while self.state is GroupState.PREPARING:
            self.advance(DELAY_MS)
        members = [self.joined(token).member_id for token in tokens]
        assert self.state is GroupState.COMPLETING
        assert self.there.leader_id == members[0]
        return members

    def settle(self, *instances: str | None, **how: object) -> list[str]:
        """Members of a stable group; each has its number as its assignment."""
        members = self.enrol(*instances, **how)
        assignments = [(member, b"%d" % number) for number, member in enumerate(members)]
        for number, member in enumerate(members):
            token = self.sync(member, assignments=assignments if number == 0 else ())
            assert self.answer(token, SyncAnswer).assignment == b"%d" % number
        assert self.state is GroupState.STABLE
        return members

    # What always holds

    def check(self, before: ClassicGroup | None) -> None:
        group = self.group
        if group is None:
            assert not self.timers
            return
        if before is not None:
            assert group.generation >= before.generation, "a generation went back"
        assert group == group.with_members(group.members.values()), "a count is not what is counted"
        assert group.size == group.with_members(group.members.values()).size, "a size is not what is there"
        assert (group.leader_id in group.members) == bool(group.members), "a group has one leader"
        assert not group.pending & group.members.keys()
        sessions = {member_id for kind, member_id in self.timers if kind is TimerKind.SESSION}
        assert sessions == group.members.keys() | group.pending, "a member and its session go together"
        assert (TimerKind.JOIN, "") in self.timers or group.state is not GroupState.PREPARING
        assert (TimerKind.JOIN, "") not in self.timers or group.state is GroupState.PREPARING
        assert ((TimerKind.SYNC, "") in self.timers) == bool(group.owed_syncs)
        parked = {token for token in self.asked if token not in self.answers}
        kept = set()
        for member in group.members.values():
            kept |= {member.parked_join, member.parked_sync} - {None}
            assert member.parked_join is None or group.state is GroupState.PREPARING
            assert member.parked_sync is None or group.state is GroupState.COMPLETING
            assert not member.is_new or group.state is GroupState.PREPARING
            assert not member.owes_sync or group.state in (GroupState.COMPLETING, GroupState.STABLE)
        assert parked == kept, "a request is neither parked nor answered"
        if group.state is GroupState.EMPTY:
            assert not group.members
        assert group.initial_delay is None or group.state is GroupState.PREPARING
