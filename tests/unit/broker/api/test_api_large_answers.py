"""Answers that are large: weighed, reserved, encoded in pieces, and refused where they are too large."""

from __future__ import annotations

import asyncio
import tracemalloc
from random import Random

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import FakeConnection, running
from tests.unit.kafka.protocol.kio_oracle import Case, all_cases, random_entity, to_ours

from dray.base.runtime import CloseConnection, FairWork, SystemRuntime
from dray.broker.api.shared import RefuseConnection, large_answers
from dray.broker.api.shared.context import PIECES_PER_TURN
from dray.broker.api.shared.large_answers import AT_ONCE, BYTES_OF_A_PIECE, AnswerTooLarge, LargeAnswer, weigh
from dray.broker.topics import NewTopic
from dray.kafka.protocol import ENDLESS, ErrorCode, Response
from dray.kafka.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from dray.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dray.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.protocol.wire import Cuts
from dray.log.types import ActiveProducer

MIB = 1 << 20
RESPONSES = [
    case
    for case in all_cases()
    if case.version == case.message.VERSIONS[1] and case.message.__name__.endswith("Response")
]


class Room:
    """The memory for answers: what was asked of it."""

    def __init__(self, free: int = ENDLESS) -> None:
        self.free = free
        self.taken: list[int] = []
        self.waited: list[int] = []

    def most(self) -> int:
        return self.free

    def take(self, size: int) -> bool:
        if size <= self.free:
            self.taken.append(size)
        return size <= self.free

    async def wait(self, size: int, seconds: float) -> bool:
        assert seconds > 0
        self.waited.append(size)
        return False


class Turns(SystemRuntime):
    def __init__(self) -> None:
        super().__init__(threads=1)
        self.slept = 0

    async def sleep(self, seconds: float) -> None:
        assert seconds == 0
        self.slept += 1


def large(limit: int = 16 * MIB, room: Room | None = None) -> tuple[LargeAnswer, Room, Turns]:
    connection, turns, room = FakeConnection(), Turns(), room or Room()
    connection.room = lambda: room  # type: ignore[assignment,return-value]
    return LargeAnswer(turns, 5, connection, limit, FairWork(512)), room, turns


def encoded(response: Response, version: int) -> bytes:
    return b"".join(bytes(buffer) for buffer in response.encode(version))


@pytest.mark.parametrize("case", RESPONSES, ids=str)
def test_the_weight_of_every_answer_is_about_its_size(case: Case) -> None:
    """What is heavier than it seems would be encoded in one turn, and not be reserved."""
    for seed in range(20):
        response = to_ours(random_entity(case.kio, Random(f"{case}{seed}")), case.message)
        size = len(encoded(response, case.version))
        assert size / 4 - 50 <= weigh(response, ENDLESS) <= 8 * size + 100


def test_weighing_ends_where_it_is_enough() -> None:
    topics = [MetadataResponseTopic(name="x" * 1000) for _ in range(10_000)]
    assert AT_ONCE < weigh(MetadataResponse(topics=topics), AT_ONCE) < 2 * AT_ONCE


async def test_an_answer_is_encoded_in_pieces_with_turns_between_and_is_the_same() -> None:
    def answer() -> MetadataResponse:
        some = [MetadataResponsePartition(partition_index=number) for number in range(20)]
        many = [MetadataResponsePartition(partition_index=number) for number in range(20_000)]
        return MetadataResponse(
            topics=[
                *(MetadataResponseTopic(name=f"t{number}", partitions=some) for number in range(1000)),
                MetadataResponseTopic(name="large", partitions=many),
                *(MetadataResponseTopic(name=f"u{number}", partitions=some) for number in range(1000)),
            ]
        )

    making, room, turns = large()
    made = answer()
    await making.write_lists(made)
    whole = encoded(answer(), 5)
    assert encoded(made, 5) == whole
    pieces = len(whole) // AT_ONCE
    assert turns.slept >= pieces > 10
    assert room.taken == sorted(room.taken)
    assert len(whole) - AT_ONCE < room.taken[-1] <= len(whole)
    assert all(
        later - earlier < 2 * AT_ONCE for earlier, later in zip(room.taken, room.taken[1:], strict=False)
    )


@pytest.mark.parametrize("partitions", range(1500, 3100, 200))
async def test_what_is_written_as_it_is_made_and_then_settled_is_the_same(partitions: int) -> None:
    """Written, such a topic is lighter than it was weighed: its partitions were left out of the answer."""

    def topics() -> list[MetadataResponseTopic]:
        parts = [MetadataResponsePartition(partition_index=number) for number in range(partitions)]
        small = MetadataResponseTopic(name="small", partitions=parts[:3])
        return [small, MetadataResponseTopic(name="large", partitions=parts), small]

    making, room, _ = large()
    made = topics()
    await making.write(made)
    settled = MetadataResponse(topics=made)
    await making.write_lists(settled)
    whole = encoded(MetadataResponse(topics=topics()), 5)
    assert encoded(settled, 5) == whole
    assert room.taken[-1] <= len(whole)


