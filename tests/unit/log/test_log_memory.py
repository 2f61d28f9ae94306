"""Caches count the bytes that they take, and give them back when nobody uses them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import pytest
from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes, read, values_in

from dray.log import Log, service
from dray.log.entries import BatchReference, HighWatermark, IndexEntry, pack_batches
from dray.log.parquet.statistics import RowGroup
from dray.log.read import segments
from dray.log.read.doubts import Doubts
from dray.log.read.index_cache import IndexCache
from dray.log.read.parquet_cache import FooterCache, GroupCache, LayoutCache
from dray.log.read.segments import SegmentReader
from dray.log.read.tail_cache import TailBatch, TailCache
from dray.log.stream_store import Versioned
from dray.objects.contract import OwnBuffer

IDLE = 300.0
# An estimate may be so many times too high or too low.
FACTOR = 2.0


def entry(number: int, batches: int, start: int = 0) -> IndexEntry:
    """Of values that no other entry shares, as real ones are."""
    references = [
        BatchReference(1_000_000 + 1000 * place, 999, 10, 0, 0, 0, -1, -1, -1) for place in range(batches)
    ]
    path = f"wal/v1/zone=local/domain=0/date=2023/11/14/{UUID(int=number)}.wo"
    end = start + 10 * batches
    return IndexEntry(
        start,
        end,
        end * 100,
        5,
        5,
        5,
        5,
        5,
        UUID(int=number),
        path,
        bytes(bytearray(pack_batches(references))),
    )


class Sized(Protocol):
    @property
    def size(self) -> int: ...


def check_counts(fill: Callable[[], Sized]) -> None:
    """What a cache says that it takes is about what the interpreter has allocated for it, and holds."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = fill()
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / FACTOR < cache.size < taken * FACTOR, f"counted {cache.size}, taken {taken}"


# --- what is counted is what is taken


@pytest.mark.parametrize(("entries", "batches"), [(300, 1), (50, 50), (4, 5000)])
async def test_layouts_count_what_they_take(world: World, entries: int, batches: int) -> None:
    world.log()
    made = [entry(number, batches) for number in range(entries)]

    def fill() -> SegmentReader:
        reader = SegmentReader(world.objects, world.runtime, 1 << 20, Doubts(world.runtime, 30.0))
        for each in made:
            reader.layout(each, 1)
        return reader

    check_counts(fill)


async def test_layouts_are_bounded_by_bytes_and_the_longest_unused_go_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """512 of them were kept: 443 MiB, of entries of 5,000 batches each."""
    world.log()
    reader = SegmentReader(world.objects, world.runtime, 1 << 20, Doubts(world.runtime, 30.0))
    one = reader.layout(entry(0, 5000), 1)
    monkeypatch.setattr(segments, "LAYOUT_BYTES", 4 * one.size)
    kept: list[object] = []
    for number in range(1, 12):
        reader.layout(entry(number, 5000), 1)
        kept.append(reader.layout(entry(0, 5000), 1))
        assert reader.size <= 4 * one.size
    assert all(found is one for found in kept), "what is in use stays"
    assert len(reader._layouts) == 4


@pytest.mark.parametrize(("streams", "entries", "batches"), [(500, 1, 1), (20, 30, 20), (3, 2, 5000)])
def test_the_index_counts_what_it_takes(streams: int, entries: int, batches: int) -> None:
    def fill() -> IndexCache:
        cache = IndexCache(100, EVERYTHING)
        for stream in range(streams):
            start = 0
            for number in range(entries):
                head = entry(stream * 1000 + number, batches, start)
                cache.observe(stream, Versioned(HighWatermark.at(head), number + 1), 0)
                start = head.end
        return cache

    check_counts(fill)


