"""Streams come and go: their keys made before a topic names them, closed when it is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dray.log.counters import Counter
from dray.log.entries import HighWatermark
from dray.log.jobs import Job, put_job
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Ambiguous, Delete, MetadataError, Operation, Put, Unavailable

_TRIES = 16
_CREATED_AT_ONCE = 500  # what takes ten milliseconds to encode


class Lifecycle:
    def __init__(self, store: StreamStore, stream_ids: Counter) -> None:
        self._store = store
        self._stream_ids = stream_ids

    async def create(self, count: int) -> list[int]:
        """Fresh streams, ready to be appended to."""
        streams = await self._stream_ids.take(count)
        by_domain: dict[int, list[int]] = {}
        for stream in streams:
            by_domain.setdefault(self._store.domain(stream), []).append(stream)
        await asyncio.gather(*[self._create(domain, group) for domain, group in by_domain.items()])
        return streams

    async def _create(self, domain: int, streams: list[int]) -> None:
        step = min(max(1, self._store.store.limits.operations // 4), _CREATED_AT_ONCE)
        for first in range(0, len(streams), step):
            operations: list[Operation] = []
            for stream in streams[first : first + step]:
                # If absent: a late copy of this write must not bring a grown stream back to nothing.
                nothing = ProducerSnapshot(0, ProducerStates(self._store.producer_expiry_ms))
                operations.append(Put(keys.high_watermark(stream), HighWatermark().encode(), ABSENT))
                operations.append(self._store.put_start(stream, 0, 0))
                operations.append(self._store.put_snapshot(stream, nothing, 0))
                operations.append(put_job(stream, Job(), 0))
            try:
                await self._store.store.write(domain, operations)
            except (Ambiguous, Unavailable) as error:
                raise LogUnavailable(f"streams could not be created: {error}") from error

    async def close(self, streams: Sequence[int]) -> None:
        """No append to these streams succeeds once this returns, from whichever broker."""
        for first in range(0, len(streams), 64):
            await asyncio.gather(*[self._close(stream) for stream in streams[first : first + 64]])

    async def _close(self, stream: int) -> None:
        for _ in range(_TRIES):
            try:
                await self._store.barrier(
                    stream
                )  # or a stream that is newer than what we read would stay open
                found = await self._store.high_watermark(stream)
                if found is None or found.value.closed:
                    return
                closed = found.value.sealed(closed=True)
                [outcome, *_] = await self._store.write(stream, self._store.advance(stream, found, closed))
            except Ambiguous:
                continue
            except MetadataError as error:
                raise LogUnavailable(f"stream {stream} could not be closed: {error}") from error
            if outcome.applied:
                return
        raise LogUnavailable(f"stream {stream} could not be closed: too many others append")

    async def sweep(self, streams: Sequence[int]) -> None:
        """Remove the keys of closed streams, and the references that keep their objects.

        The closed high watermark stays: it is what tells a broker that slept for a week that the
        stream is gone, and a late copy of its creation that there is nothing to create.
        """
        for stream in streams:
            await self._sweep(stream)

    async def _sweep(self, stream: int) -> None:
        limit = self._store.store.limits.operations // 2 - 4
        try:
            await self._store.barrier(stream)
            while entries := await self._store.entries_above(stream, -1, limit):
                operations: list[Operation] = []
                for entry in entries:
                    key = keys.index_entry(stream, entry.value.end, entry.value.cumulative_size)
                    operations.append(Delete(key))
                    if not entry.value.is_parquet:
                        operations.append(Delete(keys.reference(entry.value.wal_id, stream)))
                await self._store.write(stream, operations)
            leftovers: list[Operation] = [Delete(keys.producers(stream)), Delete(keys.start(stream))]
            await self._store.write(stream, leftovers)
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream} could not be swept: {error}") from error
