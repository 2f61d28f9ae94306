"""What reading foreign segments takes: memory that many partitions share, and time when a store is slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest
from tests.unit.log.harness import EVERYTHING, append, batch_bytes, read
from tests.unit.migration.entries.foreign_harness import EPOCH, ForeignWorld, Source, kafka, packed

from dray.base.runtime import Runtime
from dray.log import Log
from dray.log.read.waiting import ALONE_SECONDS, BESIDE_SECONDS
from dray.log.types import LogUnavailable, ReadRequest, ReadResult
from dray.metadata.contract import Limits
from dray.migration.entries import segments as foreign_segments
from dray.migration.entries.lay_down import AttachedStream, entries_of
from dray.migration.entries.segments import ForeignStore
from dray.migration.formats import walk_batches
from dray.objects.contract import WORTH_A_THREAD, ObjectError, OwnBuffer
from dray.objects.memory import MemoryBucket, MemoryObjects

T = TypeVar("T")

CHUNK = 64 << 10  # of the fixtures
OTHER = "other"


class Watched(MemoryObjects):
    """Counts reads; where `answers` is not set, none ends before it is. Reads that end with `failure`."""

    def __init__(self, runtime: Runtime, bucket: MemoryBucket) -> None:
        super().__init__(runtime, bucket)
        self.reads: Counter[tuple[str, int]] = Counter()
        self.worked_on: list[int] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.failure: ObjectError | None = None
        self.under_way = self.most_under_way = 0

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        self.reads.update([(path, position) for position, _ in ranges])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0.001)
            await self.answers.wait()
            if self.failure is not None:
                raise self.failure
            return await super().get_ranges(path, ranges)
        finally:
            self.under_way -= 1

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        self.worked_on.append(sum(length for _, length in ranges))
        return await super().with_ranges(path, ranges, work)


@dataclass
class Stores(ForeignWorld):
    """Two foreign stores with the same objects."""

    watched: dict[str, Watched] = field(default_factory=dict)

    def foreign(self) -> dict[str, ForeignStore]:
        bucket = self.source.bucket
        self.watched = {name: Watched(self.runtime, bucket) for name in ("old", OTHER)}
        return {name: ForeignStore(objects, self.source.keys) for name, objects in self.watched.items()}

    async def attach_copy(
        self, log: Log, number: int, store: str = "old", piece_bytes: int = 16 << 10
    ) -> int:
        """The first segment of the source once more, under a name of its own."""
        segment, _ = self.source.segments[0]
        names = {segment.path: f"copy-{number}/{segment.path}"}
        if segment.manifest:
            names[segment.manifest] = f"copy-{number}/{segment.manifest}"
        for name, copied in names.items():
            self.source.bucket.put(copied, self.source.bucket.objects[name].data, 0)
        batches = [*walk_batches(self.source.contents[0])]  # the fixture's index has few rows
        copy = replace(
            segment,
            store=store,
            path=names[segment.path],
            manifest=names.get(segment.manifest, ""),
            rows=[segment.rows[0], *[(batch.last_offset, batch.position) for batch in batches[1:]]],
        )
        entries = entries_of([(copy, [])], [], 0, piece_bytes)
        return await self.attach(log, AttachedStream(entries, segment.start, segment.end, EPOCH))


def end_of(result: ReadResult) -> int:
    [*_, last] = walk_batches(b"".join(bytes(buffer) for buffer in result.buffers))
    return last.last_offset + 1


async def catch_up(log: Log, streams: Sequence[int], end: int, max_bytes: int) -> None:
    """As a consumer of all these partitions does, which asks for each of them in every fetch."""
    offsets = dict.fromkeys(streams, 0)
    while wanted := [ReadRequest(stream, at, max_bytes) for stream, at in offsets.items() if at < end]:
        results = await log.fetch(wanted, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=500)
        assert any(result.size for result in results)
        for request, result in zip(wanted, results, strict=True):
            assert result.error is None, result.error
            if result.size:
                offsets[request.stream] = end_of(result)
        # The client asks for those first that it did not get.
        offsets = dict(sorted(offsets.items(), key=lambda item: item[1]))


@pytest.mark.parametrize("partitions", [1, 4, 12])
async def test_a_chunk_is_unpacked_once_or_little_more_however_many_partitions_are_read(
    partitions: int,
) -> None:
    world = Stores(source=packed())
    log = world.log(foreign_cache_bytes=6 * CHUNK)
    streams = [await world.attach_copy(log, number) for number in range(partitions)]
    await catch_up(log, streams, world.source.segments[0][0].end, 20_000)
    chunks = 17 * partitions
    assert len(world.watched["old"].reads) == chunks
    assert world.watched["old"].reads.total() <= chunks * 1.5
    assert log.entries.segments._chunks.size <= 6 * CHUNK


@pytest.mark.parametrize("partitions", [1, 4, 12])
async def test_a_piece_is_read_once_or_little_more_however_many_partitions_are_read(partitions: int) -> None:
    world = Stores(source=kafka(0))
    log = world.log(foreign_cache_bytes=12 * CHUNK)
    streams = [await world.attach_copy(log, number, piece_bytes=32 << 10) for number in range(partitions)]
    await catch_up(log, streams, world.source.segments[0][0].end, 20_000)
    found = world.watched["old"].reads
    assert found.total() <= len(found) * 1.25
    assert log.entries._pieces.size <= 12 * CHUNK


async def test_one_partition_is_read_ahead() -> None:
    world = Stores(source=packed())
    log = world.log(foreign_cache_bytes=64 * CHUNK)
    stream = await world.attach_copy(log, 0)
    await read(log, stream, 0, 1)
    await asyncio.sleep(1)
    assert len(world.watched["old"].reads) == 3  # its chunk, and two more


async def test_few_bytes_are_never_unpacked_on_the_event_loop() -> None:
    """They may unfold to many."""
    world = Stores(source=packed())
    log = world.log()
    stream = await world.attach_copy(log, 0)
    await catch_up(log, [stream], 30, 20_000)
    assert world.watched["old"].reads
    assert all(size >= WORTH_A_THREAD for size in world.watched["old"].worked_on)


async def test_large_chunks_are_unpacked_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_segments, "_LARGE_CHUNK", CHUNK - 1)
    world = Stores(source=packed())
    log = world.log()
    streams = [await world.attach_copy(log, number) for number in range(6)]
    await catch_up(log, streams, 30, 20_000)
    assert world.watched["old"].most_under_way == 1


# --- a store that is slow, or does not answer


async def two_stores(source: Source, cache_bytes: int = 64 << 20) -> tuple[Stores, Log, int, list[int], int]:
    """A topic of our own, many partitions in a store that does not answer, and one in another that does."""
    world = Stores(source=source)
    log = world.log(foreign_cache_bytes=cache_bytes)
    await log.start()
    [own] = await log.create_streams(1)
    await append(log, own, batch_bytes([b"a", b"b"]))
    silent = [await world.attach_copy(log, number) for number in range(20)]
    other = await world.attach_copy(log, 99, OTHER)
    world.watched["old"].answers.clear()
    return world, log, own, silent, other


@pytest.mark.parametrize("cache_bytes", [12 * CHUNK, 64 << 20])
@pytest.mark.parametrize("source", [lambda: kafka(0), packed], ids=["kafka", "packed"])
async def test_a_store_that_does_not_answer_holds_up_no_other(
    source: Callable[[], Source], cache_bytes: int
) -> None:
    world, log, own, silent, other = await two_stores(source(), cache_bytes)
    requests = [ReadRequest(stream, 0, 300_000) for stream in [*silent, own, other]]
    began = world.runtime.monotonic()
    results = await log.fetch(requests, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=500)
    assert world.runtime.monotonic() - began < BESIDE_SECONDS + 0.1
    assert [bool(result.size) for result in results] == [False] * len(silent) + [True, True]
    assert not any(result.error for result in results)
    assert world.watched["old"].under_way <= 8  # what it may have under way is bounded
    await log.stop()


async def test_what_a_slow_store_brings_is_there_for_the_next_fetch() -> None:
    world, log, _, silent, _ = await two_stores(kafka(0))
    began = world.runtime.monotonic()
    assert not (await read(log, silent[0], 0, 20_000)).size
    assert world.runtime.monotonic() - began == pytest.approx(ALONE_SECONDS, abs=0.1)
    following = asyncio.ensure_future(read(log, silent[0], 0, 20_000))
    await asyncio.sleep(1)
    world.watched["old"].answers.set()
    assert (await following).size
    assert world.watched["old"].reads[f"copy-0/{world.source.segments[0][0].path}", 0] == 1
    await log.stop()


async def test_a_store_that_fails_late_is_an_error_for_the_fetch_that_waits() -> None:
    world, log, own, silent, _ = await two_stores(kafka(0))
    assert (await read(log, silent[0], 0)).error is None
    following = asyncio.ensure_future(read(log, silent[0], 0))
    await asyncio.sleep(1)
    world.watched["old"].failure = ObjectError("it is down")
    world.watched["old"].answers.set()
    assert isinstance((await following).error, LogUnavailable)
    assert (await read(log, own, 0)).size
    await log.stop()


async def test_a_fetch_that_is_given_up_leaves_no_read_behind() -> None:
    world, log, own, silent, _ = await two_stores(kafka(0))
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(read(log, silent[0], 0))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    await asyncio.sleep(0.1)
    left = [task.get_name() for task in asyncio.all_tasks() - before]
    left = [name for name in left if not name.startswith("follow domain")]  # from the first read on
    assert len(left) <= 1  # the piece itself, which others may share
    world.watched["old"].answers.set()
    assert (await read(log, own, 0)).size
    await log.stop()


# --- taking over


async def test_a_segment_of_many_entries_is_copied_in_writes_that_the_store_takes() -> None:
    world = ForeignWorld(source=packed(cut_bytes=17_000))
    log = world.log()
    stream = await world.attach(log)
    world.store._limits = Limits(16, 1 << 20)
    assert len(world.source.segments[0][1]) > 16
    assert await log.entries._ownership.copy(stream) == 1
    world.source.bucket.objects.clear()
    assert (await read(log, stream, 0)).size
