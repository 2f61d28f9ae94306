"""What a broker takes, and what it says of what it does not take."""

from __future__ import annotations

import gzip
from uuid import UUID

from dray.kafka.protocol import ZERO_UUID
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.referee.cases import case
from tests.referee.session import Session
from tests.services.batches import (
    CONTROL,
    GZIP,
    LZ4,
    SNAPPY,
    TIMESTAMP,
    TRANSACTIONAL,
    ZSTD,
    batch,
    old_message,
    plain,
    record,
)

VERSION = 11


def produce(
    topic: str, *partitions: tuple[int, bytes | None], acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in partitions]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


@case
async def produce_good_batches(session: Session) -> None:
    topic = await session.create(partitions=2)
    for version in (3, 7, 9, 12):
        await session.ask(f"v{version}", produce(topic, (0, batch(plain(b"a", b"b")))), version)
    await session.ask("acks 1", produce(topic, (0, batch(plain(b"a"))), acks=1), VERSION)
    await session.ask(
        "two partitions", produce(topic, (0, batch(plain(b"a"))), (1, batch(plain(b"b")))), VERSION
    )
    await session.ask(
        "a base offset of its own", produce(topic, (0, batch(plain(b"a"), base_offset=77))), VERSION
    )
    await session.ask("a leader epoch", produce(topic, (0, batch(plain(b"a"), leader_epoch=5))), VERSION)
    await session.ask("old timestamp", produce(topic, (0, batch(plain(b"a"), timestamp=0))), VERSION)
    await session.ask("timestamp -1", produce(topic, (0, batch(plain(b"a"), timestamp=-1))), VERSION)


@case
async def produce_by_topic_id(session: Session) -> None:
    topic = await session.create()
    topic_id = await session.until_known(topic)
    data = [PartitionProduceData(index=0, records=batch(plain(b"a")))]

    def request(wanted: UUID) -> ProduceRequest:
        return ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(topic_id=wanted, partition_data=data)]
        )

    await session.ask("known", request(topic_id), 13)
    await session.ask("unknown", request(UUID(int=1234567)), 13)
    await session.ask("zero", request(ZERO_UUID), 13)


@case
async def produce_to_nowhere(session: Session) -> None:
    topic = await session.create()
    good = batch(plain(b"a"))
    await session.ask("unknown topic", produce("referee-no-such-topic", (0, good)), VERSION)
    await session.ask("illegal topic", produce("no spaces", (0, good)), VERSION)
    await session.ask("partition beyond", produce(topic, (1, good)), VERSION)
    await session.ask("negative partition", produce(topic, (-1, good)), VERSION)
    await session.ask("no partitions", produce(topic), VERSION)
    await session.ask("no topics", ProduceRequest(acks=-1, timeout_ms=1000), VERSION)


@case
async def produce_acks(session: Session) -> None:
    topic = await session.create()
    for acks in (7, 2, -2):
        await session.ask(f"acks {acks}", produce(topic, (0, batch(plain(b"a"))), acks=acks), VERSION)
    await session.ask("nothing was stored", produce(topic, (0, batch(plain(b"a")))), VERSION)


@case
async def produce_broken_batches(session: Session) -> None:
    topic = await session.create()
    good = batch(plain(b"a", b"b", b"c"))
    broken = {
        "crc": batch(plain(b"a"), crc=12345),
        "magic 3": batch(plain(b"a"), magic=3),
        "magic -1": batch(plain(b"a"), magic=-1),
        "old format 0": old_message(0),
        "old format 1": old_message(1),
        "more records announced": batch(plain(b"a", b"b"), count=3, last_offset_delta=2),
        "fewer records announced": batch(plain(b"a", b"b"), count=1, last_offset_delta=0),
        "count and last delta differ": batch(plain(b"a", b"b"), count=2, last_offset_delta=5),
        "no records": batch([]),
        "negative count": batch(plain(b"a"), count=-1),
        "huge count": batch(plain(b"a"), count=2**31 - 1, last_offset_delta=2**31 - 2),
        "offset deltas with a gap": batch(plain(b"a", b"b"), offset_deltas=[0, 2], last_offset_delta=1),
        "offset deltas backwards": batch(plain(b"a", b"b"), offset_deltas=[1, 0], last_offset_delta=1),
        "length too long": batch(plain(b"a"), length=10_000),
        "length too short": batch(plain(b"a"), length=40),
        "negative length": batch(plain(b"a"), length=-5),
        "cut short": good[:-3],
        "only a header": good[:61],
        "half a header": good[:30],
        "a few bytes": good[:5],
        "all but the magic": good[:16],
        "bytes behind": good + b"behind",
        "two batches": good + good,
        "empty": b"",
        "record longer than the batch": batch(plain(b"a"), body=record((b"k", b"v", ()), 0, size=1000)),
        "record shorter than it says": batch(plain(b"a"), body=record((b"k", b"v", ()), 0, size=3)),
        "negative record size": batch(plain(b"a"), body=b"\x01\x00\x00\x00\x00\x00\x00"),
        "header key is not UTF-8": batch([(b"k", b"v", [(b"\xff\xfe", b"x")])]),
    }
    for label, data in broken.items():
        await session.ask(label, produce(topic, (0, data)), VERSION)
    await session.ask("what was stored", produce(topic, (0, good)), VERSION)


