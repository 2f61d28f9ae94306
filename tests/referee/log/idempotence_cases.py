"""Producers with an id: sequences, epochs, duplicates."""

from __future__ import annotations

import asyncio

from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.referee.cases import case
from tests.referee.log.produce_cases import VERSION, produce
from tests.referee.session import SECONDS, Session
from tests.services.batches import batch, plain

PRODUCER = 4_000_000_000
LAST_SEQUENCE = 2**31 - 1


class Writer:
    """Produces one batch per call, as one producer on one partition, and notes the answer."""

    def __init__(self, session: Session, topic: str) -> None:
        self.session = session
        self.topic = topic

    async def write(
        self, label: str, sequence: int, records: int = 1, epoch: int = 0, producer: int = PRODUCER
    ) -> None:
        values = [b"%d" % (sequence + number) for number in range(records)]
        data = batch(plain(*values), producer=producer, epoch=epoch, sequence=sequence)
        await self.session.ask(label, produce(self.topic, (0, data)), VERSION)


@case
async def sequences_in_order(session: Session) -> None:
    writer = Writer(session, await session.create())
    await writer.write("first", 0, records=3)
    await writer.write("next", 3)
    await writer.write("next after one", 4, records=2)
    await writer.write("another producer", 0, producer=PRODUCER + 1)
    await writer.write("goes on", 6)


@case
async def sequences_that_start_late(session: Session) -> None:
    writer = Writer(session, await session.create())
    await writer.write("unknown producer at 5", 5)
    await writer.write("goes on", 6)
    await writer.write("back to 0", 0)


@case
async def sequences_repeated(session: Session) -> None:
    writer = Writer(session, await session.create())
    for number in range(7):
        await writer.write(f"batch {number}", 2 * number, records=2)
    for number in reversed(range(7)):
        await writer.write(f"batch {number} again", 2 * number, records=2)
    await writer.write("the last one, shorter", 12, records=1)
    await writer.write("the last one, longer", 12, records=3)
    await writer.write("goes on", 14)


@case
async def sequences_with_gaps(session: Session) -> None:
    writer = Writer(session, await session.create())
    await writer.write("first", 0)
    await writer.write("gap", 2)
    await writer.write("far gap", 1000)
    await writer.write("closes it", 1)
    await writer.write("goes on", 2)


@case
async def sequences_and_epochs(session: Session) -> None:
    writer = Writer(session, await session.create())
    await writer.write("epoch 3", 0, epoch=3)
    await writer.write("lower epoch", 1, epoch=2)
    await writer.write("higher epoch in the middle", 1, epoch=4)
    await writer.write("higher epoch from 0", 0, epoch=4)
    await writer.write("old epoch, next sequence", 1, epoch=3)
    await writer.write("goes on", 1, epoch=4)


@case
async def sequences_that_wrap(session: Session) -> None:
    writer = Writer(session, await session.create())
    await writer.write("near the end", LAST_SEQUENCE - 1)
    await writer.write("across the end", LAST_SEQUENCE, records=2)
    await writer.write("again", LAST_SEQUENCE, records=2)
    await writer.write("goes on", 1)


@case
async def sequences_that_make_no_sense(session: Session) -> None:
    topic = await session.create()
    writer = Writer(session, topic)
    await writer.write("no sequence", -1)
    await writer.write("no epoch", 0, epoch=-1)
    await writer.write("negative producer", 0, producer=-5)
    first = batch(plain(b"a"), producer=PRODUCER, epoch=0, sequence=0)
    second = batch(plain(b"b"), producer=PRODUCER, epoch=0, sequence=1)
    await session.ask("two batches of one producer", produce(topic, (0, first + second)), VERSION)
    await writer.write("a first one", 0)


@case
async def init_producer_id(session: Session) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    async with asyncio.timeout(SECONDS):
        while True:  # Kafka's broker has to fetch a block of ids first
            response = await session.send(request, 4)
            if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # type: ignore[attr-defined]
                break
            await asyncio.sleep(0.02)
    for version in (0, 1, 3, 4, 5):
        label = f"v{version}"
        response = await session.ask(label, request, version)
        session.notes[label]["producer_id"] = "fresh" if response.producer_id >= 0 else response.producer_id
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    await session.ask("empty transactional id", request, 4)
    # An id and epoch to go on with concern transactions alone.
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=PRODUCER, producer_epoch=3
    )
    response = await session.ask("with an id of its own", request, 4)
    if response is not None and response.producer_id not in (-1, PRODUCER):
        session.notes["with an id of its own"]["producer_id"] = "fresh"
