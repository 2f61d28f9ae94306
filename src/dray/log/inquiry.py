"""What administrators ask about a stream: how much it holds, and who writes to it with an id.

Neither is needed to write or read records: both are read from the metadata store on request.
"""

from __future__ import annotations

import asyncio

from dray.log.entries import IndexEntry
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.log.types import ActiveProducer, LogUnavailable, StreamClosed
from dray.metadata.contract import MetadataError


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
