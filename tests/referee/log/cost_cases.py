"""Requests that are made to cost: tagged fields in any order, names again and again, names without end."""

from __future__ import annotations

import struct

from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.referee.cases import case
from tests.referee.log.protocol_cases import METADATA, header
from tests.referee.session import Session

TOPIC = 2
BODY = b"\x01\0\0\0"
"""Of Metadata v9: no topics, and nothing that is switched on."""
MANY = 20_001
"""More than `limits.request_elements` is by default."""


def tags(*numbers: int) -> bytes:
    """Fewer than 127, each without a value."""
    return bytes([len(numbers)]) + b"".join(bytes([number, 0]) for number in numbers)


@case
async def tagged_fields(session: Session) -> None:
    """That nobody knows."""
    start = header(METADATA, 9)

    async def ask(label: str, of_header: bytes, of_request: bytes = b"\0") -> None:
        await session.raw(label, start + of_header + BODY + of_request)

    await ask("none", b"\0")
    for label, numbers in (("ascending", (100, 101)), ("descending", (101, 100)), ("repeated", (100, 100))):
        await ask(f"{label} in the header", tags(*numbers))
        await ask(f"{label} behind the request", b"\0", tags(*numbers))
    await ask("a hundred in the header", tags(*range(10, 110)))
    await ask("more in the header", tags(*range(10, 111)))
    await ask("longer than the frame", b"\0", b"\x01\x64\x7f")
    await ask("more than there are", b"\0", b"\x7f\x64\0")


@case
async def names_again_and_again(session: Session) -> None:
    topic = await session.create()
    resource = DescribeConfigsResource(TOPIC, topic, ["retention.ms"])
    for label, count in (("once", 1), ("twice", 2)):
        described = DescribeConfigsRequest(resources=[resource] * count)
        answer = await session.ask(f"configs {label}", described, 4)
        session.notes[f"configs {label}"] = len(answer.results)
        change = AlterConfigsResource(TOPIC, topic, [AlterableConfig("retention.ms", 0, "7000000")])
        await session.ask(f"change {label}", IncrementalAlterConfigsRequest(resources=[change] * count), 1)
        epoch = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        epochs = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, [epoch] * count)])
        await session.ask(f"epochs {label}", epochs, 4)
        records = [DeleteRecordsPartition(0, 0)] * count
        deleted = DeleteRecordsRequest(topics=[DeleteRecordsTopic(topic, records)], timeout_ms=10_000)
        await session.ask(f"deleted {label}", deleted, 2)
        of_topic = [TopicRequest(name=topic)] * count
        partitions = DescribeTopicPartitionsRequest(topics=of_topic, response_partition_limit=2000)
        await session.ask(f"partitions {label}", partitions, 0)


@case
async def names_without_end(session: Session) -> None:
    """How many are answered."""
    for count in (MANY - 1, MANY):
        names = [MetadataRequestTopic(name=f"{number:x}") for number in range(count)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        for version in (9, 13):
            label = f"{count} of metadata v{version}"
            answer = await session.ask(label, request, version)
            if answer is not None:
                session.notes[label] = {"error_code": answer.error_code, "topics": len(answer.topics)}
    for label, text in (("longest", 0x7FFF), ("longer", 0x8000)):
        size = struct.pack(">h", text) if text < 0x8000 else struct.pack(">H", text)
        await session.raw(f"{label} name", header(METADATA, 1) + struct.pack(">i", 1) + size + b"n" * text)
