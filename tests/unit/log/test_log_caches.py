"""The tail cache and the index cache: never wrong, bounded, and forgetful in the right order."""

from __future__ import annotations

import weakref
from itertools import pairwise
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.log.entries import BatchReference, HighWatermark, IndexEntry, pack_batches
from dray.log.read.index_cache import IndexCache
from dray.log.read.tail_cache import BESIDE, TailBatch, TailCache
from dray.log.stream_store import Versioned

STREAMS = (1, 2, 3)


# --- the tail cache


def tail_batch(base_offset: int, count: int = 1, size: int = 10) -> TailBatch:
    return TailBatch(base_offset, base_offset + count, memoryview(bytearray(size)))


additions = st.tuples(
    st.sampled_from(STREAMS),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40)), min_size=1, max_size=3),  # records, bytes
    st.sampled_from((0, 0, 0, 5)),  # what another broker appended before
    st.sampled_from((False, False, False, False, True)),  # forget the stream first
)


@settings(max_examples=80)
@given(
    st.lists(additions, max_size=30),
    st.sampled_from((0, BESIDE + 25, 5 * BESIDE, 100 * BESIDE)),
    st.sampled_from((0, 1, 5, 1000)),
)
def test_the_tail_is_never_wrong_and_never_too_large(plan: list[tuple], limit: int, most: int) -> None:  # type: ignore[type-arg]
    cache = TailCache(limit, most)
    log: dict[int, dict[int, TailBatch]] = {stream: {} for stream in STREAMS}  # by every offset
    ends = dict.fromkeys(STREAMS, 0)
    for stream, batches, gap, forget in plan:
        if forget:
            cache.forget(stream)
        ends[stream] += gap
        added = []
        for count, size in batches:
            batch = tail_batch(ends[stream], count, size)
            added.append(batch)
            log[stream].update(dict.fromkeys(range(ends[stream], ends[stream] + count), batch))
            ends[stream] += count
        cache.add(stream, added)
        assert cache.size <= limit
        held = batches_held = 0
        for other in STREAMS:
            for offset in range(-1, ends[other] + 2):
                found = cache.read(other, offset, 10**9, True)
                assert cache.holds(other, offset) == bool(found)
                if found:
                    assert found[0] is log[other].get(offset)
                    for earlier, later in pairwise(found):
                        assert earlier.end_offset == later.base_offset
                    assert found[-1].end_offset == ends[other], "what is held reaches to the end"
            run = next(
                (cache.read(other, at, 10**9, True) for at in range(ends[other]) if cache.holds(other, at)),
                [],
            )
            held += sum(len(batch.view) + BESIDE for batch in run)
            batches_held += len(run)
        assert held <= cache.size
        assert batches_held <= most


def test_the_tail_forgets_the_oldest_first_whatever_the_stream() -> None:
    cache = TailCache(3 * (10 + BESIDE))
    cache.add(1, [tail_batch(0)])
    cache.add(2, [tail_batch(0)])
    cache.add(1, [tail_batch(1)])
    cache.add(2, [tail_batch(1)])
    assert [cache.holds(1, 0), cache.holds(2, 0), cache.holds(1, 1), cache.holds(2, 1)] == [
        False,
        True,
        True,
        True,
    ]


def test_a_gap_by_another_broker_starts_a_new_run() -> None:
    cache = TailCache(10_000)
    cache.add(1, [tail_batch(0)])
    cache.add(1, [tail_batch(2)])
    assert not cache.holds(1, 0)
    assert not cache.holds(1, 1)
    assert cache.holds(1, 2)


def test_a_read_of_the_tail_fits_but_for_the_first_batch() -> None:
    cache = TailCache(10_000)
    cache.add(1, [tail_batch(0), tail_batch(1), tail_batch(2)])
    assert [len(cache.read(1, 0, limit, True)) for limit in (0, 9, 10, 20, 29, 30)] == [1, 1, 1, 2, 2, 3]
    assert [len(cache.read(1, 0, limit, False)) for limit in (0, 9, 10, 30)] == [0, 0, 1, 3]
    assert cache.read(1, 3, 100, True) == []


def test_what_the_tail_forgets_is_let_go_at_once_and_what_it_keeps_is_found() -> None:
    """Long runs are cleared away in pieces: nobody may notice, and no bytes may wait for it."""
    kept = 10
    cache = TailCache(kept * (10 + BESIDE))
    made: list[weakref.ref[bytearray]] = []
    for number in range(1000):
        content = _Content(10)
        made.append(weakref.ref(content))
        cache.add(1, [TailBatch(2 * number, 2 * number + 2, memoryview(content))])
        del content
        alive = [place for place, reference in enumerate(made) if reference() is not None]
        assert alive == list(range(max(0, number + 1 - kept), number + 1))
        for place in alive:
            for offset in (2 * place, 2 * place + 1):
                assert cache.read(1, offset, 0, True)[0].base_offset == 2 * place
        assert not cache.holds(1, 2 * alive[0] - 1)
        assert len(cache.read(1, 2 * alive[0], 10**9, True)) == len(alive)


