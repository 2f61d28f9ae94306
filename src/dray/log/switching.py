"""Giving a log to Dray that its source owned: one compare-and-set of the high watermark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dray.log.origins import BoundaryStands
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.runtime import Runtime


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
    no: see `boundary_decision.py`. Raises `BoundaryStands` for a stream that was born here, and
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
        if (await store.snapshot(stream)).value.upto < found.value.end:
            raise ProducersBehind(f"stream {stream}: its producers are not known up to its end")
        if is_allowed is not None and not await is_allowed():
            return (None,)
        switched = found.value.switched()
        [outcome] = await store.write(
            stream, [Put(keys.high_watermark(stream), switched.encode(), found.version)]
        )
        return (switched.end,) if outcome.applied else None

    try:
        [decided] = await update(runtime, attempt, ALL_FAILURES)
    except MetadataError as error:
        raise LogUnavailable(f"stream {stream} could not be switched: {error}") from error
    return decided
