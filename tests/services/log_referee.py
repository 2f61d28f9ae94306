"""What a cluster answers of one topic, request by request: taken of two clusters, it can be compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from dray.base.runtime import SystemRuntime
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.connection import Dialer
from dray.kafka.client.errors import ClientError, check
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.migration.formats.batches import walk_batches
from tests.services.batches import joined

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
ISOLATIONS = {"read_uncommitted": 0, "read_committed": 1}
PATIENCE = 120.0

_EPOCH_AT, _EPOCH_ENDS = 12, 16
_FETCH_BYTES = 1 << 20
_ASKED = 100
"""At about so many batches of a partition, times and places are asked for."""


class SeenBatch(NamedTuple):
    base_offset: int
    last_offset: int
    data: bytes
    """Without the leader epoch, which each cluster has of its own; no checksum covers it."""


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int


@dataclass(frozen=True)
class PartitionAnswers:
    batches: dict[str, list[SeenBatch]]
    """By isolation."""
    aborted: frozenset[tuple[int, int]]
    """Producer and first offset of every aborted transaction that read_committed was given."""
    named: dict[tuple[int, str], FoundOffset]
    """By name of a time, and isolation."""
    times: dict[int, FoundOffset]
    epochs: dict[int, tuple[int, int]]
    """By epoch that was asked for: the epoch that was answered, and its end."""
    places: dict[int, int]
    """By offset: the base offset of the first batch that a fetch there is given."""


class TopicReferee:
    """Asks the leader of each partition, again while there is none."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    async def answers(
        self,
        partition: int,
        *,
        epochs: Iterable[int],
        times: Collection[int] | None = None,
        places: Collection[int] | None = None,
    ) -> PartitionAnswers:
        """Without `times` and `places`: those at which some batches begin and end, and beside them."""
        seen, _ = await self.read(partition, "read_uncommitted")
        committed, aborted = await self.read(partition, "read_committed")
        some = seen[:: max(1, len(seen) // _ASKED)]
        if times is None:
            times = {moment + near for batch in some for moment in _times(batch.data) for near in (-1, 0, 1)}
        if places is None:
            places = {place for batch in some for place in (batch.base_offset, batch.last_offset)}
        end = (await self.offset(partition, LATEST)).offset
        return PartitionAnswers(
            {"read_uncommitted": seen, "read_committed": committed},
            aborted,
            {
                (name, isolation): await self.offset(partition, name, isolation)
                for name in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED)
                for isolation in ISOLATIONS
            },
            {moment: await self.offset(partition, moment) for moment in sorted(times)},
            {epoch: await self._end_of_epoch(partition, epoch) for epoch in epochs},
            {place: await self._first_batch(partition, place) for place in sorted(places) if place < end},
        )

    async def offset(self, partition: int, time: int, isolation: str = "read_uncommitted") -> FoundOffset:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=time)

        async def ask() -> FoundOffset:
            request = ListOffsetsRequest(
                isolation_level=ISOLATIONS[isolation],
                topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])],
            )
            async with self._cluster.broker(await self._leader(partition)) as broker:
                response = await broker.request(request)
            [found] = response.topics[0].partitions
            check(f"no offset of {self._topic}-{partition} at {time}", found.error_code)
            return FoundOffset(found.offset, found.timestamp)

        return await self._cluster.patiently(ask, PATIENCE)

    async def _end_of_epoch(self, partition: int, epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)

        async def ask() -> tuple[int, int]:
            request = OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic=self._topic, partitions=[asked])]
            )
            async with self._cluster.broker(await self._leader(partition)) as broker:
                response = await broker.request(request)
            [found] = response.topics[0].partitions
            check(f"no end of epoch {epoch} of {self._topic}-{partition}", found.error_code)
            return found.leader_epoch, found.end_offset

        return await self._cluster.patiently(ask, PATIENCE)

    async def read(
        self, partition: int, isolation: str
    ) -> tuple[list[SeenBatch], frozenset[tuple[int, int]]]:
        """All batches, and the aborted transactions that came with them."""
        place = (await self.offset(partition, EARLIEST)).offset
        end = (await self.offset(partition, LATEST, isolation)).offset
        batches: list[SeenBatch] = []
        aborted: set[tuple[int, int]] = set()
        while place < end:
            answer = await self._fetch(partition, place, isolation)
            aborted |= {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
            found = batches_of(joined(answer.records or b""))
            if not found:
                await asyncio.sleep(0.05)  # a tier may answer with nothing at first
                continue
            batches += found
            assert found[-1].last_offset >= place, (place, found[-1])
            place = found[-1].last_offset + 1
        return batches, frozenset(aborted)

    async def _first_batch(self, partition: int, place: int) -> int:
        while True:
            answer = await self._fetch(partition, place, "read_uncommitted", size=1)
            if found := batches_of(joined(answer.records or b"")):
                return found[0].base_offset

    async def _fetch(
        self, partition: int, place: int, isolation: str, size: int = _FETCH_BYTES
    ) -> PartitionData:
        async def ask() -> PartitionData:
            answer = await self.fetch_once(partition, place, isolation, size)
            check(f"nothing of {self._topic}-{partition} at {place}", answer.error_code)
            return answer

        return await self._cluster.patiently(ask, PATIENCE)

    async def fetch_once(
        self, partition: int, place: int, isolation: str = "read_uncommitted", size: int = _FETCH_BYTES
    ) -> PartitionData:
        """Whatever the answer is."""
        leader = await self._leader(partition)
        wanted = FetchPartition(partition=partition, fetch_offset=place, partition_max_bytes=size)
        topic_id = self._cluster.view.topic_ids[self._topic]
        request = FetchRequest(
            max_wait_ms=2_000,
            min_bytes=1,
            max_bytes=size,
            isolation_level=ISOLATIONS[isolation],
            topics=[FetchTopic(topic_id=topic_id, topic=self._topic, partitions=[wanted])],
        )
        async with self._cluster.broker(leader) as broker:
            response = await broker.request(request)
        check("fetch", response.error_code)
        [answer] = response.responses[0].partitions
        return answer

    async def _leader(self, partition: int) -> tuple[str, int]:
        known = self._cluster.view.leader(self._topic, partition)
        if known is None:
            await self._cluster.learn([self._topic])
            known = self._cluster.view.leader(self._topic, partition)
        if known is None:
            raise ClientError(f"{self._topic}-{partition} has no leader")
        return known


def batches_of(data: bytes) -> list[SeenBatch]:
    """Whole ones: a fetch may cut the last short."""
    found = []
    position = 0
    while position + _EPOCH_ENDS <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if end > len(data):
            break
        [batch] = walk_batches(data[position:end])
        plain = data[position : position + _EPOCH_AT] + bytes(4) + data[position + _EPOCH_ENDS : end]
        found.append(SeenBatch(batch.header.base_offset, batch.last_offset, plain))
        position = end
    return found


def _times(data: bytes) -> tuple[int, int]:
    [batch] = walk_batches(data)
    return batch.header.base_timestamp, batch.header.max_timestamp


@asynccontextmanager
async def opened(bootstrap: str) -> AsyncIterator[Cluster]:
    addresses = [(host, int(port)) for host, port in (each.split(":") for each in bootstrap.split(","))]
    runtime = SystemRuntime(threads=1)
    try:
        async with Cluster(addresses, Dialer(client_id="referee"), runtime) as cluster:
            yield cluster
    finally:
        runtime.close()


def offset_of(bootstrap: str, topic: str, partition: int, time: int) -> int:
    async def work() -> int:
        async with opened(bootstrap) as cluster:
            return (await TopicReferee(cluster, topic).offset(partition, time)).offset

    return asyncio.run(work())


def fetch_error(bootstrap: str, topic: str, partition: int, place: int) -> int:
    """What a fetch there is told; 0 where it is given records."""

    async def work() -> int:
        async with opened(bootstrap) as cluster:
            return (await TopicReferee(cluster, topic).fetch_once(partition, place)).error_code

    return asyncio.run(work())


def read_batches(bootstrap: str, topic: str, partition: int) -> list[SeenBatch]:
    async def work() -> list[SeenBatch]:
        async with opened(bootstrap) as cluster:
            return (await TopicReferee(cluster, topic).read(partition, "read_uncommitted"))[0]

    return asyncio.run(work())


def ask_all(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    epochs: int,
    like: dict[int, PartitionAnswers] | None = None,
) -> dict[int, PartitionAnswers]:
    """Every answer of every partition; `like` asks for the same times and places as another cluster was."""

    async def work() -> dict[int, PartitionAnswers]:
        async with opened(bootstrap) as cluster:
            referee = TopicReferee(cluster, topic)
            return {
                number: await referee.answers(
                    number,
                    epochs=range(epochs),
                    times=None if like is None else like[number].times,
                    places=None if like is None else like[number].places,
                )
                for number in range(partitions)
            }

    return asyncio.run(work())
