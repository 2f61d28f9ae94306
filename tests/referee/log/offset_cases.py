"""Offsets by time, deleted records, leader epochs."""

from __future__ import annotations

from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
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
from tests.referee.cases import case
from tests.referee.log.fetch_cases import fetch, filled
from tests.referee.log.produce_cases import produce
from tests.referee.session import Session
from tests.services.batches import TIMESTAMP, batch, plain


def list_offsets(
    topic: str, *asked: tuple[int, int], leader_epoch: int = -1, isolation: int = 0
) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        for partition, timestamp in asked
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
        timeout_ms=10_000,
    )


def delete_records(topic: str, *offsets: tuple[int, int]) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=10_000
    )


@case
async def list_offsets_special(session: Session) -> None:
    topic = await filled(session)
    empty = await session.create("empty")
    for version in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7):
            label = f"v{version}, {timestamp}"
            await session.ask(label, list_offsets(topic, (0, timestamp)), version)
    for timestamp in (-1, -2, -3, -4, -5):
        await session.ask(f"empty, {timestamp}", list_offsets(empty, (0, timestamp)), 9)
    await session.ask("read committed", list_offsets(topic, (0, -1), isolation=1), 7)


@case
async def list_offsets_by_time(session: Session) -> None:
    topic = await session.create()
    for minute in (0, 1, 2, 9, 3, 4):
        data = batch(plain(b"v"), timestamp=TIMESTAMP + minute * 60_000)
        await session.send(produce(topic, (0, data)), 9)
    for minute in (-1, 0, 1, 2, 3, 4, 8, 9, 10):
        for shift in (0, 1):
            asked = TIMESTAMP + minute * 60_000 + shift
            await session.ask(f"minute {minute} + {shift} ms", list_offsets(topic, (0, asked)), 7)
    await session.ask("latest by time", list_offsets(topic, (0, -3)), 7)


@case
async def list_offsets_refused(session: Session) -> None:
    topic = await filled(session)
    await session.ask("unknown topic", list_offsets("referee-no-such-topic", (0, -1)), 7)
    await session.ask("partition beyond", list_offsets(topic, (3, -1)), 7)
    await session.ask("the same partition twice", list_offsets(topic, (0, -1), (0, -2)), 7)
    for epoch in (0, 1):
        await session.ask(f"epoch {epoch}", list_offsets(topic, (0, -1), leader_epoch=epoch), 7)


@case
async def delete_records_step_by_step(session: Session) -> None:
    topic = await filled(session, partitions=2)
    await session.ask("nothing", delete_records(topic, (0, 0)), 2)
    await session.ask("inside a batch", delete_records(topic, (0, 1)), 2)
    await session.ask("earliest then", list_offsets(topic, (0, -2)), 7)
    await session.ask("fetch below", fetch(topic, (0, 0)), 12)
    await session.ask("fetch the rest", fetch(topic, (0, 1)), 12)
    await session.ask("backwards", delete_records(topic, (0, 0)), 2)
    await session.ask("beyond the end", delete_records(topic, (0, 7)), 2)
    await session.ask("negative", delete_records(topic, (0, -2)), 2)
    await session.ask("to the end", delete_records(topic, (0, -1), (1, 6)), 1)
    await session.ask("latest then", list_offsets(topic, (0, -1), (1, -1)), 7)
    await session.ask("by time then", list_offsets(topic, (0, 0)), 7)
    await session.ask("max timestamp then", list_offsets(topic, (0, -3)), 7)
    await session.ask("goes on", produce(topic, (0, batch(plain(b"a")))), 9)
    await session.ask("unknown topic", delete_records("referee-no-such-topic", (0, 0)), 2)
    await session.ask("partition beyond", delete_records(topic, (5, 0)), 2)


@case
async def delete_records_and_policies(session: Session) -> None:
    for number, policy in enumerate(("delete", "compact", "compact,delete", "")):
        topic = await session.create(str(number), configs={"cleanup.policy": policy})
        await session.send(produce(topic, (0, batch(plain(b"a", b"b")))), 9)
        await session.ask(f"policy {policy!r}", delete_records(topic, (0, 1)), 2)


@case
async def leader_epochs(session: Session) -> None:
    topic = await filled(session)

    def ask(name: str, partition: int, current: int, wanted: int) -> OffsetForLeaderEpochRequest:
        entry = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=wanted
        )
        return OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=name, partitions=[entry])]
        )

    for version in (2, 3, 4):
        await session.ask(f"v{version}", ask(topic, 0, 0, 0), version)
    await session.ask("no current epoch", ask(topic, 0, -1, 0), 4)
    await session.ask("current epoch ahead", ask(topic, 0, 3, 0), 4)
    await session.ask("asked epoch ahead", ask(topic, 0, 0, 3), 4)
    await session.ask("asked epoch -1", ask(topic, 0, 0, -1), 4)
    await session.ask("epochs of an empty log", ask(await session.create("empty"), 0, 0, 0), 4)
    await session.ask("unknown topic", ask("referee-no-such-topic", 0, 0, 0), 4)
    await session.ask("partition beyond", ask(topic, 4, 0, 0), 4)
