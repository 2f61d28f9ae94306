"""Answers have a memory budget, as requests have."""

from __future__ import annotations

import asyncio
import socket
from random import Random
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.server.harness import Client, serving, until

from dray.broker.server.limits.answers import AnswerBudget, Reservation

MEBIBYTE = 1024 * 1024
BATCH = bytes(4 * MEBIBYTE)
UNREAD = "answers not read while memory is short"


class FakeHolder:
    """A connection: what it holds, and what the budget knows of that."""

    def __init__(self, budget: AnswerBudget) -> None:
        self.budget = budget
        self.held = 0
        self.counted = 0

    def report_held(self) -> None:
        counted, self.counted = self.counted, self.held
        self.budget.change(self, counted, self.held)

    def reserve(self, more: int) -> None:
        self.held += more
        self.report_held()


def test_an_answer_is_planned_with_half_of_what_is_free():
    budget = AnswerBudget(100)
    for expected in (50, 25, 12, 6):
        assert budget.most() == expected
        assert Reservation(budget, FakeHolder(budget).reserve).take(expected)
    assert budget.used == 93


def test_while_others_wait_no_more_than_a_batch_is_planned_and_nobody_overtakes():
    budget = AnswerBudget(100)
    reader = FakeHolder(budget)
    assert Reservation(budget, reader.reserve).take(60)
    granted: list[str] = []
    budget.claim(50, lambda: granted.append("first"))
    assert budget.most() == 0
    assert not Reservation(budget, FakeHolder(budget).reserve).take(1)
    reader.reserve(-60)
    assert granted == ["first"]


def test_who_finds_no_room_has_the_connections_looked_at_again():
    budget = AnswerBudget(100)
    reader = FakeHolder(budget)
    reader.reserve(90)
    reader.held = 10  # it has read, and no transport says so
    assert Reservation(budget, FakeHolder(budget).reserve).take(50)
    assert budget.used == 60


def test_a_batch_larger_than_the_budget_gets_all_of_it():
    budget = AnswerBudget(100)
    reader = FakeHolder(budget)
    reader.reserve(10)
    granted: list[str] = []
    claim = budget.claim(1000, lambda: granted.append("large"))
    assert budget.missing == 10
    reader.reserve(-10)
    assert granted == ["large"]
    assert claim.size == 100


def test_answers_that_were_not_asked_for_are_counted_beyond_the_limit():
    budget = AnswerBudget(100)
    FakeHolder(budget).reserve(150)
    assert (budget.used, budget.most()) == (150, 0)


async def test_a_wait_ends_with_its_time_and_leaves_no_place_behind():
    budget = AnswerBudget(100)
    FakeHolder(budget).reserve(100)
    mine = FakeHolder(budget)
    reservation = Reservation(budget, mine.reserve)
    assert not await reservation.wait(10, 0.01)
    assert (budget.waiting, mine.held, reservation.size) == (0, 0, 0)


async def test_a_wait_that_is_cancelled_leaves_no_place_behind():
    budget = AnswerBudget(100)
    FakeHolder(budget).reserve(100)
    waiting = asyncio.create_task(Reservation(budget, FakeHolder(budget).reserve).wait(10, 60))
    await until(lambda: budget.waiting == 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert budget.waiting == 0


async def test_the_first_in_the_queue_looks_for_what_was_read_meanwhile():
    budget = AnswerBudget(100)
    reader, mine = FakeHolder(budget), FakeHolder(budget)
    reader.reserve(100)
    reservation = Reservation(budget, mine.reserve)
    waiting = asyncio.create_task(reservation.wait(10, 60))
    await until(lambda: budget.waiting == 1)
    reader.held = 50
    assert await waiting
    assert (reservation.most(), mine.held, budget.used) == (10, 10, 60)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(0, 1 << 30))
def test_any_history_stays_within_the_limit_serves_in_order_and_gives_all_back(batches, seed):
    random = Random(seed)
    budget = AnswerBudget(100)
    waiting: list[int] = []
    served: list[int] = []
    holding: list[FakeHolder] = []

    def fetch(number: int, batch: int) -> None:
        holder = FakeHolder(budget)
        reservation = Reservation(budget, holder.reserve)
        size = max(batch, min(random.randint(1, 100), reservation.most()))

        def granted() -> None:
            waiting.remove(number)
            served.append(number)
            reservation._hold(batch)
            holding.append(holder)

        if reservation.take(size):
            assert not waiting, "nobody overtakes"
            served.append(number)
            holding.append(holder)
        else:
            waiting.append(number)
            budget.claim(batch, granted)

    def read() -> None:
        holder = holding.pop(random.randrange(len(holding)))
        left = random.randint(0, holder.held)
        if left:
            holding.append(holder)
        holder.held = left
        if random.random() < 0.5:
            holder.report_held()

    for number, batch in enumerate(batches):
        fetch(number, batch)
        while holding and random.random() < 0.5:
            read()
        assert budget.used == sum(cast(Any, holder).counted for holder in budget._holders) <= budget.limit
    turns = 0
    while holding or waiting:
        budget.look_again()  # as the first in the queue does
        assert holding, "with nobody to read, all who wait have their room"
        read()
        turns += 1
        assert turns < 10_000
    assert served == sorted(served)
    assert len(served) == len(batches)
    budget.look_again()
    assert (budget.used, budget.waiting) == (0, 0)
    assert budget.peak <= budget.limit


