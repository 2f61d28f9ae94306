"""Deciding a boundary only as long as the migration's record allows it.

Record and high watermark lie in different domains, so no write covers both. A decision (`switching.py`) reads
the version of the high watermark first, then looks at the record, then writes by that version. Who takes the
permission back changes the record first, then moves the versions (`forbid_boundary`). So a decision that had
seen the permission either is there when the versions are moved, or no longer applies. Only then may the fence
at the source be lifted: without this, a migrator that sleeps between its last look and its write would decide
with the writers let in again, and lose what they wrote.
"""

from __future__ import annotations

from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.runtime import Runtime


async def boundary_of(store: StreamStore, stream: int) -> int | None:
    """None while the source owns the stream."""
    try:
        await store.barrier(stream)
        found = await store.high_watermark(stream)
    except MetadataError as error:
        raise LogUnavailable(f"the boundary of stream {stream} cannot be read: {error}") from error
    if found is None or found.value.closed:
        raise StreamClosed(f"stream {stream} is closed")
    origin = found.value.origin
    return None if origin is None or origin.is_classic else origin.boundary


async def forbid_boundary(store: StreamStore, runtime: Runtime, stream: int) -> int | None:
    """Move the version of a classic stream, so that a decision that was allowed before this does not apply
    any more. B0 where it was decided already. May be called for a stream that is closed."""

    async def attempt() -> tuple[int | None] | None:
        await store.barrier(stream)
        found = await store.high_watermark(stream)
        if found is None or found.value.closed or found.value.origin is None:
            return (None,)
        if not found.value.origin.is_classic:
            return (found.value.origin.boundary,)
        put = Put(keys.high_watermark(stream), found.value.encode(), found.version)
        [outcome] = await store.write(stream, [put])
        return (None,) if outcome.applied else None

    try:
        return (await update(runtime, attempt, ALL_FAILURES))[0]
    except MetadataError as error:
        raise LogUnavailable(f"stream {stream} could not be moved on: {error}") from error