class _Content(bytearray):
    """One that can be watched being let go."""


# --- the index cache


def entry(start: int, end: int) -> IndexEntry:
    batch = BatchReference(0, 10, end - start, 0, 0, 0, -1, -1, -1)
    return IndexEntry(start, end, end * 10, 0, 0, 0, 0, 0, UUID(int=end), "path", pack_batches([batch]))


class Stream:
    """A stream as the store has it."""

    def __init__(self) -> None:
        self.entries: list[IndexEntry] = []
        self.version = 1

    def append(self, count: int) -> Versioned[HighWatermark]:
        start = self.entries[-1].end if self.entries else 0
        self.entries.append(entry(start, start + count))
        self.version += 1
        return self.newest()

    def newest(self) -> Versioned[HighWatermark]:
        if not self.entries:
            return Versioned(HighWatermark(), self.version)
        return Versioned(HighWatermark.at(self.entries[-1]), self.version)

    def holding(self, offset: int) -> IndexEntry | None:
        return next((found for found in self.entries if found.start <= offset < found.end), None)


index_steps = st.tuples(
    st.sampled_from(STREAMS),
    st.sampled_from(("append", "append", "append", "unseen", "look", "old", "forget", "forget entries")),
    st.integers(0, 60),
)


@settings(max_examples=80)
@given(st.lists(index_steps, max_size=60), st.sampled_from((1, 3, 100)), st.sampled_from((0, 4_000, 1 << 20)))
def test_the_index_cache_is_never_wrong_only_behind(
    plan: list[tuple[int, str, int]], per_stream: int, limit: int
) -> None:
    cache = IndexCache(per_stream, limit)
    streams = {number: Stream() for number in STREAMS}
    starts = dict.fromkeys(STREAMS, 0)
    reached = dict.fromkeys(STREAMS, -1)  # what is known of a stream only moves forward
    for number, what, at in plan:
        stream = streams[number]
        if what == "append":
            cache.observe(number, stream.append(1 + at % 3))
        elif what == "unseen":  # by another broker
            stream.append(1 + at % 3)
        elif what == "look":
            window = [found for found in stream.entries if found.end > at][:5]
            cache.remember(number, window)
            starts[number] = max(starts[number], min(at, 3))
            cache.observe(number, stream.newest(), starts[number])
        elif what == "old" and stream.entries:  # a read that was overtaken
            older = stream.entries[at % len(stream.entries)]
            cache.observe(number, Versioned(HighWatermark.at(older), 1))
        elif what == "forget":
            cache.forget(number)
            reached[number] = -1
        elif what == "forget entries":
            cache.forget_entries(number)
        for other in STREAMS:
            end = streams[other].entries[-1].end if streams[other].entries else 0
            for offset in range(end + 2):
                assert cache.find(other, offset) in (None, streams[other].holding(offset))
            known = cache.high_watermark(other)
            if known is None:
                reached[other] = -1
            else:
                assert reached[other] <= known.end <= end
                reached[other] = known.end
            assert (cache.start(other) or 0) <= starts[other]
        assert cache.size <= max(limit, _largest(cache))


def _largest(cache: IndexCache) -> int:
    """One stream is always kept, however large."""
    return max((known.size for known in cache._known.values()), default=0)


def test_the_newest_entries_are_kept() -> None:
    cache, stream = IndexCache(2), Stream()
    for _ in range(3):
        cache.observe(1, stream.append(1))
    assert [cache.find(1, offset) for offset in range(4)] == [None, *stream.entries[1:], None]


def test_entries_after_a_gap_replace_those_before() -> None:
    cache, stream = IndexCache(10), Stream()
    cache.observe(1, stream.append(1))
    stream.append(1)  # by another broker
    cache.observe(1, stream.append(1))
    assert [cache.find(1, offset) for offset in range(3)] == [None, None, stream.entries[2]]


def test_a_window_is_kept_as_far_as_it_adjoins() -> None:
    cache, stream = IndexCache(1), Stream()
    for _ in range(6):
        cache.observe(1, stream.append(1))
    cache.remember(1, [*stream.entries[:2], stream.entries[3]])
    found = [cache.find(1, offset) for offset in range(6)]
    assert found == [*stream.entries[:2], None, None, None, stream.entries[5]]


def test_the_stream_asked_about_longest_ago_goes_first() -> None:
    cache = IndexCache(10, 4_500)  # three streams with an entry each
    streams = {number: Stream() for number in (1, 2, 3, 4)}
    for number in (1, 2, 3):
        cache.observe(number, streams[number].append(1))
    assert cache.find(1, 0) is not None
    cache.observe(4, streams[4].append(1))
    assert [cache.high_watermark(number) is None for number in (1, 2, 3, 4)] == [False, True, False, False]
