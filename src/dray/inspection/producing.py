"""Records, produced: one, by people who try something out, or a batch of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from dray.client import ClientError, KafkaConnection
from dray.client.errors import check
from dray.inspection.brokers import Brokers
from dray.inspection.reading import NoSuchPartition, NoSuchTopic
from dray.protocol import ErrorCode
from dray.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.records import BytesColumn, Columns, Record, encode

_TIMEOUT_MS: Final = 10_000
_ALL: Final = -1


async def produce(
    brokers: Brokers, topic: str, partition: int | None, key: bytes | None, value: bytes | None
) -> tuple[int, int]:
    """The partition and the offset that the record got. The record is sent once. If the answer is lost, it is
    not known whether the record is stored."""
    metadata = await brokers.metadata([topic])
    found = metadata.topics[0]
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoSuchTopic(f"there is no topic {topic}")
    check(f"cannot produce to {topic}", found.error_code)
    leaders = {item.partition_index: item.leader_id for item in found.partitions}
    chosen = brokers.runtime.random.choice(sorted(leaders)) if partition is None else partition
    if chosen not in leaders:
        raise NoSuchPartition(f"topic {topic} has no partition {chosen}")
    address = next(
        ((each.host, each.port) for each in metadata.brokers if each.node_id == leaders[chosen]), None
    )
    if address is None:
        raise ClientError(f"{topic}-{chosen} has no leader")
    batch = encode_records([Record(0, brokers.runtime.wall_ms(), key, value, [])])
    async with brokers.fresh(address) as connection:
        return chosen, await produce_batch(connection, topic, found.topic_id, chosen, batch)


async def produce_batch(
    connection: KafkaConnection, topic: str, topic_id: UUID, partition: int, batch: bytearray
) -> int:
    """The offset that its first record got."""
    request = ProduceRequest(
        acks=_ALL,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                topic_id=topic_id,
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )
    response = await connection.request(request)
    answer = response.responses[0].partition_responses[0]
    check(f"cannot produce to {topic}-{partition}", answer.error_code, answer.error_message)
    return answer.base_offset


def encode_records(records: Sequence[Record]) -> bytearray:
    """One batch of them, in their order; offsets are the broker's to give."""
    count = len(records)
    headers = [header for record in records for header in record.headers]
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record.headers))
    none = array("i", [-1] * count).tobytes()
    return encode(
        Columns(
            row_count=count,
            header_count=len(headers),
            offsets=array("q", range(count)).tobytes(),
            timestamps=array("q", [record.timestamp for record in records]).tobytes(),
            producer_ids=array("q", [-1] * count).tobytes(),
            producer_epochs=none,
            base_sequences=none,
            attributes=bytes(4 * count),
            keys=_column([record.key for record in records]),
            values=_column([record.value for record in records]),
            headers=array("i", ends).tobytes(),
            header_keys=_column([name.encode() for name, _ in headers]),
            header_values=_column([value for _, value in headers]),
        )
    )


def _column(items: Sequence[bytes | None]) -> BytesColumn:
    ends, there = [0], bytearray((len(items) + 7) // 8)
    for number, item in enumerate(items):
        ends.append(ends[-1] + len(item or b""))
        there[number >> 3] |= (item is not None) << (number & 7)
    return BytesColumn(array("i", ends).tobytes(), b"".join(item or b"" for item in items), bytes(there))
