"""Giving a log to Dray that its source owned: one compare-and-set of the high watermark."""

from __future__ import annotations

from dray.log.origins import BoundaryStands
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.runtime import Runtime


async def switch_stream(store: StreamStore, runtime: Runtime, stream: int) -> int:
    """B0: the end of the log as its source left it. May be called again, by any process: whichever has an
    older view loses. The source must be fenced, and all of it mirrored. Raises `BoundaryStands` for a stream
    that was born here."""

    async def attempt() -> int | None:
        await store.barrier(stream)
        found = await store.high_watermark(stream)
        if found is None or found.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        origin = found.value.origin
        if origin is None:
            raise BoundaryStands(f"stream {stream} was born here")
        if not origin.is_classic:
            return origin.boundary
        switched = found.value.switched()
        [outcome] = await store.write(
            stream, [Put(keys.high_watermark(stream), switched.encode(), found.version)]
        )
        return switched.end if outcome.applied else None

    try:
        return await update(runtime, attempt, ALL_FAILURES)
    except MetadataError as error:
        raise LogUnavailable(f"stream {stream} could not be switched: {error}") from error