async def test_answers_that_are_made_together_share_the_pieces_of_a_turn() -> None:
    """A piece of each in every turn, a hundred of them together, were half a second."""
    work, connection, written = FairWork(PIECES_PER_TURN), FakeConnection(), 0

    class Noting(MetadataResponseTopic):
        __slots__ = ()

        def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
            nonlocal written
            written += 1
            super().write(out, version, cuts)

    async def make() -> None:
        parts: list[MetadataResponseTopic] = [Noting(name="x" * 1000) for _ in range(1000)]
        await LargeAnswer(runtime, 5, connection, 16 * MIB, work).write_lists(MetadataResponse(topics=parts))

    runtime, in_a_turn = SystemRuntime(threads=1), []
    making = [asyncio.ensure_future(make()) for _ in range(20)]
    while not all(each.done() for each in making):
        before = written
        await asyncio.sleep(0)
        in_a_turn.append(written - before)
    assert written == 20_000
    of_a_turn = PIECES_PER_TURN * BYTES_OF_A_PIECE // 1000
    assert max(in_a_turn) <= 3 * of_a_turn


async def test_what_the_handler_made_its_answer_of_is_left_as_it_is() -> None:
    kept = [MetadataResponseTopic(name="x" * 1000) for _ in range(100)]
    making, _, _ = large()
    await making.write_lists(MetadataResponse(topics=kept))
    assert all(type(topic) is MetadataResponseTopic for topic in kept)


async def test_what_does_not_fit_is_refused_before_it_takes_memory() -> None:
    """1,223 bytes of DescribeGroups became 1.2 GB: the metadata of one member, six hundred times."""
    metadata = bytes(MIB)
    answer = DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id="g", members=[DescribedGroupMember(member_metadata=metadata)])
            for _ in range(600)
        ]
    )
    making, room, _ = large()
    tracemalloc.start()
    try:
        with pytest.raises(AnswerTooLarge, match="16777216 bytes"):
            await making.write_lists(answer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB
    assert room.taken[-1] <= 16 * MIB


@pytest.mark.parametrize("topics", [1, 100])
async def test_producers_are_written_as_they_are_described(topics: int) -> None:
    """A partition may have thousands: all of them were in memory before the answer was found too large."""
    described = 0

    async def producers(_stream: int) -> list[ActiveProducer]:
        nonlocal described
        described += 1
        return [ActiveProducer(number, 0, 0, 0) for number in range(1000)]

    async with running(room_settings.api(one_answer_bytes=20 * AT_ONCE)) as broker:
        for number in range(topics):
            await broker.topics.create(NewTopic(f"t{number:02}", 100 // topics))
        broker.log.producers = producers  # type: ignore[method-assign,assignment]
        named = [TopicRequest(f"t{number:02}", list(range(100 // topics))) for number in range(topics)]
        with pytest.raises(RefuseConnection, match="larger than"):
            await broker.ask(DescribeProducersRequest(topics=named), 0)
    assert described < 60, "a hundred are 3.6 MB"


async def test_no_memory_for_answers_is_waited_for_and_then_ends_the_connection() -> None:
    """It was an INVALID_REQUEST, at which clients give up: a moment later there is memory."""
    making, room, _ = large(room=Room(AT_ONCE * 3))
    topics = [MetadataResponseTopic(name="x" * 1000) for _ in range(1000)]
    with pytest.raises(CloseConnection, match=r"limits\.answer_bytes"):
        await making.write_lists(MetadataResponse(topics=topics))
    assert len(room.waited) == 1


async def test_an_answer_above_the_limit_is_an_invalid_request_or_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as broker:
        for number in range(20):
            await broker.topics.create(NewTopic(f"t{number:02}", 2))
        everything = MetadataRequest(topics=None)
        whole = await broker.ask(everything, 13)
        assert len(whole.topics) == 20
    monkeypatch.setattr(large_answers, "AT_ONCE", 100)
    monkeypatch.setattr("dray.broker.api.shared.context.AT_ONCE", 100)
    async with running(room_settings.api(one_answer_bytes=500)) as broker:
        for number in range(20):
            await broker.topics.create(NewTopic(f"t{number:02}", 2))
        answer = await broker.ask(everything, 13)
        assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])
        with pytest.raises(RefuseConnection, match="larger than"):
            await broker.ask(everything, 12)  # which has no place for an error
