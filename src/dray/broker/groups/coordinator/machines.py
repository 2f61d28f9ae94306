"""The two coordinators under one roof: which an event is for, and what it means to a group of the other.

A group speaks one protocol at a time. Without members it has nothing but offsets, which know no protocol, and
so becomes what its next member speaks; with members it refuses those who speak the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

from dray.broker.groups import classic, consumer
from dray.broker.groups.classic import ClassicGroup, ClassicGroupSettings
from dray.broker.groups.classic.events import Reply, Result
from dray.broker.groups.consumer import ConsumerGroup, ConsumerGroupSettings, TopicsView
from dray.broker.groups.coordinator.storage import GroupKind, GroupRecord
from dray.kafka.protocol import ErrorCode

State: TypeAlias = ClassicGroup | ConsumerGroup | None
Event: TypeAlias = classic.Event | consumer.Event
Effect: TypeAlias = classic.Effect | consumer.Effect

GROUP_STATES: Final = tuple(
    (kind, state.value)
    for kind, states in (("classic", classic.GroupState), ("consumer", consumer.GroupState))
    for state in states
    if state.value != "Dead"
)
"""Every kind and state that a group can be in, as clients name them."""

_UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


StepResult: TypeAlias = Result[State, Effect]


class Machines:
    def __init__(
        self,
        classic_settings: ClassicGroupSettings,
        consumer_settings: Callable[[str], ConsumerGroupSettings],
        view: TopicsView,
    ) -> None:
        """`consumer_settings` are those of one group, by its id."""
        self.classic_settings = classic_settings
        self.consumer_settings = consumer_settings
        self.view = view

    def step(self, state: State, event: Event, token: object | None, now_ms: int) -> StepResult:
        """`token` is that of the request. Every answer comes back with the token of its own request."""
        if isinstance(
            event,
            (consumer.Heartbeat, consumer.RemoveMembers, consumer.TimerFired, consumer.PatternsResolved),
        ):
            return self._consumer(state, event, token, now_ms)
        if isinstance(state, ConsumerGroup):
            return self._classic_to_consumer(state, event, token, now_ms)
        return classic.handle(state, event, now_ms, self.classic_settings)

    def count_together(self, state: State, beats: Sequence[consumer.Heartbeat]) -> int:
        """How many of these, from the first on, `step_together` may be given: one run of the assignor then
        serves them all."""
        return 1 if isinstance(state, ClassicGroup) else consumer.count_together(state, beats)

    def step_together(
        self, state: State, events: Sequence[Event], tokens: Sequence[object | None], now_ms: int
    ) -> StepResult:
        """One event of any kind, or as many heartbeats as `count_together` allows."""
        if len(events) == 1:
            return self.step(state, events[0], tokens[0], now_ms)
        assert not isinstance(state, ClassicGroup)
        beats = cast(Sequence[consumer.Heartbeat], events)
        settings = self.consumer_settings(beats[0].group_id)
        result = consumer.on_heartbeats(state, beats, now_ms, self.view, settings)
        return _with_tokens(result, tokens)

    def after_load(self, state: State, now_ms: int) -> StepResult:
        """The first step of a coordinator with a group that it did not make."""
        if isinstance(state, ClassicGroup):
            return classic.handle(state, classic.TakenOver(), now_ms, self.classic_settings)
        if isinstance(state, ConsumerGroup):
            timers = consumer.timers_after_load(state, now_ms, self.consumer_settings(state.group_id))
            return Result(state, effects=timers)
        return Result(None)

    def _consumer(self, state: State, event: consumer.Event, token: object | None, now_ms: int) -> StepResult:
        if isinstance(state, ClassicGroup):
            if not isinstance(event, consumer.Heartbeat):
                return Result(state)  # from before the group changed its protocol
            fault = consumer.heartbeat_to_classic_fault(
                event.group_id, event.member_epoch, is_empty=is_empty(state)
            )
            if fault is not None:
                return Result(state, (Reply(token, fault),))
            converted = self._consumer(None, event, token, now_ms)
            return converted if converted.persist else converted._replace(group=state)
        group_id = (
            event.group_id if isinstance(event, consumer.Heartbeat) else state.group_id if state else ""
        )
        settings = self.consumer_settings(group_id)
        result = consumer.handle(state, event, now_ms, self.view, settings)
        return _with_tokens(result, [token])

    def _classic_to_consumer(
        self, group: ConsumerGroup, event: classic.Event, token: object | None, now_ms: int
    ) -> StepResult:
        """Joins may convert the group. The rest is what administrators do to it, or meant for no one here."""
        answer: classic.Answer
        if isinstance(event, classic.Join):
            fault = consumer.classic_join_fault(group)
            if fault is None:
                joined: StepResult = classic.handle(None, event, now_ms, self.classic_settings)
                return joined if joined.persist else joined._replace(group=group)
            answer = classic.JoinAnswer(fault.error, event.member_id)
        elif isinstance(event, classic.Sync):
            answer = classic.SyncAnswer(_UNKNOWN_MEMBER)
        elif isinstance(event, classic.Heartbeat):
            answer = classic.ErrorAnswer(_UNKNOWN_MEMBER)
        elif isinstance(event, classic.Leave):
            removal = consumer.RemoveMembers(event.members)
            stepped = self._consumer(group, removal, token, now_ms)
            [(_, removed)] = stepped.replies
            members = tuple(
                (*member, error) for member, error in zip(event.members, removed.errors, strict=True)
            )
            return stepped._replace(replies=(Reply(token, classic.LeaveAnswer(ErrorCode.NONE, members)),))
        elif isinstance(event, classic.CommitCheck):
            refusal = consumer.commit_fault(group, event.member_id, event.generation, event.version)
            answer = classic.ErrorAnswer(ErrorCode.NONE if refusal is None else refusal.error)
        elif isinstance(event, classic.DeleteGroup):
            refusal = consumer.deletion_fault(group)
            if refusal is None:
                return Result(None, (Reply(token, classic.ErrorAnswer(ErrorCode.NONE)),), persist=True)
            answer = classic.ErrorAnswer(refusal.error)
        else:
            return Result(group)  # a timer from before the group changed its protocol
        return Result(group, (Reply(token, answer),))


def _with_tokens(result: consumer.ConsumerResult, tokens: Sequence[object | None]) -> StepResult:
    """If a request came without a token, its answer is for no one."""
    replies: list[Reply] = []
    if result.answers:
        pairs = zip(tokens, result.answers, strict=True)
        replies = [Reply(token, answer) for token, answer in pairs if token is not None]
    return Result(result.group, replies, result.persist, result.effects)


def is_empty(state: State) -> bool:
    """Whether the group has no members, and could go without being missed."""
    return state is None or not state.members


def kind_of(state: ClassicGroup | ConsumerGroup) -> str:
    """As clients name it."""
    return "classic" if isinstance(state, ClassicGroup) else "consumer"


def rounds_of(state: State) -> int:
    """How often partitions were handed out: another number after every rebalance."""
    if isinstance(state, ClassicGroup):
        return state.generation
    return 0 if state is None else state.assignment_epoch


def encode_state(state: ClassicGroup | ConsumerGroup) -> tuple[GroupKind, bytes]:
    if isinstance(state, ClassicGroup):
        return GroupKind.CLASSIC, classic.encode_group(state)
    return GroupKind.CONSUMER, consumer.encode_group(state)


def decode_state(group_id: str, record: GroupRecord | None) -> State:
    if record is None or record.kind is GroupKind.DELETED:
        return None
    if record.kind is GroupKind.CLASSIC:
        return classic.decode_group(group_id, record.body)
    return consumer.decode_group(group_id, record.body)
