"""A broker's view of a stream that it appends to: the state at one version of its high watermark.

The state is a cache, and the compare-and-set checks it: an append that was aimed with an old state is
refused, and the state is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from dray.base.runtime import gather_some, in_turns
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.origins import SourceOwnsLog
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.stream_store import ANY_END, StreamStore, Versioned
from dray.log.types import ActiveProducer, LogError, LogUnavailable, StreamClosed
from dray.metadata.contract import Ambiguous, MetadataError

_TRIES = 8
_LOADED_AT_ONCE: Final = 128
_PAGE: Final = 512  # entries of the index, folded in a turn


@dataclass(slots=True)
class StreamState:
    high_watermark: Versioned[HighWatermark]
    producers: ProducerStates
    # Entries folded above the stored producer snapshot, which bounds what a load has to fold.
    entries_since_snapshot: int = 0
    # The first readable offset when the state was loaded: it is part of every answer to a producer.
    start: int = 0
    # When this process put the stream's hint: all commits since then are its own (`carried_hints.py`).
    hinted_at: float | None = None


class FoldGap(Exception):
    """The entries read do not reach from the snapshot to the end: another process changed the index
    meanwhile."""


def must_take_appends(stream: int, state: StreamState) -> None:
    """Raises `SourceOwnsLog`. Once this has passed, it passes for ever: B0 never changes."""
    if state.high_watermark.value.is_classic:
        raise SourceOwnsLog(f"stream {stream}: its source takes the appends until it is switched")


async def load_stream_state(store: StreamStore, stream: int) -> StreamState:
    for attempt in range(_TRIES):
        try:
            return await _load(store, stream)
        except FoldGap:
            if attempt == _TRIES - 1:
                break
            await store.barrier(stream)
    raise LogUnavailable(f"stream {stream}: its index and its producer snapshot do not meet")


async def load_stream_states(store: StreamStore, streams: Sequence[int]) -> dict[int, StreamState]:
    """The states of several streams, read side by side. A stream whose state cannot be read is left out: its
    own load says why."""
    states: dict[int, StreamState] = {}
    loads = (load_stream_state(store, stream) for stream in streams)
    found = await gather_some(loads, _LOADED_AT_ONCE, return_exceptions=True)
    for stream, loaded in zip(streams, found, strict=True):
        if isinstance(loaded, StreamState):
            states[stream] = loaded
        elif not isinstance(loaded, LogError | MetadataError):
            raise loaded
    return states


async def _load(store: StreamStore, stream: int) -> StreamState:
    # The order is a rule: high watermark, then index, then snapshot. The high watermark first, so
    # that the fold can only know more than the version the commit will name. The index before the
    # snapshot, since the snapshot is moved forward before entries lose their detail. A glance at the
    # snapshot beforehand only says from where to read the index.
    high_watermark = await store.high_watermark(stream)
    if high_watermark is None:  # it is made before any topic names the stream, so this may be a stale read
        await store.barrier(stream)
        high_watermark = await store.high_watermark(stream)
    if high_watermark is None or high_watermark.value.closed:
        raise StreamClosed(f"stream {stream} is closed")
    if high_watermark.value.end == 0:
        # Nothing was ever appended: there are neither producers nor entries, and the start is 0.
        return StreamState(high_watermark, ProducerStates(store.producer_expiry_ms))
    glance, start = await asyncio.gather(store.snapshot_upto(stream), store.start(stream))
    entries = await store.entries_above(stream, glance.value)
    snapshot = (await store.snapshot(stream)).value
    if high_watermark.value.is_classic:
        # Nothing is appended here, and the snapshot may lag: the mirror knows what is above it.
        return StreamState(high_watermark, snapshot.states, 0, start.value)

    producers, reached, folded = snapshot.states, snapshot.upto, 0
    for entry in entries:
        if not entry.value.lists_batches:
            continue  # it has no detail of producers: the snapshot must be past it, or there is a gap
        if entry.value.start == reached and entry.value.end <= high_watermark.value.end:
            producers.fold(entry.value)
            reached = entry.value.end
            folded += 1
    head = high_watermark.value.head
    if head is not None and head.lists_batches and head.start == reached:
        producers.fold(head)
        reached = head.end
    if reached < high_watermark.value.end:
        raise FoldGap
    return StreamState(high_watermark, producers, folded, start.value)


# --- the stream's producer snapshot, moved forward
#
# It bounds the fold that an appender does when it meets a stream, and it must be past any entry before that
# entry loses its detail: to compaction, or to retention. It moves by compare-and-set and only forward, over
# entries that are filed below the head.
#
# It must always be able to move, or else retention and compaction of the stream would stop for good. So it
# is bounded: by what one write of the engine takes, and by `LARGEST_SNAPSHOT` (docs/design/0063).


_log = structlog.get_logger(__name__)

LARGEST_SNAPSHOT: Final = 4 << 20
"""About 97,000 producers of one batch, or 30,000 of five. On etcd a write takes less: a quarter of that."""


async def advance_snapshot(store: StreamStore, stream: int, need: int, now_ms: int | None) -> bool:
    """True once the snapshot is seen to cover the offsets below `need`, an entry's boundary; False
    when another try is needed. `now_ms` is None while no producer expires: the clock is doubted."""
    stored = await store.snapshot_below(stream, need)
    if stored is None:
        return True
    states, upto, above = stored.value.states, stored.value.upto, stored.value.upto
    while upto < need and (page := await store.entries_above(stream, above, _PAGE, upto=need)):
        for entry in page:
            if not entry.value.lists_batches:
                continue  # it has no detail of producers: the snapshot was moved past it since
            if entry.value.start == upto:
                states.fold(entry.value)
                upto = entry.value.end
        above = page[-1].value.end
        if len(page) < _PAGE:
            break
    if upto >= need:
        living = states if now_ms is None else states.without_expired(now_ms)
        kept, forgotten = await in_turns(
            living.bounding(largest_snapshot(store), living.newest_ms() if now_ms is None else now_ms)
        )
        say_forgotten(stream, forgotten)
        value = await in_turns(ProducerSnapshot(upto, kept).encoding())
        try:
            [outcome] = await store.write(stream, [store.put_snapshot(stream, value, stored.version)])
        except Ambiguous:
            return False  # the next try reads whether the write applied
        return outcome.applied
    return False


def say_forgotten(stream: int, forgotten: int) -> None:
    if forgotten:
        _log.warning(
            "a stream has more producers than its snapshot can hold: the longest silent are forgotten",
            stream=stream,
            forgotten=forgotten,
        )


def largest_snapshot(store: StreamStore) -> int:
    """A snapshot is one value of one write, and every broker that appends to the stream decodes it."""
    return min(LARGEST_SNAPSHOT, store.limits.value_bytes)


async def advance_to_filed(store: StreamStore, stream: int, now_ms: int | None) -> None:
    """Cover every entry that is filed by now: one try, when there is nothing else to do."""
    await advance_snapshot(store, stream, await store.last_end(stream, ANY_END - 1), now_ms)


# --- questions of administrators: how much a stream holds, and who writes to it with an id
#
# Neither is needed to write or read records: both are read from the metadata store on request.


async def stream_size(store: StreamStore, stream: int) -> int:
    """The bytes of the batches from the stream's start on, by whole index entries as retention counts them.
    Compacted batches count with the size they had before, except in an entry that holds a raised start: for
    that one only the file's size is known."""
    try:
        high_watermark, start = await asyncio.gather(store.high_watermark(stream), store.start(stream))
        if high_watermark is None:  # the stream may be newer than the replica that was read
            await store.barrier(stream)
            high_watermark = await store.high_watermark(stream)
        if high_watermark is None or high_watermark.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        value = high_watermark.value
        if start.value == 0:
            return value.cumulative_size
        if start.value >= value.end:
            return 0
        filed = await store.entries_above(stream, start.value, 1)
    except MetadataError as error:
        raise LogUnavailable(f"the metadata store did not answer: {error}") from error
    first = filed[0].value if filed else value.head
    if first is None:
        return 0
    return max(0, value.cumulative_size - first.cumulative_size) + _size_of(first)


def _size_of(entry: IndexEntry) -> int:
    if entry.is_parquet:
        return sum(group.length for group in entry.row_groups())
    return entry.stored_bytes


async def active_producers(store: StreamStore, stream: int, now_ms: int) -> list[ActiveProducer]:
    """The idempotent producers that the stream remembers, by their ids. Raises `StreamClosed`."""
    try:
        state = await load_stream_state(store, stream)
    except MetadataError as error:
        raise LogUnavailable(f"the metadata store did not answer: {error}") from error
    return [
        ActiveProducer(producer_id, producer.epoch, producer.batches[-1].last_sequence, producer.last_ms)
        for producer_id, producer in sorted(state.producers.without_expired(now_ms).items())
    ]