# --- over sockets


async def like_a_fetch(_request, connection):
    """Plans 16 MiB of batches of 4 MiB, with what it is allowed. (The system takes 2.5 MiB of each.)"""
    await connection.turn()
    room = connection.room()
    batch, wanted = len(BATCH), 4 * len(BATCH)
    while True:
        size = max(batch, min(wanted, room.most()) // batch * batch)
        if room.take(size):
            return [BATCH] * (size // batch)
        if not await room.wait(batch, 60):
            return []


def silent_peer(address: tuple[str, int]) -> socket.socket:
    """Asks once, and reads nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(address)
    peer.sendall(b"\0\0\0\4more")
    return peer


def test_peers_that_do_not_read_hold_no_more_than_the_budget_and_others_are_served(run):
    async def scenario():
        async with serving(like_a_fetch, answer_bytes=32 * MEBIBYTE, unread_seconds=0.2) as server:
            silent = [silent_peer(server.address) for _ in range(16)]
            await until(lambda: server.answers.waiting > 0)
            reader = await Client.to(server.address)
            for _ in range(10):
                assert len(await reader.ask(b"more")) >= len(BATCH)
            assert server.answers.peak <= 32 * MEBIBYTE + 17 * 4, "but for the length in front of each"
            assert server.metrics.connections_closed.labels(UNREAD).value > 0
            for peer in silent:
                peer.close()
            await reader.close()

    run(scenario())


def test_a_peer_that_reads_slowly_is_not_closed_when_memory_is_short(run):
    async def scenario():
        async with serving(like_a_fetch, answer_bytes=32 * MEBIBYTE, unread_seconds=1.0) as server:
            slow = await Client.to(server.address, limit=1024)
            slow.send(b"more")
            await until(lambda: server.answers.used > 0)
            silent = [silent_peer(server.address) for _ in range(16)]
            await until(lambda: server.answers.waiting > 0)
            received = len(await slow.reader.readexactly(4))
            closed = server.metrics.connections_closed.labels(UNREAD)
            while closed.value < 3:
                await asyncio.sleep(0.01)
                received += len(await slow.reader.read(4 * 1024))
            while received < 4 * len(BATCH) + 4:
                received += len(await slow.reader.read(MEBIBYTE))
            assert await slow.ask(b"more"), "it was there for longest, and stays"
            for peer in silent:
                peer.close()
            await slow.close()

    run(scenario())


def test_what_is_read_is_given_back(run):
    async def scenario():
        async with serving(like_a_fetch, answer_bytes=32 * MEBIBYTE) as server:
            client = await Client.to(server.address)
            for _ in range(20):
                assert len(await client.ask(b"more")) == 4 * len(BATCH)
            server.answers.look_again()
            assert server.answers.used == 0
            assert server.answers.peak >= 4 * len(BATCH)
            await client.close()

    run(scenario())


def test_the_reservation_of_a_request_that_fails_is_given_back(run):
    async def scenario():
        async def dispatch(_request, connection):
            assert connection.room().take(1000)
            raise KeyError("bug")

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"x")
            assert await client.rest() == b""
            assert server.answers.used == 0
            await client.close()

    run(scenario())


def test_answers_that_wait_for_their_turn_are_counted(run):
    async def scenario():
        first = asyncio.Event()

        async def dispatch(request, _connection):
            if bytes(request) == b"first":
                await first.wait()
            await asyncio.sleep(0.05)
            return (bytes(100_000),)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"first", b"second")
            await until(lambda: server.metrics.requests_in_flight.value == 2)
            await until(lambda: server.metrics.requests_in_flight.value == 1)
            assert server.answers.used == 100_004
            first.set()
            await client.receive()
            await client.receive()
            server.answers.look_again()
            assert server.answers.used == 0
            await client.close()

    run(scenario())
