"""Giving a log to Dray that its source owned: one compare-and-set of the high watermark.

A boundary is decided only as long as the migration's record allows it. Record and high watermark lie in
different domains, so no write covers both. A decision (`switch_stream`) reads the version of the high
watermark first, then looks at the record, then writes by that version. A process that takes the permission
back changes the record first, then moves the versions (`forbid_boundary`). So a decision that had seen the
permission either is there when the versions are moved, or no longer applies. Only then may the fence at the
source be lifted: without this, a migrator that sleeps between its last look and its write would decide with
the writers let in again, and lose what they wrote.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dray.base.runtime import Runtime
from dray.log.origins import BoundaryStands
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Put
from dray.metadata.update import ALL_FAILURES, update


class ProducersBehind(LogError):
    """The producer snapshot does not reach the end of the log: a retry of what the source acknowledged would
    be appended again. The mirror brings it there."""


async def switch_stream(
    store: StreamStore,
    runtime: Runtime,
    stream: int,
    boundary: int | None = None,
    is_allowed: Callable[[], Awaitable[bool]] | None = None,
) -> int | None:
    """B0: the end of the log as its source left it. May be called again, by any process: whichever has an
    older view loses. The source must be fenced, and all of it mirrored. With a `boundary`, only if the log
    ends there: None where it does not. `is_allowed` is asked once the version is read; None where it says
    no. Raises `BoundaryStands` for a stream that was born here, and
    `ProducersBehind`."""

    async def attempt() -> tuple[int | None] | None:
        await store.barrier(stream)
        found = await store.high_watermark(stream)
        if found is None or found.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        origin = found.value.origin
        if origin is None:
            raise BoundaryStands(f"stream {stream} was born here")
        if not origin.is_classic:
            return (origin.boundary,)
        if boundary is not None and found.value.end != boundary:
            return (None,)
        if (await store.snapshot_upto(stream)).value < found.value.end:
            raise ProducersBehind(f"stream {stream}: its producers are not known up to its end")
        if is_allowed is not None and not await is_allowed():
            return (None,)
        switched = found.value.sealed().switched()
        put = Put(keys.high_watermark(stream), switched.encode(), found.version)
        [outcome, *_] = await store.write(stream, [put, *store.filing(stream, found.value)])
        return (switched.end,) if outcome.applied else None

    try:
        [decided] = await update(runtime, attempt, ALL_FAILURES)
    except MetadataError as error:
        raise LogUnavailable(f"stream {stream} could not be switched: {error}") from error
    return decided


# --- taking the permission back


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
        [outcome, *_] = await store.write(stream, store.advance(stream, found, found.value.sealed()))
        return (None,) if outcome.applied else None

    try:
        return (await update(runtime, attempt, ALL_FAILURES))[0]
    except MetadataError as error:
        raise LogUnavailable(f"stream {stream} could not be moved on: {error}") from error
