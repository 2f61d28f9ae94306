"""Small requests never wait behind producers, what is announced is not held, who is slow is closed first."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from struct import pack

from tests.services import room_settings
from tests.unit.broker.server.harness import SETTINGS, Client, PaperTransport, echo, frame, serving, until

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import MemoryBudget
from dray.broker.server.limits.answers import AnswerBudget
from dray.broker.server.limits.patience import ConnectionProgress, Patience
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.server import TOO_SLOW, relieve_answers, relieve_frames
from dray.broker.server.shared import ServerResources
from dray.kafka.records import uninitialised

MEBIBYTE = 1024 * 1024
PRODUCE = pack(">h", 0)
HEARTBEAT = pack(">h", 12)


def test_heartbeats_are_answered_while_producers_wait_for_a_stalled_store(run):
    async def scenario():
        store = asyncio.Event()

        async def dispatch(request, _connection):
            if request[:2] == PRODUCE:
                await store.wait()
            return (b"done",)

        async with serving(dispatch, buffer_bytes=10 * MEBIBYTE) as server:
            large = [await Client.to(server.address) for _ in range(4)]
            for client in large:
                client.send(PRODUCE + bytes(3 * MEBIBYTE))
            small = [await Client.to(server.address) for _ in range(40)]
            for client in small:
                client.send(*[PRODUCE + bytes(50_000)] * 10)
            await until(lambda: server.budget.waiting >= 40)
            member = await Client.to(server.address)
            for _ in range(10):
                assert await asyncio.wait_for(member.ask(HEARTBEAT + b"I am here"), 60) == b"done"
            store.set()
            for client in large:
                assert await client.receive() == b"done"
            for client in small:
                assert [await client.receive() for _ in range(10)] == [b"done"] * 10
            assert server.budget.peak <= 10 * MEBIBYTE
            for client in [*large, *small, member]:
                await client.close()

    run(scenario())


def test_frames_that_are_announced_and_hardly_sent_stop_nobody(run):
    async def scenario():
        async with serving(echo) as server:
            drips = [await Client.to(server.address) for _ in range(8)]
            for drip in drips:
                drip.writer.write(pack(">i", 85 * MEBIBYTE) + bytes(80 * 1024))
            await until(lambda: server.budget.used >= 8 * 80 * 1024)
            assert server.budget.used <= 8 * 512 * 1024
            producers = [await Client.to(server.address) for _ in range(4)]
            for _ in range(5):
                for client in producers:
                    client.send(PRODUCE + bytes(2 * MEBIBYTE))
                for client in producers:
                    assert len(await client.receive()) == 2 * MEBIBYTE + 2
            for client in [*drips, *producers]:
                await client.close()

    run(scenario())


def test_frames_that_grow_into_a_full_budget_all_end(run):
    """Each is as large as the budget allows, and all arrive at once, in pieces."""

    async def scenario():
        async with serving(echo, buffer_bytes=2 * MEBIBYTE, max_unsent_bytes=16 * MEBIBYTE) as server:
            clients = [await Client.to(server.address) for _ in range(6)]
            payload = PRODUCE + bytes(1_700_000)

            async def send(client: Client) -> None:
                data = frame(payload)
                for start in range(0, len(data), 100_000):
                    client.writer.write(data[start : start + 100_000])
                    await client.writer.drain()
                assert await client.receive() == payload

            await asyncio.gather(*map(send, clients))
            assert server.budget.peak <= 2 * MEBIBYTE
            for client in clients:
                await client.close()

    run(scenario())


# --- who is slow

BOUNDS = room_settings.server(
    short_seconds=5, short_frame_bytes_per_second=1000, unread_seconds=10, frame_seconds=30
)


def standing(**changes) -> ConnectionProgress:
    quiet = ConnectionProgress(received_bytes=0, frames=1, unfinished=-1, unsent=0, busy=False, closing=False)
    return replace(quiet, **changes)


def test_the_pace_of_a_frame_is_that_of_a_span_in_which_it_was_read():
    patience = Patience(0)
    patience.exhausted(0, standing(received_bytes=0, unfinished=10**6), BOUNDS)
    patience.exhausted(4, standing(received_bytes=1, unfinished=10**6), BOUNDS)
    assert patience.pace is None, "too early to tell"
    patience.exhausted(5, standing(received_bytes=4000, unfinished=10**6), BOUNDS)
    assert patience.pace == 800
    patience.exhausted(10, standing(received_bytes=9000, unfinished=10**6), BOUNDS)
    assert patience.pace is None, "1000 bytes per second are enough"


def test_a_frame_that_waited_for_us_is_not_slow():
    patience = Patience(0)
    patience.exhausted(0, standing(received_bytes=10, unfinished=10**6), BOUNDS)
    patience.exhausted(6, standing(received_bytes=10, unfinished=10**6, pauses=1), BOUNDS)
    assert patience.pace is None
    patience.exhausted(12, standing(received_bytes=10, unfinished=-1, pauses=2), BOUNDS)
    assert patience.pace is None


def test_a_peer_that_takes_something_is_not_unread():
    patience = Patience(0)
    for now in range(0, 100, 5):
        taken = BOUNDS.slowest_frame_bytes_per_second * now
        patience.exhausted(now, standing(unsent=10**6, taken=taken, busy=True), BOUNDS)
        assert patience.unread_for(now, BOUNDS) == 0
    patience.exhausted(104, standing(unsent=10**6, taken=taken, busy=True), BOUNDS)
    assert patience.unread_for(104, BOUNDS) == 0, "for 9 seconds only"
    patience.exhausted(106, standing(unsent=10**6, taken=taken, busy=True), BOUNDS)
    assert patience.unread_for(106, BOUNDS) == 11
    patience.exhausted(107, standing(unsent=0, taken=taken), BOUNDS)
    assert patience.unread_for(107, BOUNDS) == 0


def test_a_peer_that_takes_next_to_nothing_for_long_counts_as_unread():
    patience = Patience(0)
    for now in range(0, 31, 5):
        patience.exhausted(now, standing(unsent=10**8, taken=now, busy=True), BOUNDS)
        assert patience.unread_for(now, BOUNDS) == (BOUNDS.unread_seconds if now == 30 else 0)


class FakeConnection:
    """A connection, as relief sees it."""

    def __init__(self, name: str, dropped: list[str], pace: float | None = None, unread: float = 0) -> None:
        self.name = name
        self.pace = pace
        self.unread = unread
        self.answer_bytes = 0
        self.budget: AnswerBudget | None = None
        self._dropped = dropped
        self.when_dropped = lambda: None

    def unread_for(self, now: float) -> float:
        return self.unread

    def report_held(self) -> None:
        pass

    def drop(self, kind: str) -> None:
        self._dropped.append(self.name)
        self.when_dropped()


def test_the_longest_unread_goes_first_and_no_more_than_is_needed():
    answers = AnswerBudget(100)
    dropped: list[str] = []
    unread = {"a": 11, "b": 99, "c": 0, "d": 12}
    seats = [FakeConnection(name, dropped, unread=seconds) for name, seconds in unread.items()]
    for seat in seats:
        seat.answer_bytes = 25
        answers.change(seat, 0, 25)
    relieve_answers(seats, answers, 0)
    assert dropped == [], "nobody waits"
    answers.claim(30, lambda: None)
    relieve_answers(seats, answers, 0)
    assert dropped == ["b", "d"]


def test_nobody_who_makes_progress_goes():
    answers = AnswerBudget(100)
    dropped: list[str] = []
    seat = FakeConnection("reader", dropped)
    answers.change(seat, 0, 100)
    answers.claim(30, lambda: None)
    relieve_answers([seat], answers, 0)
    assert dropped == []


def test_the_slowest_frames_go_first_while_unfinished_frames_hold_too_much():
    budget = MemoryBudget(100)
    dropped: list[str] = []
    seats = []
    for name, pace in [("a", 900.0), ("b", 100.0), ("c", None), ("d", 500.0)]:
        claim = budget.begin(20, lambda: None)
        assert budget.grow(claim, 15)
        seat = FakeConnection(name, dropped, pace)
        seat.when_dropped = partial(budget.withdraw, claim)
        seats.append(seat)
    relieve_frames(seats, budget)
    assert dropped == [], "nobody waits"
    budget.claim(50, lambda: None)
    relieve_frames(seats, budget)
    assert dropped == ["b", "d", "a"]


def test_slow_frames_stay_while_they_hold_little():
    budget = MemoryBudget(100)
    dropped: list[str] = []
    assert budget.grow(budget.begin(20, lambda: None), 5)
    assert budget.try_reserve(75)
    budget.claim(50, lambda: None)
    relieve_frames([FakeConnection("slow", dropped, 1.0)], budget)
    assert dropped == [], "what is short is with those who are being served"


def test_a_dripping_frame_is_closed_when_others_wait(run):
    async def scenario():
        async with serving(echo, buffer_bytes=2 * MEBIBYTE, short_seconds=0.1, unread_seconds=0.2) as server:
            drip = await Client.to(server.address)
            drip.writer.write(pack(">i", 1_900_000) + bytes(1000))
            await until(lambda: server.budget.used > 0)
            client = await Client.to(server.address)
            payload = PRODUCE + bytes(1_900_000)
            assert await client.ask(payload) == payload
            assert server.metrics.connections_closed.labels(TOO_SLOW).value == 1
            await drip.close()
            await client.close()

    run(scenario())


async def test_a_dropped_connection_gives_its_memory_back_at_once():
    settings = replace(SETTINGS, buffer_bytes=MEBIBYTE, small_frame_bytes=16)
    shared = ServerResources(
        echo,
        SystemRuntime(),
        settings=settings,
        metrics=Metrics(process=False),
        budget=MemoryBudget(MEBIBYTE),
        allocate=uninitialised,
    )
    protocol = FrameProtocol(shared, "P", tls=False)
    transport = PaperTransport(protocol)
    protocol.connection_made(transport)
    transport.deliver(pack(">i", 1000) + b"begun")
    assert 0 < shared.budget.used < 1000
    protocol.drop("test")
    assert shared.budget.used == shared.budget.unfinished == 0
    assert transport.closed
