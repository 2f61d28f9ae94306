"""Forwarded produce requests: what the source answers, what is sent again, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.migration.source.produce_source import (
    BROKERS,
    STREAMS,
    TOPIC,
    PlayedLogs,
    PlayedSource,
    batch,
)

from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
)
from dray.migration.source import forwarding
from dray.migration.source.fences import VOUCHED_SECONDS
from dray.migration.source.forwarding import Answer, Link, ProduceForwarder
from dray.migration.source.source_brokers import (
    ForwardingLimits,
    ForwardingObserver,
    ForwardOutcome,
    SourceBrokers,
)
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNREPEATABLE = -1


class SeenForwarding(ForwardingObserver):
    def __init__(self) -> None:
        self.bytes = self.answers = self.silences = 0
        self.outcomes: list[ForwardOutcome] = []

    def sent(self, upstream: str, size: int) -> None:
        assert upstream == "old"
        self.bytes += size

    def answered(self, upstream: str, seconds: float) -> None:
        assert (upstream, seconds >= 0) == ("old", True)
        self.answers += 1

    def unanswered(self, upstream: str) -> None:
        assert upstream == "old"
        self.silences += 1

    def finished(self, outcome: ForwardOutcome) -> None:
        self.outcomes.append(outcome)


class Play:
    def __init__(self, most_connections: int = 10, most_bytes: int = 1 << 20, **more: float) -> None:
        self.runtime = SimulatedRuntime(1)
        self.source = PlayedSource(self.runtime)
        self.logs = PlayedLogs(self.runtime)
        limits = ForwardingLimits(most_bytes=most_bytes, connections=most_connections, **more)
        self.seen = SeenForwarding()
        self.brokers = SourceBrokers(list(BROKERS.values()), self.source.dial, self.runtime, limits)
        self.forwarder = ProduceForwarder({"old": self.brokers}, self.logs, self.runtime, limits, self.seen)

    async def send(self, *batches: Any, acks: int = -1, seconds: float = 30.0) -> list[Answer]:
        answers, _ = await self.forwarder.append(batches, acks=acks, seconds=seconds)
        return list(answers)

    async def one(self, sequence: int = 0, *, seconds: float = 30.0, **what: int) -> Answer:
        [answer] = await self.send(batch(sequence, **what), seconds=seconds)
        return answer

    def later(self, seconds: float, change: Callable[[], object]) -> None:
        async def wait() -> None:
            await self.runtime.sleep(seconds)
            change()

        self.runtime.spawn(wait(), "later")


def play(work: Callable[[Play], Awaitable[None]], **settings: Any) -> Play:
    async def whole() -> Play:
        played = Play(**settings)
        await work(played)
        assert (played.forwarder.held_bytes, played.forwarder.held_requests) == (0, 0)
        assert played.runtime.failures == []
        return played

    return run(whole())


def offset_of(answer: Answer) -> int:
    assert isinstance(answer, PartitionProduceResponse), answer
    assert answer.error_code == 0
    return answer.base_offset


def code_of(answer: Answer) -> int:
    assert answer is not None
    return answer[0] if isinstance(answer, tuple) else answer.error_code


# --- the answers are the source's


def test_an_answer_is_passed_on_as_it_is_but_not_who_leads() -> None:
    async def work(play: Play) -> None:
        play.source.throttle_ms = 70
        play.source.refuses[1] = PartitionProduceResponse(
            index=1,
            error_code=ErrorCode.INVALID_TIMESTAMP,
            base_offset=-1,
            record_errors=[BatchIndexAndErrorMessage(2, "too old")],
            error_message="One is too old.",
            current_leader=LeaderIdAndEpoch(9, 9),
        )
        answers, throttle_ms = await play.forwarder.append(
            [batch(partition=0), batch(partition=1)], acks=1, seconds=30
        )
        assert throttle_ms == 70
        stored, refused = answers
        assert isinstance(stored, PartitionProduceResponse)
        assert isinstance(refused, PartitionProduceResponse)
        assert (stored.base_offset, stored.log_append_time_ms, stored.log_start_offset) == (0, 1234, 3)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_TIMESTAMP,
            "One is too old.",
        )
        assert refused.record_errors[0].batch_index_error_message == "too old"
        assert refused.current_leader is None, "no client may go where this broker does not say"

    play(work)


@pytest.mark.parametrize(("acks", "at_the_source"), [(-1, -1), (1, 1), (0, 1)])
def test_acks_are_passed_on_and_what_asks_for_no_answer_is_answered_here(
    acks: int, at_the_source: int
) -> None:
    async def work(play: Play) -> None:
        await play.send(batch(), acks=acks, seconds=20)
        [asked] = play.source.asked
        assert asked.acks == at_the_source
        assert 9_000 < asked.timeout_ms <= 20_000
        assert asked.transactional_id is None

    play(work)


def test_batches_of_several_leaders_are_sent_side_by_side() -> None:
    async def work(play: Play) -> None:
        play.source.leaders = {0: 1, 1: 2}
        play.source.seconds = 0.5
        await play.send(
            batch(9, partition=0), batch(9, partition=1)
        )  # leaders and link are known from now on
        began = play.runtime.monotonic()
        answers = await play.send(batch(0, partition=0), batch(0, partition=1))
        assert [offset_of(each) for each in answers] == [1, 1]
        assert play.runtime.monotonic() - began < 1.1

    play(work)


# --- what is sent again


def test_a_leader_that_moved_is_followed() -> None:
    async def work(play: Play) -> None:
        assert offset_of(await play.one(0)) == 0
        play.source.leaders[0] = 2
        assert offset_of(await play.one(1)) == 1
        assert play.source.logs[0] == [(5, 0), (5, 1)]

    play(work)


def test_without_a_producer_id_only_the_client_sends_again() -> None:
    """A leader that is deposed while it waits for replicas says the same, with the records in its log."""

    async def work(play: Play) -> None:
        assert offset_of(await play.one(producer=UNREPEATABLE)) == 0
        play.source.leaders[0] = 2
        assert code_of(await play.one(producer=UNREPEATABLE)) == NOT_LEADER
        assert offset_of(await play.one(producer=UNREPEATABLE)) == 1, "and the new leader is known then"

    play(work)


def test_a_lost_answer_is_found_at_the_source() -> None:
    async def work(play: Play) -> None:
        lost = iter([True, True])
        play.source.loses = lambda _: next(lost, False)
        assert offset_of(await play.one(0)) == 0
        assert play.source.logs[0] == [(5, 0)]
        assert len(play.source.asked) == 3

    play(work)


def test_a_lost_answer_without_a_producer_id_is_an_error() -> None:
    async def work(play: Play) -> None:
        play.source.loses = lambda _: True
        answer = await play.one(producer=UNREPEATABLE)
        assert answer == (TIMED_OUT, "one:9092 closed the connection: try again.")
        assert len(play.source.logs[0]) == 1

    play(work)


def test_a_source_that_was_not_reached_is_tried_again_for_every_batch() -> None:
    async def work(play: Play) -> None:
        play.source.frozen = {1, 2}
        play.later(12, play.source.frozen.clear)
        assert offset_of(await play.one(producer=UNREPEATABLE)) == 0
        assert len(play.source.logs[0]) == 1

    play(work)


def test_a_leader_that_was_not_reached_has_nothing_of_the_batch() -> None:
    async def work(play: Play) -> None:
        await play.one(producer=UNREPEATABLE)
        for connection in list(play.source.open):
            connection.abort()
        play.source.away = {1}
        play.later(2, play.source.away.clear)
        assert offset_of(await play.one(producer=UNREPEATABLE)) == 1

    play(work)


def test_a_leader_that_stands_still_is_left_for_its_successor() -> None:
    async def work(play: Play) -> None:
        await play.one(0)
        play.source.frozen = {1}
        play.later(3, lambda: play.source.leaders.update({0: 2}))
        assert offset_of(await play.one(1)) == 1
        assert play.runtime.monotonic() < 25

    play(work)


def test_a_wrong_password_is_said_at_once() -> None:
    async def work(play: Play) -> None:
        play.source.strangers = True
        assert await play.one() == (NOT_LEADER, "the password is wrong")
        assert play.runtime.monotonic() < 1

    play(work)


def test_a_user_of_brokers_without_rights_is_said_to_producers() -> None:
    """It is not shown the topic: without a word they would wait for a leader until they time out."""

    async def work(play: Play) -> None:
        play.source.hides = True
        answer = await play.one()
        assert isinstance(answer, PartitionProduceResponse)
        assert (answer.error_code, "needs WRITE" in (answer.error_message or "")) == (DENIED, True)
        assert play.runtime.monotonic() < 1
        play.source.hides = False
        assert offset_of(await play.one(0)) == 0, "as soon as it has the right"

    play(work)


# --- the switch


@pytest.mark.parametrize("fence", [TOO_LARGE, DENIED])
def test_a_batch_that_the_fence_refuses_waits_and_is_given_back(fence: int) -> None:
    async def work(play: Play) -> None:
        assert offset_of(await play.one(0)) == 0
        play.logs.pending()
        play.source.fence = fence
        play.later(0.7, lambda: play.logs.decide({0: 1, 1: 0}))
        assert await play.one(1) is None
        assert 0.7 < play.runtime.monotonic() < 0.9
        assert STREAMS[0] in play.forwarder.ours

    play(work)


def test_batches_are_sent_while_a_switch_is_pending_and_no_fence_is_up() -> None:
    """A migrator may be slow to come, and a transaction may be open."""

    async def work(play: Play) -> None:
        play.logs.pending()
        assert offset_of(await play.one(0)) == 0

    play(work)


def test_nothing_is_sent_to_a_source_whose_producers_are_stopped_by_hand() -> None:
    async def work(play: Play) -> None:
        play.logs.pending(by_hand=True)
        play.later(2, lambda: play.logs.decide({0: 0, 1: 0}))
        assert await play.one(0) is None
        assert play.source.asked == []

    play(work)


def test_a_batch_that_waits_is_sent_on_where_the_switch_goes_back() -> None:
    async def work(play: Play) -> None:
        play.logs.pending()
        play.source.fence = DENIED

        def go_back() -> None:
            play.logs.links[TOPIC] = Link("old", is_pending=False)

        play.later(1.5, go_back)
        play.later(
            1.6, lambda: setattr(play.source, "fence", 0)
        )  # a fence is lifted some time after the call
        assert offset_of(await play.one(0)) == 0
        assert 1.6 < play.runtime.monotonic() < 1.75

    play(work)


@pytest.mark.parametrize("code", [TOO_LARGE, DENIED])
def test_without_a_switch_a_refusal_is_what_it_says(code: int) -> None:
    async def work(play: Play) -> None:
        play.source.fence = code
        assert code_of(await play.one(0)) == code
        assert play.runtime.monotonic() < 0.5

    play(work)


def test_a_fence_that_is_only_just_lifted_is_no_error_for_one_who_never_saw_it() -> None:
    async def work(play: Play) -> None:
        play.source.fence = DENIED
        play.later(0.08, lambda: setattr(play.source, "fence", 0))
        assert offset_of(await play.one(0)) == 0

    play(work)


def test_a_fence_is_known_for_one_even_if_the_link_was_read_before_it() -> None:
    async def work(play: Play) -> None:
        await play.one(0)
        reads = play.logs.reads
        await play.one(1)
        assert play.logs.reads == reads, "a batch costs no read of the store"
        play.logs.pending()
        play.source.fence = DENIED
        play.later(0.2, lambda: play.logs.decide({0: 2, 1: 0}))
        assert await play.one(2) is None

    play(work)


@pytest.mark.parametrize("seconds", [0.5, 4.0])
def test_a_batch_waits_for_its_timeout_at_most(seconds: float) -> None:
    async def work(play: Play) -> None:
        play.logs.pending()
        play.source.fence = DENIED
        answer = await play.one(0, seconds=seconds)
        assert answer == (TIMED_OUT, "the topic is being switched: try again.")
        assert seconds <= play.runtime.monotonic() < seconds + 0.1

    play(work)


def test_a_late_answer_is_a_timeout_and_its_connection_is_not_used_again() -> None:
    async def work(play: Play) -> None:
        await play.one(0)
        play.source.seconds = 3
        assert code_of(await play.one(1, seconds=1)) == TIMED_OUT
        assert play.runtime.monotonic() < 1.2
        play.source.seconds = 0.005
        assert offset_of(await play.one(1)) == 1
        assert play.source.dialled == 2

    play(work)


@pytest.mark.parametrize(("boundary", "is_acknowledged"), [(2, True), (1, False)])
def test_an_acknowledgement_that_comes_after_the_boundary(boundary: int, is_acknowledged: bool) -> None:
    """A broker that stood still sends by a link of long ago, to a source that no fence closes."""

    async def work(play: Play) -> None:
        await play.one(0)
        play.source.seconds = 3
        play.later(1, lambda: play.logs.pending(by_hand=True))
        play.later(8, lambda: play.logs.decide({0: boundary, 1: 0}))
        answer = await play.one(1)
        if is_acknowledged:
            assert offset_of(answer) == 1
        else:
            assert answer is None, "the source took it when the log was no longer its own"
        assert play.runtime.monotonic() > 8, "while it is not decided, nothing can be said"

    play(work)


def test_a_late_acknowledgement_without_a_switch_counts() -> None:
    async def work(play: Play) -> None:
        await play.one(0)
        play.source.seconds = 3
        assert offset_of(await play.one(1)) == 1

    play(work)


def test_a_topic_that_is_dray_s_is_not_sent_anywhere() -> None:
    async def work(play: Play) -> None:
        play.logs.decide({0: 0, 1: 0})
        assert await play.send(batch(0), batch(0, partition=1)) == [None, None]
        assert play.source.dialled == 0

    play(work)


def test_a_topic_without_a_link_or_with_an_unknown_source() -> None:
    async def work(play: Play) -> None:
        play.logs.links[TOPIC] = None
        assert code_of(await play.one(0)) == NOT_LEADER
        await play.runtime.sleep(5)
        play.logs.links[TOPIC] = Link("other", is_pending=False)
        answer = await play.one(0)
        expected = "This broker does not know the source: add other to upstream.clusters."
        assert answer == (NOT_LEADER, expected)

    play(work)


def test_a_store_that_is_away_is_waited_for() -> None:
    async def work(play: Play) -> None:
        play.logs.is_away = True
        assert await play.one(0, seconds=1) == (TIMED_OUT, "the metadata store is away: try again.")
        play.later(1, lambda: setattr(play.logs, "is_away", False))
        assert offset_of(await play.one(0)) == 0

    play(work)


# --- bounds


def test_connections_are_bounded_and_used_again() -> None:
    async def work(play: Play) -> None:
        play.source.seconds = 0.1
        answers = await asyncio.gather(*[play.one(0, producer=each) for each in range(1, 9)])
        assert sorted(offset_of(each) for each in answers) == list(range(8))
        assert play.source.most_open == 2
        await play.one(0, producer=20)
        assert play.source.dialled == 2

    play(work, most_connections=2)


def test_an_idle_connection_is_not_kept_until_the_source_ends_it() -> None:
    async def work(play: Play) -> None:
        await play.one(0)
        await play.runtime.sleep(300)
        await play.one(1)
        assert play.source.dialled == 2
        assert len(play.source.open) == 1

    play(work)


def test_what_is_held_is_bounded() -> None:
    async def work(play: Play) -> None:
        play.source.seconds = 1
        size = len(batch(0).records)
        first = play.runtime.spawn(play.one(0), "first")
        await play.runtime.sleep(0.1)
        assert play.forwarder.held_bytes == size
        answer = await play.one(0, producer=6)
        assert code_of(answer) == TIMED_OUT
        assert play.runtime.monotonic() < 0.2
        assert offset_of(await first) == 0

    play(work, most_bytes=100)


def test_times_are_those_of_the_limits() -> None:
    async def work(play: Play) -> None:
        await play.one(0)
        play.source.seconds = 30
        ended: list[int] = []
        for moment in (2.9, 3.1):
            play.later(moment, lambda: ended.append(play.seen.silences))
        began = play.runtime.monotonic()
        assert code_of(await play.one(1, seconds=300)) == TIMED_OUT
        assert play.runtime.monotonic() - began == pytest.approx(8, abs=0.1), "no longer than is allowed"
        assert ended == [0, 1], "an attempt is ended after its time"
        play.source.seconds = 0
        await play.one(1)
        dialled = play.source.dialled
        await play.runtime.sleep(6)
        await play.one(2)
        assert play.source.dialled == dialled + 1, "a connection that was idle for so long is not used"

    play(work, attempt_seconds=3.0, longest_seconds=8.0, idle_seconds=5.0)


# --- what is told of it


def test_requests_and_batches_are_counted() -> None:
    async def work(play: Play) -> None:
        play.source.loses = lambda _: play.seen.silences == 0  # the first answer
        sent = batch(0)
        await play.send(sent)
        assert (play.seen.bytes, play.seen.silences, play.seen.answers) == (2 * len(sent.records), 1, 1)
        assert play.brokers.connections == len(play.source.open) == 1
        play.source.refuses[0] = PartitionProduceResponse(index=0, error_code=ErrorCode.INVALID_TIMESTAMP)
        await play.one(1)
        del play.source.refuses[0]
        play.source.frozen = {1, 2}
        await play.one(2, seconds=1)
        play.source.frozen = set()
        play.logs.boundaries[sent.stream] = 1
        play.logs.links.clear()
        await play.runtime.sleep(2)
        await play.one(3)
        assert [each.value for each in play.seen.outcomes] == ["source", "refused", "failed", "here"]

    play(work)


def test_what_is_under_way_is_counted() -> None:
    async def work(play: Play) -> None:
        play.source.seconds = 1
        first = play.runtime.spawn(play.one(0), "first")
        await play.runtime.sleep(2.5)
        assert (play.forwarder.held_requests, play.brokers.connections) == (1, 1)
        await play.one(0, producer=6)
        await first
        assert play.brokers.connections == len(play.source.open)
        assert [each.value for each in play.seen.outcomes] == ["busy", "source"]

    play(work, most_bytes=100)


def test_a_request_that_is_cancelled_holds_nothing() -> None:
    async def work(play: Play) -> None:
        play.source.seconds = 1
        task = play.runtime.spawn(play.one(0), "cancelled")
        await play.runtime.sleep(2.5)  # it is sent
        task.cancel()
        await asyncio.wait([task])
        assert play.source.open == [], "its answer would be taken for another's"

    play(work)


def test_an_answer_counts_for_less_time_than_a_switch_by_hand_watches_the_end() -> None:
    assert forwarding.COUNTS_SECONDS < VOUCHED_SECONDS
