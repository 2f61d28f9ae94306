"""One record, produced: for people who try something out."""

from __future__ import annotations

from array import array
from typing import Final

from dray.client import ClientError
from dray.client.errors import check
from dray.inspection.brokers import Brokers
from dray.inspection.reading import NoSuchPartition, NoSuchTopic
from dray.protocol import ErrorCode
from dray.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.records import BytesColumn, Columns, encode

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
    data = PartitionProduceData(index=chosen, records=_batch(key, value, brokers.runtime.wall_ms()))
    request = ProduceRequest(
        acks=_ALL,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[TopicProduceData(topic_id=found.topic_id, name=topic, partition_data=[data])],
    )
    async with brokers.fresh(address) as connection:
        response = await connection.request(request)
    answer = response.responses[0].partition_responses[0]
    check(f"cannot produce to {topic}-{chosen}", answer.error_code, answer.error_message)
    return chosen, answer.base_offset


def _batch(key: bytes | None, value: bytes | None, now_ms: int) -> bytearray:
    none = array("i", [-1]).tobytes()
    zeros = bytes(8)
    nothing = BytesColumn(zeros[:4], b"", None)
    return encode(
        Columns(
            row_count=1,
            header_count=0,
            offsets=array("q", [0]).tobytes(),
            timestamps=array("q", [now_ms]).tobytes(),
            producer_ids=array("q", [-1]).tobytes(),
            producer_epochs=none,
            base_sequences=none,
            attributes=zeros[:4],
            keys=_column(key),
            values=_column(value),
            headers=zeros,
            header_keys=nothing,
            header_values=nothing,
        )
    )


def _column(item: bytes | None) -> BytesColumn:
    return BytesColumn(array("i", [0, len(item or b"")]).tobytes(), item or b"", bytes([item is not None]))
