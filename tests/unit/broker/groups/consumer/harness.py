"""A coordinator in a test: it keeps the state, the clock and the timers, and plays clients that behave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from dray.broker.groups.consumer import (
    Answer,
    CancelTimer,
    ConsumerGroup,
    ConsumerGroupSettings,
    ConsumerResult,
    Effect,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    PatternsResolved,
    Refusal,
    ResolvePatterns,
    ScheduleTimer,
    TimerFired,
    TimerKind,
    TopicShape,
    TopicsTable,
    count_together,
    decode_group,
    encode_group,
    handle,
    on_heartbeats,
)
from dray.kafka.protocol import ErrorCode

TOPIC_IDS = {name: UUID(int=number) for number, name in enumerate("abcdefz", start=1)}
REBALANCE_TIMEOUT_MS = 60_000


def topic(name: str) -> UUID:
    return TOPIC_IDS[name]


def parts(**topics: Iterable[int]) -> dict[UUID, frozenset[int]]:
    """`parts(a=[0, 1])`: an assignment by topic names."""
    return {topic(name): frozenset(partitions) for name, partitions in topics.items() if partitions}


def listed(assignment: Mapping[UUID, Iterable[int]]) -> list[tuple[UUID, list[int]]]:
    """An assignment as a client reports it."""
    return [(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def heartbeat(member_id: str, epoch: int, **fields: Any) -> Heartbeat:
    defaults: dict[str, Any] = {
        "group_id": "group",
        "version": 1,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "regex_is_judged": True,
    }
    return Heartbeat(member_id=member_id, member_epoch=epoch, **{**defaults, **fields})


def first_heartbeat(member_id: str, *names: str, **fields: Any) -> Heartbeat:
    """Epoch 0 with all that a first request must carry."""
    supplied = {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "topic_names": list(names) or (None if "topic_regex" in fields else ["a"]),
        "owned": [],
        **fields,
    }
    return heartbeat(member_id, 0, **supplied)


@dataclass
class Coordinator:
    topics: dict[str, int] = field(default_factory=lambda: {"a": 4})
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    group: ConsumerGroup | None = None
    now_ms: int = 1_000_000
    timers: dict[tuple[TimerKind, str], ScheduleTimer] = field(default_factory=dict)
    asked: ResolvePatterns | None = None
    writes: int = 0
    version: int = 1
    ids: dict[str, UUID] = field(default_factory=lambda: dict(TOPIC_IDS))

    def view(self) -> TopicsTable:
        return TopicsTable(
            {name: TopicShape(self.ids[name], count) for name, count in self.topics.items()}, self.version
        )

    def set_topics(self, **topics: int) -> None:
        """A topic that comes back after it was deleted is another topic."""
        for name in self.topics.keys() - topics.keys():
            self.ids[name] = UUID(int=self.ids[name].int + 1000)
        self.topics = topics
        self.version += 1

    def handle(self, event: Event) -> ConsumerResult:
        before = self.group
        result = handle(before, event, self.now_ms, self.view(), self.settings)
        if isinstance(result.answer, Refusal):
            assert result.group is before, "a refused request changed the state"
            assert not result.persist
            assert not result.effects
        if result.persist:
            assert result.group is not None
            self.writes += 1
            value = encode_group(result.group)
            assert decode_group(result.group.group_id, value) == result.group
        elif before is not None:
            assert result.group == before, "a change that is not stored"
        self._adopt(result.group, result.effects)
        return result

    def handle_together(self, beats: Sequence[Heartbeat]) -> list[Answer]:
        """Heartbeats that came at once: as many as can share a run of the assignor do."""
        answers: list[Answer] = []
        while len(answers) < len(beats):
            left = beats[len(answers) :]
            shared = left[: count_together(self.group, left)]
            if len(shared) == 1:
                answer = self.handle(shared[0]).answer
                assert answer is not None
                answers.append(answer)
                continue
            before = self.group
            result = on_heartbeats(before, shared, self.now_ms, self.view(), self.settings)
            if result.persist:
                assert result.group is not None
                self.writes += 1
                assert decode_group(result.group.group_id, encode_group(result.group)) == result.group
            else:
                assert result.group == before, "a change that is not stored"
            self._adopt(result.group, result.effects)
            answers += result.answers
        return answers

    def _adopt(self, group: ConsumerGroup | None, effects: Iterable[Effect]) -> None:
        self.group = group
        for effect in effects:
            if isinstance(effect, ScheduleTimer):
                assert effect.at_ms >= self.now_ms
                self.timers[effect.kind, effect.member_id] = effect
            elif isinstance(effect, CancelTimer):
                self.timers.pop((effect.kind, effect.member_id), None)
            else:
                assert self.asked is None, "two resolutions at once"
                self.asked = effect

    def send(self, member_id: str, epoch: int, **fields: Any) -> ConsumerResult:
        return self.handle(heartbeat(member_id, epoch, **fields))

    def join(self, member_id: str, *names: str, **fields: Any) -> HeartbeatAnswer:
        """Epoch 0 with all that a first request must carry."""
        return self.accepted(self.try_join(member_id, *names, **fields))

    def try_join(self, member_id: str, *names: str, **fields: Any) -> ConsumerResult:
        return self.handle(first_heartbeat(member_id, *names, **fields))

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        return self.accepted(self.send(member_id, epoch, **fields))

    def refused(self, result: ConsumerResult) -> ErrorCode:
        assert isinstance(result.answer, Refusal), result.answer
        assert result.answer.message
        return result.answer.error

    def accepted(self, result: ConsumerResult) -> HeartbeatAnswer:
        assert isinstance(result.answer, HeartbeatAnswer), result.answer
        return result.answer

    def expire(self, kind: TimerKind, member_id: str) -> ConsumerResult:
        """The member's timer runs out."""
        timer = self.timers.pop((kind, member_id))
        self.now_ms = max(self.now_ms, timer.at_ms)
        return self.handle(TimerFired(timer.kind, timer.member_id, timer.member_epoch))

    def resolve(self, **matching: Iterable[str]) -> ConsumerResult:
        """Answer the outstanding question; patterns are given by what they match, `ab` for `[ab]`."""
        assert self.asked is not None
        names = {pattern: frozenset(matching.get(pattern.strip("[]"), ())) for pattern in self.asked.patterns}
        self.asked = None
        return self.handle(PatternsResolved(names, self.version))

    @property
    def state(self) -> ConsumerGroup:
        assert self.group is not None
        return self.group
