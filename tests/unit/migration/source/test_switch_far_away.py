"""How long writers are fenced while a topic of many partitions is switched, far away from its source: the
number of requests, one after the other, is that of one partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, cast

import pytest

from dray.base.runtime import Runtime, gather_some
from dray.kafka.client.cluster import Address, Cluster, ClusterView
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from dray.kafka.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dray.migration.live.switch import Destination, SwitchFailed, TopicSwitch, expected_pause
from dray.migration.source.source import SourceEnd, SourceProducer, SourceTopic, all_of
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

ROUND_TRIP: Final = 0.010
STORE: Final = 0.005
"""What each question to Dray's own store takes."""
PARTITIONS: Final = 1000
LEADERS: Final = 3
END: Final = 7
LONGEST_PAUSE: Final = 3.0


class FarCluster:
    """A source 10 ms away, whose partitions are fenced. It counts what it is asked, each by its kind, and
    answers one request of a connection after the other."""

    def __init__(self, runtime: Runtime, partitions: int = PARTITIONS) -> None:
        self.view = ClusterView()
        self.asked: Counter[str] = Counter()
        self.silent: set[Address] = set()
        self.moved: set[int] = set()
        self.left_out: set[int] = set()
        self._runtime = runtime
        self._partitions = partitions
        self._busy_until: dict[Address, float] = {}

    async def learn(self, topics: list[str]) -> MetadataResponse:
        await self._runtime.sleep(ROUND_TRIP)
        answer = MetadataResponse(
            brokers=[MetadataResponseBroker(each, "h", each) for each in range(LEADERS)],
            topics=[
                MetadataResponseTopic(
                    name=topics[0],
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=each, leader_id=each % LEADERS, leader_epoch=4
                        )
                        for each in range(self._partitions)
                    ],
                )
            ],
        )
        self.view.learn(answer)
        return answer

    @asynccontextmanager
    async def broker(self, address: Address) -> AsyncIterator[FarBroker]:
        yield FarBroker(self, address)

    async def ask(self, address: Address, request: object) -> Any:
        self.asked[type(request).__name__] += 1
        now = self._runtime.monotonic()
        answered = max(now, self._busy_until.get(address, now)) + ROUND_TRIP
        self._busy_until[address] = answered
        await self._runtime.sleep(answered - now)
        if address in self.silent:
            raise ClientError(f"{address[0]}:{address[1]}: refused")
        match request:
            case ProduceRequest():
                return self._produce(request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case OffsetForLeaderEpochRequest():
                return self._ends(request)
            case DescribeProducersRequest():
                return self._producers(request)
        raise AssertionError(request)

    def _led(self, partition: int) -> int:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if partition in self.moved else ErrorCode.NONE

    def _answered(self, partitions: Collection[int]) -> list[int]:
        return [each for each in partitions if each not in self.left_out]

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        asked = self._answered([each.index for each in request.topic_data[0].partition_data])
        fenced = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answers = [
            PartitionProduceResponse(index=each, error_code=self._led(each) or fenced) for each in asked
        ]
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=answers)])

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = self._answered([each.partition_index for each in request.topics[0].partitions])
        offset = 0 if request.topics[0].partitions[0].timestamp == -2 else END
        answers = [ListOffsetsPartitionResponse(each, self._led(each), -1, offset, 4) for each in asked]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", answers)])

    def _ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        asked = self._answered([each.partition for each in request.topics[0].partitions])
        answers = [EpochEndOffset(self._led(each), each, 4, END) for each in asked]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("orders", answers)])

    def _producers(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        asked = self._answered(request.topics[0].partition_indexes)
        answers = [
            PartitionResponse(each, self._led(each), None, [ProducerState(5, 0, END - 1)]) for each in asked
        ]
        return DescribeProducersResponse(topics=[TopicResponse("orders", answers)])


class FarBroker:
    def __init__(self, cluster: FarCluster, address: Address) -> None:
        self._cluster = cluster
        self._address = address

    async def request(self, request: object) -> Any:
        return await self._cluster.ask(self._address, request)


class FarDestination:
    """All of it is mirrored. Dray's store takes its time for each question."""

    def __init__(self, runtime: Runtime, random: Random) -> None:
        self._runtime = runtime
        self._random = random
        self.decided: dict[int, int] = {}
        self.refused: set[int] = set()
        self.at_once = self.most_at_once = 0

    async def end(self, _: int) -> int:
        await self._runtime.sleep(STORE)
        return END

    async def last_epoch(self, _: int) -> int | None:
        await self._runtime.sleep(STORE)
        return 4

    async def producers(self, _: int) -> list[SourceProducer]:
        await self._runtime.sleep(STORE)
        return [SourceProducer(5, 0, END - 1)]

    async def boundary(self, partition: int) -> int | None:
        await self._runtime.sleep(STORE)
        return self.decided.get(partition)

    async def decide(self, partition: int, boundary: int, *_: object) -> bool:
        """A snapshot is written and read, the record is looked at, then comes the compare-and-set."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self._runtime.sleep(5 * STORE * self._random.uniform(1, 2))
        self.at_once -= 1
        if partition in self.refused:
            return False
        self.decided[partition] = boundary
        return True


class FarFence:
    """Notes when it was put up: from then on writers wait."""

    is_probed = True
    moment_seconds = 0.1

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.up_at: float | None = None
        self.lifted = 0

    async def check(self, _: object, /) -> None:
        return None

    async def put_up(self) -> None:
        self.up_at = self._runtime.monotonic()
        await self._runtime.sleep(ROUND_TRIP)

    async def lift(self) -> None:
        self.lifted += 1


class Far:
    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.runtime = SimulatedRuntime(1)
        self.cluster = FarCluster(self.runtime, partitions)
        self.source = SourceTopic(cast(Cluster, self.cluster), "orders")
        self.target = FarDestination(self.runtime, Random(1))
        self.fence = FarFence(self.runtime)

    def switch(self) -> TopicSwitch:
        destination = cast(Destination, self.target)
        return TopicSwitch(self.source, destination, self.fence, self.runtime, give_up_seconds=30)


async def switched(partitions: int) -> tuple[float, Counter[str], int]:
    """How long writers waited, what was asked of the source, and how many were decided side by side."""
    far = Far(partitions)
    found = await far.switch().run()
    assert found == dict.fromkeys(range(partitions), END)
    assert far.fence.up_at is not None
    return far.runtime.monotonic() - far.fence.up_at, far.cluster.asked, far.target.most_at_once


def test_a_thousand_partitions_ten_milliseconds_away_are_switched_in_less_than_three_seconds() -> None:
    seconds, asked, at_once = run(switched(PARTITIONS))
    assert seconds < LONGEST_PAUSE
    few, asked_of_few, _ = run(switched(LEADERS))
    assert asked["ProduceRequest"] == asked_of_few["ProduceRequest"] == LEADERS
    assert asked["ListOffsetsRequest"] == asked_of_few["ListOffsetsRequest"]
    assert asked["OffsetForLeaderEpochRequest"] == asked_of_few["OffsetForLeaderEpochRequest"]
    assert asked["DescribeProducersRequest"] <= LEADERS * 4, "some hundred partitions in each"
    assert asked.total() < 100
    assert few < seconds
    assert 1 < at_once <= 32, "side by side, and not all of their producers in memory at once"


@pytest.mark.parametrize("partitions", [3, 100, 1000])
def test_the_pause_that_a_preview_expects_is_about_that_of_the_switch(partitions: int) -> None:
    async def play() -> tuple[float, float]:
        far = Far(partitions)
        await far.source.learn()
        began = far.runtime.monotonic()
        await far.source.measure(range(partitions))
        heard = far.runtime.monotonic()
        await gather_some(map(far.target.end, range(partitions)))
        here = far.runtime.monotonic() - heard
        expected = expected_pause(heard - began, here, partitions, far.fence.moment_seconds)
        return expected, (await switched(partitions))[0]

    expected, found = run(play())
    assert found / 3 < expected < 3 * found


def test_a_decision_that_fails_lets_the_others_come_to_their_end() -> None:
    """Only then it is known whether there is a way back."""

    async def play() -> None:
        far = Far(10)
        far.target.refused = {0}
        with pytest.raises(Exception, match="partition 0 has changed at Dray") as stuck:
            await far.switch().run()
        assert type(stuck.value).__name__ == "SwitchStuck"
        assert sorted(far.target.decided) == list(range(1, 10))
        assert far.fence.lifted == 0
        assert far.target.at_once == 0, "none is under way any more"

    run(play())


def test_a_partition_that_moves_does_not_hold_up_what_the_others_are_asked() -> None:
    async def play() -> None:
        far = Far(10)
        await far.source.learn()
        far.cluster.moved = {4}
        far.cluster.left_out = {5}
        found = await far.source.measure(range(10))
        failed = {each: str(why) for each, why in found.items() if not isinstance(why, SourceEnd)}
        assert failed == {
            4: "cannot list the offsets of orders-4: NOT_LEADER_OR_FOLLOWER",
            5: "orders-5 is not in its leader's answer",
        }
        with pytest.raises(RequestFailed, match="orders-4: NOT_LEADER_OR_FOLLOWER"):
            all_of(found)

    run(play())


def test_a_leader_that_is_gone_says_nothing_of_its_own_partitions_alone() -> None:
    async def play() -> None:
        far = Far(6)
        await far.source.learn()
        far.cluster.silent = {("h", 1)}
        found = await far.source.probe(range(7))
        assert {each for each, why in found.items() if isinstance(why, ClientError)} == {1, 4}
        assert str(found[6]) == "orders-6 has no leader at the source"
        assert far.cluster.asked["ProduceRequest"] == LEADERS
        far.cluster.moved = set(range(6))
        with pytest.raises(SwitchFailed, match="was not ready within 30 s: it still has to probe"):
            await far.switch().run()
        assert far.fence.lifted == 1

    run(play())