@case
async def produce_codecs(session: Session) -> None:
    topic = await session.create()
    zipped = batch(plain(b"a", b"b"), attributes=GZIP, compress=gzip.compress)
    await session.ask("gzip", produce(topic, (0, zipped)), VERSION)
    for name, codec in {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}.items():
        data = batch(plain(b"a"), attributes=codec, compress=lambda _: b"these bytes are no such frame")
        await session.ask(f"not {name}", produce(topic, (0, data)), VERSION)
    for codec in (5, 6, 7):
        await session.ask(
            f"codec {codec}", produce(topic, (0, batch(plain(b"a"), attributes=codec))), VERSION
        )
    lie = batch(plain(b"a", b"b"), attributes=GZIP, compress=gzip.compress, count=5, last_offset_delta=4)
    await session.ask("gzip with a false count", produce(topic, (0, lie)), VERSION)
    cut = batch(plain(b"a" * 1000), attributes=GZIP, compress=lambda body: gzip.compress(body)[:-12])
    await session.ask("gzip cut short", produce(topic, (0, cut)), VERSION)
    await session.ask("what was stored", produce(topic, (0, batch(plain(b"a")))), VERSION)


@case
async def produce_forbidden_batches(session: Session) -> None:
    topic = await session.create()
    transactional = batch(plain(b"a"), attributes=TRANSACTIONAL, producer=5, epoch=0, sequence=0)
    await session.ask("control", produce(topic, (0, batch(plain(b"a"), attributes=CONTROL))), VERSION)
    await session.ask("transactional", produce(topic, (0, transactional)), VERSION)
    await session.ask(
        "max timestamp ahead", produce(topic, (0, batch(plain(b"a"), timestamp=2**62))), VERSION
    )
    lying = batch(plain(b"a"), max_timestamp=TIMESTAMP - 1)
    await session.ask("max timestamp below", produce(topic, (0, lying)), VERSION)
    lying = batch(plain(b"a"), max_timestamp=TIMESTAMP + 1)
    await session.ask("max timestamp above", produce(topic, (0, lying)), VERSION)
    await session.ask("what was stored", produce(topic, (0, batch(plain(b"a")))), VERSION)


@case
async def produce_size_limits(session: Session) -> None:
    topic = await session.create(configs={"max.message.bytes": "1000"})

    def of_size(size: int) -> bytes:
        empty = len(batch([(None, b"x" * 200, ())])) - 200
        return batch([(None, b"x" * (size - empty), ())])

    assert len(of_size(1000)) == 1000
    await session.ask("at the limit", produce(topic, (0, of_size(1000))), VERSION)
    await session.ask("above the limit", produce(topic, (0, of_size(1001))), VERSION)
    zipped = batch(plain(b"a" * 5000), attributes=GZIP, compress=gzip.compress)
    await session.ask("compressed below the limit", produce(topic, (0, zipped)), VERSION)


@case
async def produce_duplicate_partitions(session: Session) -> None:
    topic = await session.create(partitions=2)
    good = batch(plain(b"a"))
    await session.ask("the same partition twice", produce(topic, (0, good), (0, good)), VERSION)
    twice = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=good)])
            for index in (0, 1)
        ],
    )
    await session.ask("the same topic twice", twice, VERSION)
    await session.ask("one good, one bad", produce(topic, (0, good), (1, batch(plain(b"a"), crc=1))), VERSION)


@case
async def produce_with_topic_settings(session: Session) -> None:
    appended = await session.create("appended", configs={"message.timestamp.type": "LogAppendTime"})
    await session.ask("log append time", produce(appended, (0, batch(plain(b"a")))), VERSION)
    await session.ask(
        "any time will do", produce(appended, (0, batch(plain(b"a"), timestamp=2**60))), VERSION
    )
    compacted = await session.create("compacted", configs={"cleanup.policy": "compact"})
    await session.ask("compacted, with a key", produce(compacted, (0, batch(plain(b"a")))), VERSION)
    keyless = batch([(b"k", b"a", ()), (None, b"b", ())])
    await session.ask("compacted, without a key", produce(compacted, (0, keyless)), VERSION)
    ahead = batch([(None, b"a", ()), (None, b"b", ())], timestamp=2**60)
    await session.ask("compacted, without keys and ahead of time", produce(compacted, (0, ahead)), VERSION)
    mixed = batch([(None, b"a", ()), (b"k", b"b", ())], timestamp=2**60)
    await session.ask("compacted, without a key, one ahead of time", produce(compacted, (0, mixed)), VERSION)
    both = await session.create(
        "both", configs={"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}
    )
    await session.ask("compacted and deleted, without a key", produce(both, (0, keyless)), VERSION)


@case
async def produce_transactional_id(session: Session) -> None:
    topic = await session.create()
    await session.ask("plain batch", produce(topic, (0, batch(plain(b"a"))), transactional_id="t"), VERSION)
