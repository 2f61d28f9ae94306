"""What a source's answer becomes: whole batches, the place after them, and reasons to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack
from typing import cast
from uuid import UUID

import pytest

from dray.kafka.client.cluster import Cluster, ClusterView
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.kafka.records import Record, patch, twin
from dray.migration.source.mirror import (
    Aborted,
    MirrorOvertaken,
    MirrorPiece,
    MirrorPlace,
    MirrorReader,
    MirrorStopped,
    piece_of,
)
from dray.migration.source.source import EARLIEST, Leadership, SourceTopic


def batch(base: int, count: int, epoch: int = 4) -> bytes:
    made = bytearray(twin.encode([Record(number, 0, value=b"x") for number in range(count)]))
    patch(made, 0, base, epoch)
    return bytes(made)


def answer(records: bytes = b"", **more: object) -> PartitionData:
    return PartitionData(
        partition_index=3,
        records=records,
        last_stable_offset=20,
        log_start_offset=2,
        **more,  # type: ignore[arg-type]
    )


def test_batches_with_holes_between_them() -> None:
    records = batch(5, 3) + batch(10, 2, epoch=6)
    piece = piece_of(answer(records), MirrorPlace(5))
    assert bytes(piece.batches) == records
    assert piece.place == MirrorPlace(12, 6)
    assert (piece.partition, piece.source_start, piece.last_stable) == (3, 2, 20)


def test_a_batch_that_is_cut_off_comes_again() -> None:
    first, second = batch(5, 3), batch(8, 9)
    for length in range(len(second)):
        piece = piece_of(answer(first + second[:length]), MirrorPlace(5))
        assert bytes(piece.batches) == first
        assert piece.place == MirrorPlace(8, 4)


def test_nothing_new() -> None:
    piece = piece_of(answer(), MirrorPlace(5, 4))
    assert (bytes(piece.batches), piece.place) == (b"", MirrorPlace(5, 4))


def test_aborted_transactions_of_what_came() -> None:
    listed = [AbortedTransaction(9, 6), AbortedTransaction(7, 5), AbortedTransaction(8, 8)]
    piece = piece_of(answer(batch(5, 3), aborted_transactions=listed), MirrorPlace(5))
    assert piece.aborted == (Aborted(7, 5), Aborted(9, 6)), "one that begins later belongs to a later piece"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (answer(batch(4, 3)), "begins at 4, and 5 is next"),
        (answer(batch(5, 3) + batch(7, 1)), "begins at 7, and 8 is next|begins at offset 7"),
        (answer(batch(5, 3)[:-1] + b"y"), "damaged batch: the checksum"),
        (answer(pack(">qiIbbii", 5, 18, 0, 0, 0, -1, 4) + b"old "), "records of message format 0: rewrite"),
        (answer(diverging_epoch=EpochEndOffset(3, 4)), "differs from offset 4 on"),
        (
            PartitionData(partition_index=3, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            "TOPIC_AUTHORIZATION_FAILED",
        ),
    ],
)
def test_a_partition_that_cannot_go_on(found: PartitionData, why: str) -> None:
    with pytest.raises(MirrorStopped, match=why) as stopped:
        piece_of(found, MirrorPlace(5, 4))
    assert stopped.value.partition == 3
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_leader_that_moved_or_was_just_started_is_no_reason_to_stop(code: ErrorCode) -> None:
    with pytest.raises(RequestFailed) as failed:
        piece_of(PartitionData(partition_index=3, error_code=code), MirrorPlace(5))
    assert failed.value.code == code


async def test_a_partition_that_cannot_go_on_holds_up_no_other_of_its_leader() -> None:
    whole, damaged = batch(5, 3), bytearray(batch(5, 3))
    damaged[-1] ^= 1
    leader = FakeLeader(
        [
            PartitionData(partition_index=0, records=whole),
            PartitionData(partition_index=1, records=bytes(damaged)),
            PartitionData(partition_index=2, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]
    )
    source = SourceTopic(cast(Cluster, leader), "moving")
    source.leaderships = {partition: Leadership(1, 4) for partition in range(3)}
    for checksums in (True, False):
        reader = MirrorReader(
            cast(Cluster, leader), source, max_bytes=1000, partition_bytes=500, checksums=checksums
        )
        found = await reader.read_each(("a", 1), dict.fromkeys(range(4), MirrorPlace(5, 4)))
        kinds = [MirrorPiece, MirrorStopped if checksums else MirrorPiece, RequestFailed, RequestFailed]
        assert [type(found[partition]) for partition in range(4)] == kinds
        with pytest.raises((MirrorStopped, RequestFailed)):
            await reader.read(("a", 1), dict.fromkeys(range(4), MirrorPlace(5, 4)))
    asked = leader.requests[0].topics[0].partitions
    assert [(each.partition, each.fetch_offset, each.last_fetched_epoch) for each in asked] == [
        (0, 5, 4),
        (1, 5, 4),
        (2, 5, 4),
    ], "the last one has no leader"


@pytest.mark.parametrize(("start", "found"), [(9, MirrorOvertaken(0, 9)), (6, MirrorOvertaken(0, 6))])
async def test_a_source_that_begins_above_the_mirror_has_lost_nothing(
    start: int, found: MirrorOvertaken
) -> None:
    """Its answer to a fetch says -1, as Kafka's does: it has to be asked."""
    reader = out_of_range(start)
    assert await reader.read_each(("a", 1), {0: MirrorPlace(5, 4)}) == {0: found}
    with pytest.raises(MirrorStopped, match=f"begins at {start} by now, and 5 is next"):
        await reader.read(("a", 1), {0: MirrorPlace(5, 4)})


