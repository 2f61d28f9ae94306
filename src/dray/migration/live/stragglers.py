"""Records that reached the source after a partition had become Dray's: found, and produced again.

A fence does not hold for everybody: `stopped` rests on an operator's word, and super users pass an ACL. A
record that such a writer is told is stored there is nowhere here: it is named, and can be produced again.

They are produced in order, one record to a batch, by one idempotent producer that is noted before the first.
So a process that goes on after another has died sends the batch again whose answer it does not know, with the
same sequence, and the log knows it. One value for each topic says how far that is: it only saves the reading
of what is done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Cluster
from dray.kafka.protocol import ZERO_UUID
from dray.kafka.records import NO_PRODUCER, BatchHeader, Record, decode
from dray.kafka.records.twin import encode
from dray.log.life.counters import decode as decode_counter
from dray.log.life.counters import id_space
from dray.log.producer_state import SEQUENCES, ProducerStates
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataStore, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import HexUuid, JsonCodec
from dray.migration.attach.found import MigrationRefused
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import walk_batches
from dray.migration.source.mirror import Aborted, MirrorPlace, MirrorReader
from dray.migration.source.source import SourceTopic, all_of, no_leader

STRAGGLERS_FORMAT: Final = 1
_MOST_UNFOLDED: Final = 256 << 20


class Straggling(NamedTuple):
    """The source's records of a partition beyond the boundary: offsets from `start` up to before `end`."""

    start: int
    end: int
    decided: int
    """Up to here: behind it a transaction is open."""


async def find_stragglers(source: SourceTopic, boundaries: Mapping[int, int]) -> dict[int, Straggling]:
    """By partition, those that have any now. Raises `RequestFailed` where a partition has no leader: what
    cannot be seen is not nothing."""
    await source.learn()
    found: dict[int, Straggling] = {}
    for partition, measured in all_of(await source.measure(boundaries)).items():
        boundary, end = boundaries[partition], measured.high_watermark
        if end > boundary:
            found[partition] = Straggling(boundary, end, max(boundary, min(measured.last_stable, end)))
    return found


# --- what is kept: how far they were produced again


class PartitionProgress(NamedTuple):
    partition: int
    next_offset: int  # at the source: all before it are produced
    sequence: int  # of the next batch


@dataclass(frozen=True, slots=True)
class StragglerProgress:
    topic_id: HexUuid
    producer_id: int
    producer_epoch: int
    partitions: tuple[PartitionProgress, ...]

    def of(self, partition: int) -> PartitionProgress:
        found = (each for each in self.partitions if each.partition == partition)
        return next(found, PartitionProgress(partition, 0, 0))

    def at(self, place: PartitionProgress) -> StragglerProgress:
        others = [each for each in self.partitions if each.partition != place.partition]
        return replace(self, partitions=tuple(sorted([*others, place])))


def left_of(found: Mapping[int, Straggling], progress: StragglerProgress | None) -> dict[int, Straggling]:
    """The stragglers that were not produced again yet."""
    if progress is None:
        return dict(found)
    left = {
        partition: each._replace(
            start=max(each.start, done := progress.of(partition).next_offset), decided=max(each.decided, done)
        )
        for partition, each in found.items()
    }
    return {partition: each for partition, each in left.items() if each.start < each.end}


_CODEC: Final = JsonCodec(StragglerProgress, STRAGGLERS_FORMAT)


def encode_progress(progress: StragglerProgress) -> bytes:
    return _CODEC.encode(progress)


def decode_progress(topic: str, value: bytes) -> StragglerProgress:
    return _CODEC.decode(f"the stragglers of topic '{topic}'", value)


