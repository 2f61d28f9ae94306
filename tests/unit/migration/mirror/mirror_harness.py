"""A partition of a source, batch by batch, as a leader of Kafka gives it to readers of committed records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from struct import pack
from typing import NamedTuple

from tests.services.attached_log import AttachedLog
from tests.unit.log.harness import DOMAINS, World, read
from tests.unit.migration.entries.foreign_harness import EPOCH

from dray.kafka.records import Record, crc32c, read_header, twin
from dray.kafka.records.header import CONTROL, LOG_APPEND_TIME, OPENING, REST, TRANSACTIONAL
from dray.log.origins import CLASSIC
from dray.log.stream_store import StreamStore
from dray.log.types import ReadResult
from dray.migration.entries.lay_down import AttachedStream, lay_down
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import ABORT, COMMIT, marker_of, walk_batches
from dray.migration.mirror.mirroring import MirroredPlace

NOW_MS = 1_790_000_000_000


class Producer(NamedTuple):
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = Producer()


class Transaction(NamedTuple):
    producer_id: int
    first: int
    last: int  # of its marker
    is_aborted: bool


def batch_of(
    base_offset: int,
    values: Sequence[bytes],
    producer: Producer = NO_PRODUCER,
    *,
    attributes: int = 0,
    leader_epoch: int = 0,
    time: int = NOW_MS,
    key: bytes | None = None,
) -> bytes:
    """One batch as a leader has it in its log."""
    records = [Record(place, time, key, value, ()) for place, value in enumerate(values)]
    data = twin.encode(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    )
    header = read_header(data)
    rest = (header.last_offset_delta, header.base_timestamp, header.max_timestamp, *producer)
    REST.pack_into(data, OPENING.size, attributes, *rest, header.record_count)
    checksum = crc32c(memoryview(data)[OPENING.size :])
    OPENING.pack_into(data, 0, base_offset, header.length, leader_epoch, header.magic, checksum)
    return bytes(data)


def marker_batch(base_offset: int, producer: Producer, kind: int, leader_epoch: int = 0) -> bytes:
    return batch_of(
        base_offset,
        [pack(">hi", 0, 0)],
        producer._replace(sequence=-1),
        attributes=TRANSACTIONAL | CONTROL,
        leader_epoch=leader_epoch,
        key=pack(">hh", 0, kind),
    )


@dataclass
class SourceLog:
    """What the leader of a partition holds."""

    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    epoch: int = 0
    transactions: list[Transaction] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # first offsets by producer
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    _undecided: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def append(
        self,
        values: Sequence[bytes],
        producer: Producer = NO_PRODUCER,
        *,
        transactional: bool = False,
        hole: int = 0,
        time: int = NOW_MS,
        stamped: bool = False,
    ) -> int:
        """`hole`: so many offsets before it are gone. Its base offset."""
        base = self.end + hole
        attributes = (TRANSACTIONAL if transactional else 0) | (LOG_APPEND_TIME if stamped else 0)
        self.batches.append(
            batch_of(base, values, producer, attributes=attributes, leader_epoch=self.epoch, time=time)
        )
        self.end = base + len(values)
        records = list(enumerate(values, base))
        if transactional:
            self.open.setdefault(producer.producer_id, base)
            self._undecided.setdefault(producer.producer_id, []).extend(records)
        else:
            self.committed += records
        return base

    def mark(self, producer: Producer, kind: int) -> None:
        self.batches.append(marker_batch(self.end, producer, kind, self.epoch))
        first = self.open.pop(producer.producer_id, None)
        if first is not None:
            self.transactions.append(Transaction(producer.producer_id, first, self.end, kind == ABORT))
        records = self._undecided.pop(producer.producer_id, [])
        if kind == COMMIT:
            self.committed = sorted(self.committed + records)
        self.end += 1

    @property
    def last_stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def answer(
        self, offset: int, most: int = 1 << 30, most_bytes: int = 1 << 30
    ) -> tuple[memoryview, list[tuple[int, int]]]:
        """What a reader of committed records is given from an offset on, at most so many batches, and which
        of the transactions in it are aborted: as `collectAbortedTxns` finds them."""
        taken: list[bytes] = []
        upper = offset
        for batch in self.batches[self._first_from(offset) :]:
            header = read_header(batch)
            last = header.base_offset + header.last_offset_delta
            most_bytes -= len(batch)
            if last >= self.last_stable or len(taken) == most or (taken and most_bytes < 0):
                break
            taken.append(batch)
            upper = last + 1
        aborted = [
            (one.producer_id, one.first)
            for one in self.transactions
            if one.is_aborted and one.last >= offset and one.first < upper
        ]
        return memoryview(b"".join(taken)), aborted

    def _first_from(self, offset: int) -> int:
        def last_of(batch: bytes) -> int:
            header = read_header(batch)
            return header.base_offset + header.last_offset_delta

        return bisect_left(self.batches, offset, key=last_of)

    def served(self, start: int = 0) -> bytes:
        """All of it as it must be served: the source's bytes but for the leader epoch."""
        found = bytearray()
        for batch in self.batches:
            if read_header(batch).base_offset >= start:
                one = bytearray(batch)
                one[12:16] = EPOCH.to_bytes(4, "big")
                found += one
        return bytes(found)