@pytest.mark.parametrize("size", [70, 1000, 100_000])
def test_the_tail_counts_what_it_takes(size: int) -> None:
    def fill() -> TailCache:
        cache = TailCache(EVERYTHING)
        for number in range(300):
            batch = TailBatch(number // 3 + 1000, number // 3 + 1001, memoryview(bytearray(size)))
            cache.add(number % 3, [batch])
        return cache

    check_counts(fill)


def test_a_tail_whose_streams_come_and_go_keeps_nothing_of_them() -> None:
    """Other brokers append in between, so that every batch starts a run of its own."""

    def fill() -> TailCache:
        cache = TailCache(EVERYTHING)
        for number in range(20_000):
            cache.add(number % 100, [TailBatch(2 * number, 2 * number + 1, memoryview(bytearray(1000)))])
        return cache

    check_counts(fill)


def test_layouts_of_files_count_what_they_take_and_are_bounded() -> None:
    def file(number: int) -> IndexEntry:
        groups = [
            RowGroup(
                1000 + 999 * place,
                99_999,
                1000,
                1000 + 1000 * place,
                10**6 + place,
                10**12,
                10**12 + place,
                1999 + 1000 * place,
            )
            for place in range(100)
        ]
        return IndexEntry.parquet([entry(number, 1)], UUID(int=number), f"path {number}", 10**9, 5000, groups)

    files = [file(number) for number in range(40)]

    def fill() -> LayoutCache:
        cache = LayoutCache(EVERYTHING)
        for each in files:
            cache.get(each)
        return cache

    check_counts(fill)
    limit = fill().size // 10
    small = LayoutCache(limit)
    for each in files:
        assert small.get(each) == each.row_groups()
        assert small.size <= limit
    small.clear()
    assert small.size == 0


# --- what is pinned is counted


class _Buffer(bytearray):
    """One that can be watched being let go."""


class OneRead:
    """An object store that reads ranges that lie side by side into one buffer, as local files are read."""

    def __init__(self, world: World) -> None:
        self._inner = world.objects
        self.buffers: list[weakref.ref[bytearray]] = []

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], object]
    ) -> object:
        whole = _Buffer(await self._inner.get(path))
        self.buffers.append(weakref.ref(whole))
        view = memoryview(whole)
        return work([view[start : start + length] for start, length in ranges])


