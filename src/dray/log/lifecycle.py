"""The life of a stream: its keys are made before a topic names it, and it is closed when the topic is
deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import Final

import structlog

from dray.log.counters import IdCounter
from dray.log.entries import HighWatermark
from dray.log.jobs import Job, StreamSwept, advance, put_job, put_start, removal
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    MetadataError,
    Operation,
    Put,
    StoredValue,
    Unavailable,
)
from dray.metadata.update import update
from dray.metadata.values import UnreadableValue, ValueCorrupt, seal, unseal
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock

_log = structlog.get_logger(__name__)

_CREATED_AT_ONCE = 500  # these take ten milliseconds to encode
_DAY_MS = 24 * 3_600_000
# How long a closed mark stays. It stops writes that arrive late, and those are late by seconds: a month is
# ample margin.
KEEP_CLOSED_DAYS: Final = 30
_FORGET_AT_ONCE = 256
FORMAT: Final = 1
_NOTE: Final = Struct(">q")


def note_closed(stream: int, now_ms: int) -> Put:
    """The note that the mark of a closed stream may go some weeks after this time."""
    return Put(keys.closed_stream(now_ms // _DAY_MS, stream), seal(FORMAT, _NOTE.pack(now_ms)))


def check_note(stream: int, value: bytes) -> None:
    """Raises `UnreadableValue`: the note of another build may ask for something else."""
    what = f"the note of closed stream {stream}"
    _, body = unseal(what, value, FORMAT)
    if len(body) != _NOTE.size:
        raise ValueCorrupt(what, f"it has {len(body)} bytes")


class Lifecycle:
    def __init__(
        self,
        store: StreamStore,
        stream_ids: IdCounter,
        runtime: Runtime,
        expiry: ExpiryClock | None = None,
    ) -> None:
        self._expiry = expiry or UndoubtedClock(runtime)
        self._store = store
        self._stream_ids = stream_ids
        self._runtime = runtime

    async def take_ids(self, count: int) -> list[int]:
        return await self._stream_ids.take(count)

    async def create(self, count: int) -> list[int]:
        """Fresh streams, ready to be appended to."""
        return list(await self.create_at(count))

    async def create_at(self, count: int) -> dict[int, int]:
        """Fresh streams, each with the version of its high watermark."""
        streams = await self._stream_ids.take(count)
        by_domain: dict[int, list[int]] = {}
        for stream in streams:
            by_domain.setdefault(self._store.domain(stream), []).append(stream)
        versions: dict[int, int] = dict.fromkeys(streams, 0)
        creating = [self._create(domain, group, versions) for domain, group in by_domain.items()]
        await asyncio.gather(*creating)
        return versions

    async def _create(self, domain: int, streams: list[int], versions: dict[int, int]) -> None:
        step = min(max(1, self._store.limits.operations // 4), _CREATED_AT_ONCE)
        for first in range(0, len(streams), step):
            operations: list[Operation] = []
            for stream in streams[first : first + step]:
                # Only if absent: a late copy of this write must not empty a stream that has grown.
                nothing = ProducerSnapshot(0, ProducerStates(self._store.producer_expiry_ms))
                operations.append(Put(keys.high_watermark(stream), HighWatermark().encode(), ABSENT))
                operations.append(put_start(stream, 0, 0))
                operations.append(self._store.put_snapshot(stream, nothing, 0))
                operations.append(put_job(stream, Job(), 0))
            try:
                outcomes = await self._store.write_in(domain, operations)
            except (Ambiguous, Unavailable) as error:
                raise LogUnavailable(f"streams could not be created: {error}") from error
            for stream, outcome in zip(streams[first : first + step], outcomes[::4], strict=True):
                versions[stream] = outcome.version

    async def close(self, streams: Sequence[int]) -> None:
        """No append to these streams succeeds once this returns, from whichever broker."""
        for first in range(0, len(streams), 64):
            await asyncio.gather(*[self._close(stream) for stream in streams[first : first + 64]])

    async def _close(self, stream: int) -> None:
        async def attempt() -> bool | None:
            await self._store.barrier(stream)  # or a stream newer than a stale read would stay open
            found = await self._store.high_watermark(stream)
            if found is None or found.value.closed:
                return True
            closed = found.value.sealed(closed=True)
            [outcome, *_] = await self._store.write(stream, self._store.advance(stream, found, closed))
            return outcome.applied or None

        try:
            await update(self._runtime, attempt)
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream} could not be closed: {error}") from error

    async def sweep(self, streams: Sequence[int]) -> None:
        """Remove the keys of closed streams, and the references that keep their objects.

        The closed high watermark stays for now. It shows a broker that slept for a week that the stream is
        gone, and stops a late copy of the stream's creation. A note beside it, by day, says that it may go
        some weeks later.
        """
        for stream in streams:
            await self._sweep(stream)

    async def _sweep(self, stream: int) -> None:
        limit = self._store.limits.operations // 2 - 4
        try:
            await self._store.barrier(stream)
            while entries := await self._store.entries_above(stream, -1, limit):
                # By version: a pack that is being finished may have put its merged entry onto a key
                # meanwhile, and that one has a reference.
                operations: list[Operation] = []
                for entry in entries:
                    operations += removal(stream, entry.value, entry.version)
                await self._store.write(stream, operations)
                await self._store.barrier(stream)  # or what a stale read shows would be deleted again
            leftovers: list[Operation] = [
                note_closed(stream, self._runtime.wall_ms()),
                Delete(keys.producers(stream)),
                Delete(keys.start(stream)),
                Delete(keys.cleaned(stream)),
            ]
            job = await self._job_of_swept(stream)
            while not (await self._store.write(stream, leftovers + job))[-1].applied:
                # The job has moved: a pack was decided meanwhile, and its reference has to go too.
                await self._store.barrier(stream)
                job = await self._job_of_swept(stream)
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream} could not be swept: {error}") from error

    async def _job_of_swept(self, stream: int) -> list[Operation]:
        try:
            job = await self._store.job(stream)
        except UnreadableValue:
            return []  # a value of another build, which knows what is left to do
        if not job.version:
            return []
        step = advance(stream, job.value, StreamSwept())
        return [*step.write, Delete(keys.job(stream), job.version)] if step.forget else []

    async def forget_closed(self) -> int:
        """Remove the marks of streams that were swept long ago; how many went.

        This is safe. A stream's id is never given out again. A write that expects a version of the mark
        applies neither to a closed mark nor to an absent key. The mark still stops a late copy of the
        stream's creation, but no copy is that late. A mark without a note stays.
        """
        forgotten = 0
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            return 0  # while the clock is doubted, every mark may look old
        last = now_ms // _DAY_MS - KEEP_CLOSED_DAYS
        for domain in range(self._store.domains if last > 0 else 0):
            noted = await self._store.scan_in(domain, keys.CLOSED, keys.closed_on(last), _FORGET_AT_ONCE)
            for note in noted:
                stream = keys.stream_of_closed(note.key)
                if stream is None:
                    continue
                try:
                    forgotten += await self._forget(domain, stream, note)
                except UnreadableValue as error:
                    _log.error("the mark of a closed stream stays", stream=stream, error=str(error))
        return forgotten

    async def _forget(self, domain: int, stream: int, note: StoredValue) -> bool:
        check_note(stream, note.value)
        mark = await self._store.high_watermark(stream)
        if mark is not None and not mark.value.closed:
            _log.error("a stream that was swept is open: its keys stay", stream=stream)
            return False
        operations: list[Operation] = [Delete(note.key, note.version), Delete(keys.cleaned(stream))]
        if mark is not None:
            operations.insert(0, Delete(keys.high_watermark(stream), mark.version))
        outcomes = await self._store.write_in(domain, operations)
        return outcomes[0].applied