class ProducedStragglers:
    def __init__(self, store: MetadataStore, runtime: Runtime, topic: str, topic_id: UUID) -> None:
        self._store = store
        self._runtime = runtime
        self._topic = topic
        self._topic_id = topic_id

    async def read(self) -> StragglerProgress | None:
        found = await self._read()
        return None if found is None else found[0]

    async def begin(self, producer: Callable[[], Awaitable[tuple[int, int]]]) -> StragglerProgress:
        """With the producer that all calls share: the id and epoch that the first one of them took."""

        async def attempt() -> StragglerProgress | None:
            found = await self._read()
            if found is not None:
                return found[0]
            progress = StragglerProgress(self._topic_id, *await producer(), ())
            return progress if await self._put(progress, None) else None

        return await update(self._runtime, attempt, ALL_FAILURES)

    async def advance(self, place: PartitionProgress) -> StragglerProgress:
        """Never back: another process may be further."""

        async def attempt() -> StragglerProgress | None:
            found = await self._read()
            if found is None:
                raise MigrationRefused(f"topic {self._topic}: what was produced again is not known any more")
            progress, version = found
            if progress.of(place.partition).next_offset >= place.next_offset:
                return progress
            progress = progress.at(place)
            return progress if await self._put(progress, version) else None

        return await update(self._runtime, attempt, ALL_FAILURES)

    async def forget(self) -> None:
        """The topic is gone, and another may have its name."""
        await self._store.write(keys.CLUSTER_DOMAIN, [Delete(keys.stragglers(self._topic))])

    async def _read(self) -> tuple[StragglerProgress, int] | None:
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        found = await self._store.get(keys.CLUSTER_DOMAIN, keys.stragglers(self._topic))
        if found is None:
            return None
        progress = decode_progress(self._topic, found.value)
        if progress.topic_id != self._topic_id:
            raise MigrationRefused(
                f"topic {self._topic}: stragglers were produced to an earlier topic of this name"
            )
        return progress, found.version

    async def _put(self, progress: StragglerProgress, version: int | None) -> bool:
        put = Put(
            keys.stragglers(self._topic), encode_progress(progress), ABSENT if version is None else version
        )
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
        return outcome.applied


# --- which records they are


@dataclass(frozen=True, slots=True)
class StragglerReader:
    """Reads them as a read_committed consumer does: neither markers nor what was aborted."""

    cluster: Cluster
    source: SourceTopic
    max_bytes: int = 8 << 20
    is_here: Callable[[int, BatchHeader], bool] = lambda *_: False
    """Is a batch that is there in Dray's log of the partition too?"""

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[Record, None]:
        """Those with offsets from `start` up to before `end`. It ends early where a transaction is open."""
        reader = MirrorReader(
            self.cluster, self.source, max_bytes=self.max_bytes, partition_bytes=self.max_bytes
        )
        place = MirrorPlace(start)
        while place.offset < end:
            [leader] = reader.by_leader({partition: place}) or [None]
            if leader is None:
                raise no_leader(self.source.topic, partition)
            [piece] = await reader.read(leader, {partition: place})
            here = partial(self.is_here, partition)
            for record in committed_records(piece.batches, piece.aborted, here):
                if start <= record.offset < end:
                    yield record
            if piece.place.offset <= place.offset:
                return
            place = MirrorPlace(piece.place.offset)