@dataclass
class MirrorWorld(World):
    def streams(self) -> StreamStore:
        return StreamStore(self.store, DOMAINS, self.settings.producer_expiry_ms)

    async def classic(self, log: AttachedLog, start: int = 0) -> int:
        """A stream that its source owns, with nothing mirrored yet."""
        [stream] = await log.take_stream_ids(1)
        await lay_down(self.streams(), stream, AttachedStream([], start, start, EPOCH, boundary=CLASSIC))
        return stream


async def mirror(log: AttachedLog, stream: int, source: SourceLog, most: int = 1 << 30) -> MirroredPlace:
    """The next piece."""
    place = await log.mirror.place(stream)
    data, aborted = source.answer(place.end, most)
    return await log.mirror.commit(stream, data, aborted, expected=place)


async def mirror_all(log: AttachedLog, stream: int, source: SourceLog, most: int = 1 << 30) -> MirroredPlace:
    while (place := await mirror(log, stream, source, most)).end < source.last_stable:
        pass
    return place


def committed_in(result: ReadResult, from_offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """The records that a consumer of committed records takes from an answer, by the rule of Kafka's client;
    and where it goes on."""
    if result.error is not None:
        raise result.error
    data = b"".join(bytes(buffer) for buffer in result.buffers)
    coming = sorted(result.aborted, key=lambda one: one[1])
    aborted: set[int] = set()
    found: list[tuple[int, bytes]] = []
    following = from_offset
    for batch in walk_batches(data):
        while coming and coming[0][1] <= batch.last_offset:
            aborted.add(coming.pop(0)[0])
        following = batch.last_offset + 1
        if batch.is_control:
            if marker_of(data, batch) == ABORT:
                aborted.discard(batch.header.producer_id)
            continue
        if batch.is_transactional and batch.header.producer_id in aborted:
            continue
        for _, records in twin.decode(as_data(data[batch.position : batch.end])):
            found += [(record.offset, bytes(record.value or b"")) for record in records]
    return [record for record in found if record[0] >= from_offset], following


def written(batches: int = 4, records: int = 3) -> SourceLog:
    source = SourceLog()
    for number in range(batches):
        source.append([b"%d-%d" % (number, place) for place in range(records)])
    return source


async def read_on(log: AttachedLog, stream: int, offset: int, end: int, max_bytes: int = 1 << 30) -> bytes:
    """All bytes from an offset on, as a consumer asks for them."""
    found = b""
    while offset < end:
        result = await read(log, stream, offset, max_bytes)
        assert result.error is None, result.error
        data = b"".join(bytes(buffer) for buffer in result.buffers)
        found += data
        offset = list(walk_batches(data))[-1].last_offset + 1
    return found


async def collect(world: MirrorWorld, log: AttachedLog) -> None:
    """The collector's rounds, as many as it takes: marks are taken, references go, then objects."""
    for _ in range(4):
        await log.collector.run()
        await world.runtime.sleep(10 * max(world.settings.orphan_ttl, world.settings.collect_grace))


def played(random: Random) -> Iterator[SourceLog]:
    """A source at several moments: transactions of three producers that overlap, one with a later epoch after
    each abort, and records without a transaction between them."""
    source = SourceLog()
    producers = {number: Producer(number, 0, 0) for number in (1, 2, 3)}
    for step in range(40):
        number = random.choice(list(producers))
        producer = producers[number]
        match random.randrange(5):
            case 0 | 1:
                source.append([b"t%d" % step] * random.randint(1, 3), producer, transactional=True)
                producers[number] = producer._replace(sequence=producer.sequence + 3)
            case 2 if number in source.open:
                source.mark(producer, ABORT)
            case 3 if number in source.open:
                source.mark(producer, COMMIT)
            case _:
                source.append([b"p%d" % step], hole=random.choice([0, 0, 2]))
        if random.random() < 0.3:
            yield source
    for producer in producers.values():
        if producer.producer_id in source.open:
            source.mark(producer, random.choice([ABORT, COMMIT]))
    yield source
