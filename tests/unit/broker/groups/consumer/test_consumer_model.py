"""Random members, against the promises of the protocol.

Clients here behave as KIP-848 clients do, at random speed: they hold what they were told, give up what is no
longer in an answer only when they get to it, lose answers, crash, come back. What each really holds is kept
beside the coordinator, and no partition is ever held twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.broker.groups.consumer.harness import Coordinator, heartbeat, listed

from dray.broker.groups.consumer import (
    Answer,
    ConsumerGroup,
    ConsumerGroupSettings,
    GroupState,
    Heartbeat,
    HeartbeatAnswer,
    PatternsResolved,
    Refusal,
    ScheduleTimer,
    TimerKind,
    decode_group,
    encode_group,
    timers_after_load,
)
from dray.kafka.protocol import ErrorCode

NAMES = "abcd"
PATTERNS = {"[ab]": "ab", "[bcd]": "bcd", "[a-d]": "abcd"}

Held = dict[UUID, frozenset[int]]

subscriptions = st.sampled_from([("a", "b")] * 4 + [("a",), ("b",), ("c",), ("a", "d"), ("a", "b", "c"), ()])
"""Mostly the same, so that members have something to share."""


class Manner(Enum):
    """How a client sends a heartbeat."""

    PROMPT = "having let go of what it must, and saying so"
    BUSY = "having let go of nothing, and not saying what it holds"
    BUSY_AND_OPEN = "having let go of nothing, and saying what it holds"
    UNHEARD = "and the answer is lost"


@dataclass
class Client:
    member_id: str
    names: tuple[str, ...]
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    holds: Held = field(default_factory=dict)
    told: Held = field(default_factory=dict)
    must_say_all: bool = True
    """After joining and after a lost answer, the next request is a full one."""

    reported: Held | None = None
    """What it last said it holds since it was told: it says so again when that has changed."""

    def give_up(self) -> None:
        """Drop what it was told to drop."""
        self.holds = {
            topic_id: kept
            for topic_id, held in self.holds.items()
            if (kept := held & self.told.get(topic_id, frozenset()))
        }

    def hear(self, answer: HeartbeatAnswer) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = dict(answer.assignment)
            self.reported = None
            for topic_id, partitions in answer.assignment.items():
                self.holds[topic_id] = self.holds.get(topic_id, frozenset()) | partitions

    def forget(self) -> None:
        self.epoch = 0
        self.holds, self.told = {}, {}
        self.must_say_all = True


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(
            topics={"a": 3, "b": 2},
            settings=ConsumerGroupSettings(
                largest_group=5, regex_refresh_pause_ms=1, regex_refresh_interval_ms=500
            ),
        )
        self.clients: list[Client] = []
        self.ids = 0
        self.highest: dict[str, int] = {}
        self.highest_group_epoch = 0

    # What clients do

    def fresh_id(self) -> str:
        self.ids += 1
        return f"m{self.ids}"

    def request(self, client: Client, *, answer_lost: bool = False) -> None:
        self.coordinator.now_ms += 1
        result = self.coordinator.handle(self.said(client))
        self.watch_epochs()
        self.heard(client, result.answer, answer_lost)

    def said(self, client: Client) -> Heartbeat:
        """The heartbeat of a client that has let go of what it must."""
        fields: dict[str, Any] = {"instance_id": client.instance_id}
        if client.must_say_all or client.epoch == 0:
            fields |= {
                "rebalance_timeout_ms": 60_000,
                "topic_names": list(client.names),
                "topic_regex": client.regex,
                "server_assignor": client.assignor,
                "owned": listed(client.holds),
            }
        else:
            client.give_up()
            if client.holds != client.reported:
                fields["owned"] = listed(client.holds)
        if fields.get("owned") is not None:
            client.reported = dict(client.holds)
        return heartbeat(client.member_id, client.epoch, **fields)

    def heard(self, client: Client, answer: Answer | None, answer_lost: bool = False) -> None:
        if answer_lost:
            client.must_say_all = True
        elif isinstance(answer, Refusal):
            assert answer.error in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
            client.forget()  # what a client does when it is fenced
        else:
            assert isinstance(answer, HeartbeatAnswer)
            client.must_say_all = False
            client.hear(answer)

    def watch_epochs(self) -> None:
        group = self.coordinator.group
        if group is None:
            return
        assert group.epoch >= self.highest_group_epoch
        assert group.assignment_epoch <= group.epoch
        self.highest_group_epoch = group.epoch
        for member in group.members.values():
            if member.epoch >= 0:
                assert member.epoch >= self.highest.get(member.member_id, 0)
                self.highest[member.member_id] = member.epoch
            assert member.epoch <= group.assignment_epoch

    @precondition(lambda self: len(self.clients) < 6)
    @rule(
        names=subscriptions,
        regex=st.sampled_from([None, None, *sorted(PATTERNS)]),
        instance=st.sampled_from([None, None, "i1", "i2"]),
        assignor=st.sampled_from([None, None, "uniform", "range"]),
    )
    def arrives(
        self, names: tuple[str, ...], regex: str | None, instance: str | None, assignor: str | None
    ) -> None:
        client = Client(self.fresh_id(), names, regex, instance, assignor)
        self.clients.append(client)
        self.request(client)

    @precondition(lambda self: self.clients)
    @rule(beats=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(Manner)), min_size=1, max_size=10))
    def heartbeats(self, beats: list[tuple[int, Manner]]) -> None:
        for number, manner in beats:
            client = self.clients[number % len(self.clients)]
            if manner is Manner.BUSY or manner is Manner.BUSY_AND_OPEN:
                self.beat_before_giving_up(client, says_what_it_holds=manner is Manner.BUSY_AND_OPEN)
            else:
                self.request(client, answer_lost=manner is Manner.UNHEARD)
            self.no_partition_is_held_twice()

    @precondition(lambda self: self.clients)
    @rule(
        senders=st.lists(st.integers(0, 5), min_size=2, max_size=8),
        new=st.lists(st.tuples(subscriptions, st.sampled_from([None, None, "i1", "i2"])), max_size=3),
    )
    def heartbeats_at_once(self, senders: list[int], new: list[tuple[tuple[str, ...], str | None]]) -> None:
        """They come while the coordinator is busy, and are worked on together."""
        clients = [self.clients[number % len(self.clients)] for number in dict.fromkeys(senders)]
        for names, instance in new[: 6 - len(self.clients)]:
            self.clients.append(Client(self.fresh_id(), names, None, instance))
            clients.append(self.clients[-1])
        self.coordinator.now_ms += 1
        clients = list({client.member_id: client for client in clients}.values())
        answers = self.coordinator.handle_together([self.said(client) for client in clients])
        self.watch_epochs()
        for client, answer in zip(clients, answers, strict=True):
            self.heard(client, answer)

    def beat_before_giving_up(self, client: Client, *, says_what_it_holds: bool) -> None:
        """The client has not got round to letting go; its heartbeats go on."""
        if client.epoch == 0 or client.must_say_all:
            return
        self.coordinator.now_ms += 1
        result = self.coordinator.send(
            client.member_id,
            client.epoch,
            instance_id=client.instance_id,
            owned=listed(client.holds) if says_what_it_holds else None,
        )
        self.watch_epochs()
        if isinstance(result.answer, HeartbeatAnswer):
            client.hear(result.answer)
        else:
            client.forget()

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        names=subscriptions,
        regex=st.sampled_from(["", *sorted(PATTERNS)]),
    )
    def subscribes_anew(self, data: st.DataObject, names: tuple[str, ...], regex: str) -> None:
        client = data.draw(st.sampled_from(self.clients), label="client")
        client.names, client.regex = names, regex
        client.must_say_all = True
        client.give_up()
        self.request(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients), label="client")
        self.clients.remove(client)
        self.coordinator.send(client.member_id, -1, instance_id=client.instance_id)
        self.watch_epochs()

    @precondition(lambda self: any(client.instance_id for client in self.clients))
    @rule(data=st.data(), same_id=st.booleans())
    def restarts(self, data: st.DataObject, same_id: bool) -> None:
        """A static member goes away for a while, and comes back."""
        client = data.draw(
            st.sampled_from([client for client in self.clients if client.instance_id]), label="client"
        )
        self.coordinator.send(client.member_id, -2, instance_id=client.instance_id)
        if same_id:
            self.highest.pop(client.member_id, None)
        else:
            client.member_id = self.fresh_id()
        client.forget()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crashes(self, data: st.DataObject) -> None:
        self.clients.remove(data.draw(st.sampled_from(self.clients), label="client"))

    # What the world does

    @precondition(lambda self: self.coordinator.timers)
    @rule(data=st.data())
    def timer_runs_out(self, data: st.DataObject) -> None:
        kind, member_id = data.draw(
            st.sampled_from(sorted(self.coordinator.timers, key=lambda key: (key[0].value, key[1]))),
            label="timer",
        )
        self.run_out(kind, member_id)

    def run_out(self, kind: TimerKind, member_id: str) -> None:
        # A client that could not send a heartbeat for that long has let go of all it had.
        for client in self.clients:
            if client.member_id == member_id:
                client.holds, client.told = {}, {}
                client.must_say_all = True
        now = self.coordinator.now_ms
        self.coordinator.expire(kind, member_id)
        self.coordinator.now_ms = now
        self.watch_epochs()

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 4))
    def topic_grows(self, name: str, more: int) -> None:
        """Or appears."""
        topics = self.coordinator.topics
        self.coordinator.set_topics(**{**topics, name: topics.get(name, 0) + more})

    @precondition(lambda self: self.coordinator.topics)
    @rule(data=st.data())
    def topic_goes(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.coordinator.topics)), label="topic")
        self.coordinator.set_topics(
            **{name: count for name, count in self.coordinator.topics.items() if name != gone}
        )

    @precondition(lambda self: self.coordinator.asked is not None)
    @rule(fails=st.booleans())
    def patterns_are_resolved(self, fails: bool) -> None:
        self.answer_patterns(fails=fails)

    def answer_patterns(self, *, fails: bool = False) -> None:
        asked = self.coordinator.asked
        assert asked is not None
        self.coordinator.asked = None
        names = (
            {}
            if fails
            else {
                pattern: frozenset(PATTERNS[pattern]) & self.coordinator.topics.keys()
                for pattern in asked.patterns
            }
        )
        self.coordinator.handle(PatternsResolved(names, self.coordinator.version))
        self.watch_epochs()

    @precondition(lambda self: self.coordinator.group is not None)
    @rule()
    def coordinator_moves(self) -> None:
        """Another broker loads what is stored. Sessions start anew; a resolution under way is lost."""
        coordinator = self.coordinator
        coordinator.group = decode_group("group", encode_group(coordinator.state))
        coordinator.asked = None
        coordinator.timers = {
            (timer.kind, timer.member_id): timer
            for timer in timers_after_load(coordinator.state, coordinator.now_ms, coordinator.settings)
            if isinstance(timer, ScheduleTimer)
        }

    # What always holds

    @invariant()
    def no_partition_is_held_twice(self) -> None:
        seen: set[tuple[UUID, int]] = set()
        for client in self.clients:
            for topic_id, partitions in client.holds.items():
                for partition in partitions:
                    assert (topic_id, partition) not in seen, f"{topic_id}-{partition} is held twice"
                    seen.add((topic_id, partition))

    @invariant()
    def every_member_is_told_its_own(self) -> None:
        """The coordinator's books: disjoint, complete, and in step with the tables kept beside them."""
        group = self.coordinator.group
        if group is None:
            return
        seen: set[tuple[UUID, int]] = set()
        for member in group.members.values():
            for held in (member.assigned, member.pending):
                for topic_id, partitions in held.items():
                    assert partitions
                    pairs = {(topic_id, partition) for partition in partitions}
                    assert not pairs & seen
                    seen |= pairs
        assert seen == {(topic_id, partition) for topic_id, held in group.owned.items() for partition in held}
        assert group.static == {
            member.instance_id: member.member_id
            for member in group.members.values()
            if member.instance_id is not None
        }
        assert group.patterns.keys() == {
            member.topic_regex for member in group.members.values() if member.topic_regex
        }
        assert {member_id for _, member_id in self.coordinator.timers} <= group.members.keys()
        for member_id in group.members:
            assert (TimerKind.SESSION, member_id) in self.coordinator.timers

    @invariant()
    def a_stable_group_has_everything_assigned(self) -> None:
        group = self.coordinator.group
        if group is None or group.state is not GroupState.STABLE:
            return
        assigned: dict[UUID, set[int]] = {}
        for member in group.members.values():
            assert member.assigned == member.target or not self.is_current(group)
            for topic_id, partitions in member.assigned.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        if self.is_current(group):
            assert assigned == {
                shape.topic_id: set(range(shape.partitions)) for shape in group.topics.values()
            }

    def is_current(self, group: ConsumerGroup) -> bool:
        """Whether the group has seen the topics and knows what its patterns stand for."""
        return None not in group.patterns.values() and group.notes.topics_version == self.coordinator.version

    @precondition(lambda self: self.clients)
    @rule()
    def settles_when_left_alone(self) -> None:
        group = self.coordinator.group
        alive = {client.member_id for client in self.clients}
        for member_id in list(group.members) if group is not None else ():
            if member_id not in alive:
                self.run_out(TimerKind.SESSION, member_id)
        for _ in range(8):
            for client in self.clients:
                self.request(client)
                if self.coordinator.asked is not None:
                    self.coordinator.now_ms += 2
                    self.answer_patterns()
        stable = self.coordinator.state
        refused = [client for client in self.clients if client.epoch == 0]
        if any(client.instance_id for client in refused):
            return  # someone waits for an instance id that another has not released
        assert stable.state is GroupState.STABLE
        writes = self.coordinator.writes
        for client in self.clients:
            self.request(client)
        assert self.coordinator.writes == writes, "a heartbeat that changes nothing was stored"


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class TestConsumerGroups(ConsumerGroups.TestCase):  # type: ignore[misc, valid-type]
    settings = bounded(100)


@pytest.mark.soak
class TestConsumerGroupsForLong(ConsumerGroups.TestCase):  # type: ignore[misc, valid-type]
    settings = bounded(5_000)
