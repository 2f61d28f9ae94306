"""How far the stragglers of a topic were produced again: one value for each topic.

They are produced in order, one record to a batch, by one idempotent producer that is noted before the first.
So a process that goes on after another has died sends the batch again whose answer it does not know, with the
same sequence, and the log knows it. The value only saves the reading of what is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from dray.metadata import keys
from dray.metadata.codec import HexUuid, JsonCodec
from dray.metadata.contract import ABSENT, Delete, MetadataStore, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.migration.found import MigrationRefused
from dray.records import Record
from dray.records.twin import encode
from dray.runtime import Runtime
from dray.upstream.stragglers import Straggling

STRAGGLERS_FORMAT: Final = 1


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
    """What was not produced again yet."""
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


class StragglerSource(Protocol):
    def read(self, partition: int, start: int, end: int, /) -> AsyncIterator[Record]: ...


async def produce_again(
    source: StragglerSource,
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
