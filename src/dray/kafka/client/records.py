"""Records in and out of partitions: produce, fetch, and the offsets of a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final
from uuid import UUID

from dray.kafka.client.cluster import Cluster, Place
from dray.kafka.client.connection import Caller
from dray.kafka.client.errors import check
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.protocol.wire import Buffer, Records
from dray.kafka.records import HEADER_SIZE, read_header
from dray.kafka.records.header import CONTROL

LATEST: Final = -1
EARLIEST: Final = -2
INT64_MAX: Final = 2**63 - 1
"""The largest offset, and the latest time."""

_TIMEOUT_MS: Final = 30_000
_FETCH_WAIT_MS: Final = 500
_ALL_REPLICAS: Final = -1
_MOST_PLACES: Final = 5000
"""Of one request: a broker refuses one with more elements than its `limits.request_elements`."""


async def produce(caller: Caller, topic: str, topic_id: UUID, batches: Mapping[int, Buffer]) -> None:
    """One batch for each partition, all stored when this returns."""
    data = [PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()]
    response = await caller.request(
        ProduceRequest(
            acks=_ALL_REPLICAS,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(topic_id=topic_id, name=topic, partition_data=data)],
        )
    )
    for answer in response.responses[0].partition_responses:
        check(f"cannot produce to {topic}-{answer.index}", answer.error_code, answer.error_message)


async def fetch(
    caller: Caller,
    topic: str,
    topic_id: UUID,
    offsets: Mapping[int, int],
    *,
    max_bytes: int,
    partition_bytes: int | None = None,
    committed: bool = False,
) -> list[PartitionData]:
    """The records of partitions from an offset on; each answer has its own error. If there is none yet, it
    waits a moment for some to come. `committed`: none of open transactions, and aborted ones are named."""
    wanted = [
        FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes or max_bytes
        )
        for partition, offset in offsets.items()
    ]
    response = await caller.request(
        FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            topics=[FetchTopic(topic_id=topic_id, topic=topic, partitions=wanted)],
        )
    )
    check(f"cannot fetch from {topic}", response.error_code)
    return [data for answered in response.responses for data in answered.partitions]


async def list_offsets(
    cluster: Cluster, places: Iterable[Place], time: int, *, committed: bool = False
) -> dict[Place, ListOffsetsPartitionResponse]:
    """The first offset of a time (or EARLIEST, LATEST) as each leader answers, -1 where no record is as late.
    Leaders are those that the cluster's view knows; a place without one is left out. `committed`: LATEST is
    before the first record of a transaction that is open."""
    found: dict[Place, ListOffsetsPartitionResponse] = {}
    waiting = iter(places)
    while some := list(islice(waiting, _MOST_PLACES)):
        found |= await _list_some_offsets(cluster, some, time, committed)
    return found


async def _list_some_offsets(
    cluster: Cluster, places: Iterable[Place], time: int, committed: bool
) -> dict[Place, ListOffsetsPartitionResponse]:
    found: dict[Place, ListOffsetsPartitionResponse] = {}
    for leader, topics in cluster.view.by_leader(places).items():
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=time) for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        async with cluster.broker(leader) as broker:
            response = await broker.request(request)
        for answered in response.topics:
            for item in answered.partitions:
                found[answered.name, item.partition_index] = item
    return found


def joined(records: Records | None) -> bytes | bytearray | memoryview:
    """Responses are decoded with their records in one piece; only those that are sent may have several."""
    if records is None:
        return b""
    return records if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)


def count_records(records: Records | None) -> tuple[int, int]:
    """How many records these batches hold, and the offset after the last; a cut-off batch counts not."""
    view = memoryview(joined(records))
    position = count = upto = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if position + header.size > len(view):
            break
        if not header.attributes & CONTROL:
            count += header.record_count
        upto = header.base_offset + header.last_offset_delta + 1
        position += header.size
    return count, upto
