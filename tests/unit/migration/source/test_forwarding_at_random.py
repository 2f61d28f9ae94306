"""Producers, two brokers that forward, and a switch in the midst: by chance, from one seed each.

What is right afterwards: every record that was acknowledged is in the log once, at the offset that its
producer was given, in its producer's order; and no batch of an idempotent producer is there twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.unit.migration.source.produce_source import BROKERS, TOPIC, PlayedLogs, PlayedSource, batch

from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from dray.migration.source import forwarding
from dray.migration.source.forwarding import Link, ProduceForwarder
from dray.migration.source.source_brokers import ForwardingLimits, ForwardingObserver, SourceBrokers
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

SEEDS = range(60)
RECORDS = 25
STOOD_STILL = 39
"""With this seed a broker wakes behind the boundary, with a request on its way to a source without fence."""


LIMITS = ForwardingLimits(connections=4, attempt_seconds=60.0)
"""So that answers are late, and not sent for again before they come."""


class Move:
    """One partition. `by_hand`: nothing at the source refuses, and a broker may stand still."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.runtime = SimulatedRuntime(seed)
        self.by_hand = self.random.random() < 0.4
        self.source = PlayedSource(self.runtime)
        self.source.loses = self._loses
        self.logs = PlayedLogs(self.runtime)
        self.here: list[tuple[int, int]] = []  # what Dray appended behind the boundary
        self.boundary: int | None = None
        self.brokers: list[tuple[SimulatedRuntime, ProduceForwarder]] = []
        for number in (1, 2):
            runtime = SimulatedRuntime(1000 * seed + number)
            brokers = SourceBrokers(list(BROKERS.values()), self.source.dial, runtime, LIMITS)
            forwarder = ProduceForwarder({"old": brokers}, self.logs, runtime, LIMITS, ForwardingObserver())
            self.brokers.append((runtime, forwarder))
        self.acknowledged: dict[tuple[int, int], int] = {}

    def _loses(self, _: ProduceRequest) -> bool:
        return self.random.random() < 0.1

    async def produce(self, producer: int) -> None:
        """One record after the other, each sent again, to any broker, until it is acknowledged."""
        for sequence in range(RECORDS):
            while (offset := await self._send(producer, sequence)) is None:
                await self.runtime.sleep(0.05)
            self.acknowledged[producer, sequence] = offset
            await self.runtime.sleep(self.random.uniform(0, 0.8))

    async def _send(self, producer: int, sequence: int) -> int | None:
        runtime, forwarder = self.random.choice(self.brokers)
        seconds = self.random.choice((8, 60))
        work = forwarder.append([batch(sequence, producer=producer)], acks=-1, seconds=seconds)
        [answer], _ = await asyncio.get_running_loop().create_task(work, context=runtime.context())
        if answer is None:
            return self._append(producer, sequence)
        if isinstance(answer, PartitionProduceResponse) and not answer.error_code:
            return answer.base_offset
        code = answer[0] if isinstance(answer, tuple) else answer.error_code
        assert code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER), answer
        return None

    def _append(self, producer: int, sequence: int) -> int:
        """As the log does: what was mirrored of the producer is known."""
        assert self.boundary is not None, "appended while the source owns the log"
        write = producer, sequence
        log = self.source.logs[0][: self.boundary] + self.here
        if write in log:
            return log.index(write)
        self.here.append(write)
        return len(log)

    async def unrest(self) -> None:
        while True:
            await self.runtime.sleep(self.random.expovariate(0.5))
            event = self.random.random()
            if event < 0.4:
                self.source.leaders[0] = 3 - self.source.leaders[0]
            elif event < 0.7:
                self.source.seconds = self.random.choice((0.005, 0.005, 0.2, 2.0))
            elif self.by_hand:
                self.random.choice(self.brokers)[0].pause(self.random.uniform(1, 20))

    async def switch(self) -> None:
        """Once or twice in vain, and then for good."""
        for _ in range(self.random.choice((0, 1, 2))):
            await self.runtime.sleep(self.random.uniform(0.5, 4))
            await self._fence()
            await self.runtime.sleep(self.random.uniform(0, 2))
            self.logs.links[TOPIC] = Link("old", is_pending=False)  # the call that lifts the fence has ended
            await self.runtime.sleep(self.random.uniform(0, 0.05))
            self.source.fence = 0
        await self.runtime.sleep(self.random.uniform(0.5, 4))
        await self._fence()
        self.boundary = await self._settled()
        self.logs.decide({0: self.boundary})

    async def _fence(self) -> None:
        if self.by_hand:
            self.source.seconds = self.random.choice((0.005, 1.0))
            await self.runtime.sleep(self.random.uniform(0, 2))
            # What it knew of the link is old when it wakes.
            self.random.choice(self.brokers)[0].pause(self.random.uniform(5, 30))
        self.logs.pending(by_hand=self.by_hand)
        await self.runtime.sleep(self.random.uniform(0, 0.3))
        if not self.by_hand:
            self.source.fence = self.random.choice(
                (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )

    async def _settled(self) -> int:
        moment = 10.0 if self.by_hand else 0.1
        while True:
            end = len(self.source.logs[0])
            await self.runtime.sleep(moment)
            if len(self.source.logs[0]) == end:
                return end

    def faults(self) -> list[str]:
        assert self.boundary is not None
        log = self.source.logs[0][: self.boundary] + self.here
        found = [f"{write} is there twice" for write in set(log) if log.count(write) > 1]
        for write, offset in self.acknowledged.items():
            if not (offset < len(log) and log[offset] == write):
                found.append(f"{write} was acknowledged at {offset} and is not there")
        for producer in {producer for producer, _ in log}:
            sequences = [sequence for each, sequence in log if each == producer]
            if sequences != sorted(sequences):
                found.append(f"the records of {producer} are out of order")
        return found


def play(seed: int) -> Move:
    async def whole() -> Move:
        move = Move(seed)
        runtime = move.runtime
        tasks = [runtime.spawn(move.produce(producer), "producer") for producer in (1, 2, 3)]
        switch = runtime.spawn(move.switch(), "switch")
        unrest = runtime.spawn(move.unrest(), "unrest")
        await switch
        for task in tasks:
            await task
        unrest.cancel()
        assert len(move.acknowledged) == 3 * RECORDS
        failures = [error for each in (runtime, *(one for one, _ in move.brokers)) for error in each.failures]
        assert failures == []
        return move

    return run(whole())


def test_nothing_is_lost_twice_or_out_of_order() -> None:
    moves = {seed: play(seed) for seed in SEEDS}
    assert {seed: found for seed, move in moves.items() if (found := move.faults())} == {}
    assert sum(bool(move.here) for move in moves.values()) > len(SEEDS) / 2
    assert any(move.boundary and move.here for move in moves.values())


def _ignores_the_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "COUNTS_SECONDS", 10_000.0)


def _believes_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(self: ProduceForwarder, each: Any, boundary: int) -> None:
        self.ours.add(each.batch.stream)
        each.finish(each.acknowledged)

    monkeypatch.setattr(ProduceForwarder, "_is_decided", decided)


@pytest.mark.parametrize("mutate", [_ignores_the_age, _believes_every_answer])
def test_without_the_rule_a_record_is_lost(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    assert play(STOOD_STILL).faults() == []
    mutate(monkeypatch)
    [fault] = play(STOOD_STILL).faults()
    assert fault.endswith("was acknowledged at 27 and is not there")
