"""What a broker keeps of a stream that it appends to: the state at one version of its high watermark.

The state is a cache, and the compare-and-set checks it: an append that was aimed with an old state is
refused, and the state is loaded again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.log.entries import HighWatermark
from dray.log.origins import SourceOwnsLog
from dray.log.producer_state import ProducerStates
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.metadata.contract import MetadataError

_TRIES = 8
_LOADED_AT_ONCE: Final = 128


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
    """Raises `SourceOwnsLog`. Where this passed once, it passes for ever: B0 never changes."""
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
    for first in range(0, len(streams), _LOADED_AT_ONCE):
        asked = streams[first : first + _LOADED_AT_ONCE]
        loads = [load_stream_state(store, stream) for stream in asked]
        for stream, loaded in zip(asked, await asyncio.gather(*loads, return_exceptions=True), strict=True):
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
    glance, start = await asyncio.gather(store.snapshot(stream), store.start(stream))
    entries = await store.entries_above(stream, glance.value.upto)
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