@pytest.mark.parametrize("start", [0, 5])
async def test_a_source_that_ends_before_the_mirror_has_lost_records(start: int) -> None:
    found = (await out_of_range(start).read_each(("a", 1), {0: MirrorPlace(5, 4)}))[0]
    assert isinstance(found, MirrorStopped)
    assert "the source ends before 5, which was mirrored already: it has lost records" in str(found)


def out_of_range(start: int) -> MirrorReader:
    leader = FakeLeader(
        [PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=-1)],
        start,
    )
    leader.view.brokers[1] = ("a", 1)
    source = SourceTopic(cast(Cluster, leader), "moving")
    source.leaderships = {0: Leadership(1, 4)}
    return MirrorReader(cast(Cluster, leader), source, max_bytes=1000, partition_bytes=500)


def test_a_log_may_begin_within_a_batch() -> None:
    records = batch(4, 3) + batch(7, 1)
    for checksums in (True, False):
        piece = piece_of(answer(records), MirrorPlace(5), checksums=checksums)
        assert (bytes(piece.batches), piece.place) == (records, MirrorPlace(8, 4))
        with pytest.raises(MirrorStopped, match="begins at 4, and 7 is next"):
            piece_of(answer(batch(4, 3)), MirrorPlace(7), checksums=checksums)


class FakeLeader:
    """As much of a cluster as a reader asks for."""

    def __init__(self, answers: list[PartitionData], start: int = 0) -> None:
        self.view = ClusterView()
        self.view.topic_ids["moving"] = UUID(int=1)
        self.requests: list[FetchRequest] = []
        self._answers = answers
        self._start = start

    @asynccontextmanager
    async def broker(self, _: object) -> AsyncIterator[FakeLeader]:
        yield self

    async def request(
        self, request: FetchRequest | ListOffsetsRequest
    ) -> FetchResponse | ListOffsetsResponse:
        if isinstance(request, ListOffsetsRequest):
            [[asked]] = [topic.partitions for topic in request.topics]
            assert (asked.timestamp, asked.current_leader_epoch) == (EARLIEST, 4)
            found = ListOffsetsPartitionResponse(asked.partition_index, offset=self._start)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("moving", [found])])
        self.requests.append(request)
        return FetchResponse(responses=[FetchableTopicResponse(partitions=self._answers)])