def committed_records(
    batches: memoryview,
    aborted: Sequence[Aborted],
    is_here: Callable[[BatchHeader], bool] = lambda _: False,
) -> list[Record]:
    """Of whole batches, without control records and without what an aborted transaction wrote; nor what is
    here."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    dropped: set[int] = set()
    found: list[Record] = []
    for batch in walk_batches(batches):
        producer_id = batch.header.producer_id
        while waiting and waiting[0].first_offset <= batch.last_offset:
            dropped.add(waiting.pop(0).producer_id)
        if batch.is_control:
            dropped.discard(producer_id)
            continue
        if (batch.is_transactional and producer_id in dropped) or is_here(batch.header):
            continue
        plain = as_data(batches[batch.position : batch.end])
        columns = decode(plain, max_decompressed_bytes=_MOST_UNFOLDED, sparse=True)
        found.extend(columns.records())
    return found


class KnownHere:
    """Batches behind the boundary at the source that are in Dray's log too. A broker that stood still may
    have passed one on to a source whose writers were only said to be stopped; it is appended here then, and
    no producer was told of the other."""

    def __init__(self, streams: StreamStore, numbers: Sequence[int], metadata: MetadataStore) -> None:
        self._streams = streams
        self._numbers = numbers  # by partition
        self._metadata = metadata
        self._producers: dict[int, ProducerStates] = {}
        self._space = -1

    async def look(self, partitions: Collection[int]) -> None:
        """Raises `LogError`, `MetadataError`."""
        for partition in partitions:
            state = await load_stream_state(self._streams, self._numbers[partition])
            self._producers[partition] = state.producers
        counter = await self._metadata.get(keys.CLUSTER_DOMAIN, keys.PRODUCER_COUNTER)
        self._space = -1 if counter is None else id_space(decode_counter(counter.value))

    def is_here(self, partition: int, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER:
            return False
        if id_space(header.producer_id) == self._space:
            return True  # Dray gave the id: only a broker of Dray has sent it there
        return self._producers[partition].has_reached(
            header.producer_id,
            header.producer_epoch,
            (header.base_sequence + header.last_offset_delta) % SEQUENCES,
        )


@dataclass(frozen=True, slots=True)
class Straggler:
    partition: int
    offset: int
    """At the source."""
    timestamp: int
    key: bytes | None
    size: int
    """Of key and value."""


@dataclass(frozen=True, slots=True)
class StragglersLeft:
    """`ranges` are the offsets at the source that were not produced again, by partition. Some of them may be
    of markers, or of what was aborted, or of records that are here too."""

    ranges: Mapping[int, Straggling]
    shown: Sequence[Straggler]
    are_all: bool
    """Whether no record is left but those that are shown."""

    @property
    def undecided(self) -> list[int]:
        """Partitions in which a transaction is open: what of it is a straggler is not known yet."""
        return [partition for partition, each in self.ranges.items() if each.decided < each.end]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Those of one topic."""

    cluster: Cluster
    source: SourceTopic
    linked_id: UUID | None
    boundaries: Mapping[int, int]
    reader: StragglerReader
    known: KnownHere
    produced: ProducedStragglers

    async def left(self) -> dict[int, Straggling]:
        progress = await self.produced.read()
        found = await find_stragglers(self.source, self.boundaries)
        topic, expected = self.source.topic, self.linked_id or ZERO_UUID
        if expected != ZERO_UUID and self.cluster.view.topic_ids.get(topic) != expected:
            raise MigrationRefused(
                f"topic {topic} at the source is another one by now: nothing is known of late records"
            )
        left = left_of(found, progress)
        await self.known.look(left)
        return left

    async def look(self, most: int) -> StragglersLeft:
        """Nothing is changed anywhere. So many records are shown."""
        shown: list[Straggler] = []
        ranges = await self.left()
        for partition, each in ranges.items():
            async with aclosing(self.reader.read(partition, each.start, each.decided)) as records:
                async for record in records:
                    if len(shown) == most:
                        return StragglersLeft(ranges, shown, are_all=False)
                    size = len(record.key or b"") + len(record.value or b"")
                    shown.append(Straggler(partition, record.offset, record.timestamp, record.key, size))
        return StragglersLeft(ranges, shown, are_all=True)


# --- produced again


async def produce_again(
    source: StragglerReader,
    ranges: Mapping[int, Straggling],
    produced: ProducedStragglers,
    producer: Callable[[], Awaitable[tuple[int, int]]],
    send: Callable[[int, bytes], Awaitable[None]],
) -> int:
    """How many were sent by this call. `ranges` are offsets of the source by partition; `send` stores a batch
    in a partition, and takes one that is there already for stored. All that is decided is done then: also
    markers, and what was aborted."""
    progress = await produced.begin(producer)
    sent = 0
    for partition, (start, _, decided) in sorted(ranges.items()):
        place = progress.of(partition)
        async for record in source.read(partition, max(start, place.next_offset), decided):
            batch = encode(
                [record._replace(offset=0)],
                producer_id=progress.producer_id,
                producer_epoch=progress.producer_epoch,
                base_sequence=place.sequence,
            )
            await send(partition, bytes(batch))
            place = PartitionProgress(partition, record.offset + 1, place.sequence + 1)
            await produced.advance(place)
            sent += 1
        if place.next_offset < decided:
            await produced.advance(place._replace(next_offset=decided))
    return sent
