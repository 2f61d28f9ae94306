"""Moving a stream's producer snapshot forward.

The snapshot bounds the fold that an appender does when it meets a stream, and it must be past any entry
before that entry loses its detail: to compaction, or to retention. It moves by compare-and-set and only
forward, over entries that are filed below the head.

It must always be able to move, or else retention and compaction of the stream would stop for good. So it is
bounded: by what one write of the engine takes, and by `LARGEST_SNAPSHOT` (docs/design/0063).
"""

from __future__ import annotations

from typing import Final

import structlog

from dray.log.producer_state import ProducerSnapshot
from dray.log.stream_store import StreamStore
from dray.metadata.contract import Ambiguous

_log = structlog.get_logger(__name__)

LARGEST_SNAPSHOT: Final = 4 << 20
"""About 97,000 producers of one batch, or 30,000 of five. On etcd a write takes less: a quarter of that."""


async def advance_snapshot(store: StreamStore, stream: int, need: int, now_ms: int | None) -> bool:
    """True once the snapshot is seen to cover the offsets below `need`, an entry's boundary; False
    when another try is needed. `now_ms` is None while no producer expires: the clock is doubted."""
    stored = await store.snapshot(stream)
    if stored.value.upto >= need:
        return True
    states, upto = stored.value.states, stored.value.upto
    for entry in await store.entries_above(stream, upto):
        if not entry.value.lists_batches:
            continue  # it has no detail of producers: the snapshot was moved past it since
        if entry.value.start == upto and entry.value.end <= need:
            states.fold(entry.value)
            upto = entry.value.end
    if upto >= need:
        living = states if now_ms is None else states.without_expired(now_ms)
        kept, forgotten = living.within(
            largest_snapshot(store), living.newest_ms() if now_ms is None else now_ms
        )
        if forgotten:
            _log.warning(
                "a stream has more producers than its snapshot can hold: the longest silent are forgotten",
                stream=stream,
                forgotten=forgotten,
            )
        moved = ProducerSnapshot(upto, kept)
        try:
            await store.write(stream, [store.put_snapshot(stream, moved, stored.version)])
        except Ambiguous:
            return False  # the next try reads whether the write applied
    return False


def largest_snapshot(store: StreamStore) -> int:
    """A snapshot is one value of one write, and every broker that appends to the stream decodes it."""
    return min(LARGEST_SNAPSHOT, store.limits.value_bytes)


async def advance_to_filed(store: StreamStore, stream: int, now_ms: int | None) -> None:
    """Cover every entry that is filed by now: one try, when there is nothing else to do."""
    stored = await store.snapshot(stream)
    entries = await store.entries_above(stream, stored.value.upto)
    if entries:
        await advance_snapshot(store, stream, entries[-1].value.end, now_ms)