async def test_a_segment_counts_for_the_buffer_that_it_keeps_in_memory(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB were read at once, and kept for as long as any mebibyte of them was: now they go together."""
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 200)
    [stream] = await log.create_streams(1)
    values = [b"%d" % number * 50 for number in range(10)]
    await asyncio.gather(*[append(log, stream, batch_bytes([value])) for value in values])
    found = await log._reader.find(stream, 0)
    one_read = OneRead(world)
    [stored] = world.bucket.objects.values()
    reader = SegmentReader(one_read, world.runtime, 10_000, Doubts(world.runtime, 30.0))  # type: ignore[arg-type]
    layout = reader.layout(found, stream)
    await reader.batches(layout, 0, len(values))
    assert len(layout.segments) > 3
    assert reader._size == len(stored.data), "once, however many segments lie in it"
    reader._cache_bytes = 0
    other = reader.layout(found, stream + 1)
    await reader.batches(other, 0, 1)
    assert reader._size == 0
    assert all(segment.data is None for segment in layout.segments)
    await asyncio.sleep(1)  # until nobody reads any more
    gc.collect()
    assert [buffer() for buffer in one_read.buffers] == [None, None]


# --- what nobody uses


async def filled(log: Log, count: int = 10) -> int:
    [stream] = await log.create_streams(1)
    for number in range(count):
        await append(log, stream, batch_bytes([b"%d" % number * 100]))
    return stream


async def test_what_nobody_used_for_a_while_is_let_go(world: World) -> None:
    log = world.log(cache_idle_seconds=IDLE)
    await log.start()
    quiet, busy = await filled(log), await filled(log)
    reader = world.log(tail_cache_bytes=0, cache_idle_seconds=IDLE)
    await reader.start()
    for stream in (quiet, busy):
        assert len(values_in(await read(reader, stream, 0))) == 10
    await asyncio.sleep(1)
    ranges_read = len(world.objects.ranges_read)
    passed = 0.0
    while passed < 2 * IDLE:
        if passed < IDLE:
            assert log._tail.holds(quiet, 0), "not too soon"
        elif passed > 1.6 * IDLE:
            assert not log._tail.holds(quiet, 0)
        await asyncio.sleep(IDLE / 10)
        passed += IDLE / 10
        for each in (log, reader):
            assert len(values_in(await read(each, busy, 0))) == 10
    assert len(world.objects.ranges_read) == ranges_read, "what is used stays"
    assert not log._tail.holds(quiet, 0)
    assert log._tail.holds(busy, 0)
    assert quiet not in reader._index._known
    assert busy in reader._index._known
    assert {key[1] for key in reader._reader.segments._layouts} == {busy}
    assert list(log._committers[quiet % 2]._states) == []
    await asyncio.sleep(2 * IDLE)
    for each in (log, reader):
        assert each._reader.kept_bytes == 0
        assert len(each._tail._order) < 64
        await each.stop()
    assert len(values_in(await read(reader, quiet, 0))) == 10, "and is read again"


async def test_appending_goes_on_after_the_state_was_let_go(world: World) -> None:
    log = world.log(cache_idle_seconds=IDLE)
    await log.start()
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"], producer=(7, 0, 0)))
    await asyncio.sleep(2 * IDLE)
    assert not log._committers[stream % 2]._states
    again = await append(log, stream, batch_bytes([b"a"], producer=(7, 0, 0)))
    assert again.base_offset == 0, "a duplicate stays one"
    assert (await append(log, stream, batch_bytes([b"b"], producer=(7, 0, 1)))).base_offset == 1
    await log.stop()


@pytest.fixture
def returned(world: World, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When memory was given back."""
    found: list[float] = []
    monkeypatch.setattr(service, "give_back", lambda: found.append(world.runtime.monotonic()))
    return found


async def test_memory_goes_back_to_the_system_when_much_was_let_go(
    world: World, monkeypatch: pytest.MonkeyPatch, returned: list[float]
) -> None:
    monkeypatch.setattr(service, "_WORTH_RETURNING", 2_000)
    log = world.log(cache_idle_seconds=IDLE)
    await log.start()
    stream = await filled(log)
    [busy] = await log.create_streams(1)
    for _ in range(40):
        await asyncio.sleep(IDLE / 10)
        await append(log, busy, batch_bytes([b"v"]))
    assert not log._tail.holds(stream, 0)
    assert len(returned) == 1
    await log.stop()


async def test_memory_goes_back_to_the_system_in_each_while_without_appends(
    world: World, returned: list[float]
) -> None:
    """Frames and answers, and the records of a topic that was deleted: caches do not know of those. Requests
    that cost much may come when there are no appends, and are no appends themselves."""
    log = world.log(cache_idle_seconds=IDLE)
    await log.start()
    [stream] = await log.create_streams(1)
    for _ in range(20):
        await asyncio.sleep(IDLE / 5)
        await append(log, stream, batch_bytes([b"v"]))
    assert returned == []
    for _ in range(20):  # consumers poll on
        await asyncio.sleep(IDLE / 5)
        await read(log, stream, 0)
    assert len(returned) > 1
    before = len(returned)
    await append(log, stream, batch_bytes([b"v"]))
    await asyncio.sleep(4 * IDLE)
    assert len(returned) > before
    await log.stop()


def test_row_groups_and_footers_that_nobody_uses_are_let_go() -> None:
    groups = GroupCache(EVERYTHING)
    quiet, ahead, finished, busy = [(UUID(int=number), 0) for number in range(4)]
    for key in (quiet, ahead, finished, busy):
        groups.put(key, _Batches(), key == ahead)  # type: ignore[arg-type]
    groups.finish(finished)
    for _ in range(4):
        groups.forget_idle()
        assert groups.get(busy) is not None
    assert [key in groups for key in (quiet, ahead, finished, busy)] == [False, False, False, True]
    assert (groups.size, groups.finished_size) == (100, 0)


class _Batches:
    data, size, used = b"", 100, 0


async def test_footers_that_nobody_uses_are_let_go() -> None:
    footers = FooterCache(EVERYTHING)

    async def nothing() -> None:
        return None

    for number in (1, 2):
        footers.put(UUID(int=number), asyncio.ensure_future(nothing()), 70)  # type: ignore[arg-type]
    for _ in range(4):
        footers.forget_idle()
        assert footers.get(UUID(int=2)) is not None
    assert footers.get(UUID(int=1)) is None
    assert footers.size == 70


PROGRAM = """
import re
from dray.daemons.assembly.process import tune_memory
from dray.base.runtime.system import give_back

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

tune_memory()
before = resident()
kept, cache = [], []
for _ in range(1500):
    cache.append(bytearray(65_000))
    kept.append(bytearray(600))  # something that stays, on every page or so
full = resident()
del cache
emptied = resident()
given = give_back()
print(before, full, emptied, resident(), given)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_heap_is_given_back_though_glibc_never_trims_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=True
    )
    *figures, given = done.stdout.split()
    before, full, emptied, after = map(int, figures)
    if given == "False":
        return  # no glibc
    assert full - before > 80
    assert emptied - before > 80, "glibc keeps it"
    assert after - before < 30
