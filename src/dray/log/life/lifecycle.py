"""The life of a stream: its keys are made before a topic names it, and it ends when the topic is deleted.
A restore begins another epoch in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final, NamedTuple

import structlog

from dray.base.runtime import DAY_MS, ExpiryClock, Runtime, UndoubtedClock, gather_some
from dray.log.entries import HighWatermark
from dray.log.jobs.machine import Job, StreamSwept, advance, put_job, put_start, removal
from dray.log.life.counters import IdCounter
from dray.log.origins import Origin
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable, Versioned
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    DeleteRange,
    MetadataError,
    Operation,
    Put,
    StoredValue,
    Unavailable,
)
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import JsonCodec, UnreadableValue, ValueCorrupt, seal, unseal

_log = structlog.get_logger(__name__)

_CREATED_AT_ONCE = 500  # these take ten milliseconds to encode
# How long a closed mark stays. It stops writes that arrive late, and those are late by seconds: a month is
# ample margin.
KEEP_CLOSED_DAYS: Final = 30
_FORGET_AT_ONCE = 256
_CLOSED_AT_ONCE = 64
FORMAT: Final = 1
_NOTE: Final = Struct(">q")


def note_closed(stream: int, now_ms: int) -> Put:
    """The note that the mark of a closed stream may go some weeks after this time."""
    return Put(keys.closed_stream(now_ms // DAY_MS, stream), seal(FORMAT, _NOTE.pack(now_ms)))


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
        await gather_some(self._create(domain, group, versions) for domain, group in by_domain.items())
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
        await gather_some((self._close(stream) for stream in streams), _CLOSED_AT_ONCE)

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
                Delete(keys.epochs(stream)),
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

    async def forget_closed(self, domains: Iterable[int] | None = None) -> int:
        """Remove the marks of streams that were swept long ago; how many went.

        This is safe. A stream's id is never given out again. A write that expects a version of the mark
        applies neither to a closed mark nor to an absent key. The mark still stops a late copy of the
        stream's creation, but no copy is that late. A mark without a note stays.
        """
        forgotten = 0
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            return 0  # while the clock is doubted, every mark may look old
        last = now_ms // DAY_MS - KEEP_CLOSED_DAYS
        for domain in (range(self._store.domains) if domains is None else domains) if last > 0 else ():
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
        # A broker that stood still through the sweep may have filed the head that it knew, with what that
        # carries: its append was refused, and the entry is still there.
        index = keys.offset_index(stream)
        operations: list[Operation] = [
            Delete(note.key, note.version),
            Delete(keys.cleaned(stream)),
            DeleteRange(index, keys.prefix_end(index)),
        ]
        if mark is not None:
            operations.insert(0, Delete(keys.high_watermark(stream), mark.version))
        outcomes = await self._store.write_in(domain, operations)
        return outcomes[0].applied


# --- the offsets at which leader epochs began, for consumers that come with an earlier one
#
# Nothing that is committed is ever truncated, so a stream mostly has one epoch, and nothing is stored. A
# restore of earlier metadata does truncate it: what was acknowledged after the backup is gone, and its
# offsets are given to other records. So each restore begins an epoch at the end that the stream has then. A
# consumer that read further in an earlier epoch hears that that epoch ended there, as it does from Kafka
# after an unclean election.


EPOCHS_FORMAT: Final = 1


class EpochBeginning(NamedTuple):
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Epochs:
    starts: tuple[EpochBeginning, ...] = ()  # of those that a restore began; epochs rise

    def end_of(self, epoch: int, end: int) -> int:
        """The offset at which an epoch ended, in a stream that ends at `end` now."""
        return min([start.offset for start in self.starts if start.epoch > epoch], default=end)

    def begun(self, epoch: int, offset: int) -> Epochs:
        return Epochs(
            (*(start for start in self.starts if start.epoch < epoch), EpochBeginning(epoch, offset))
        )


_CODEC: Final = JsonCodec(Epochs, EPOCHS_FORMAT)
NO_EPOCHS: Final = Epochs()


def encode_epochs(epochs: Epochs) -> bytes:
    return _CODEC.encode(epochs)


def decode_epochs(value: bytes) -> Epochs:
    return _CODEC.decode("the epochs of a stream", value)


async def read_epochs(store: StreamStore, stream: int) -> Versioned[Epochs]:
    record = await store.get_in(store.domain(stream), keys.epochs(stream))
    return (
        Versioned(NO_EPOCHS, 0) if record is None else Versioned(decode_epochs(record.value), record.version)
    )


async def begin_epoch(store: StreamStore, runtime: Runtime, stream: int, epoch: int) -> int | None:
    """From the stream's end on, its records are of this epoch. The end; None for a stream that is closed or
    gone. No broker may run: the epochs are read where a stream is served by an epoch that is not its
    first."""

    async def attempt() -> tuple[int | None] | None:
        await store.barrier(stream)
        found = await store.high_watermark(stream)
        if found is None or found.value.closed:
            return (None,)
        epochs = await read_epochs(store, stream)
        put = Put(
            keys.epochs(stream),
            encode_epochs(epochs.value.begun(epoch, found.value.end)),
            epochs.version or ABSENT,
        )
        following = _of_epoch(found.value, epoch)
        outcomes = await store.write(stream, [put, *store.advance(stream, found, following)])
        return (found.value.end,) if outcomes[0].applied and outcomes[1].applied else None

    return (await update(runtime, attempt, ALL_FAILURES))[0]


def _of_epoch(value: HighWatermark, epoch: int) -> HighWatermark:
    """Without its head, which is filed: an append of a broker that slept must not find the version that it
    knew."""
    sealed = value.sealed()
    origin = sealed.origin or Origin(boundary=0, tier_end=0, leader_epoch=epoch)
    return replace(sealed, origin=replace(origin, leader_epoch=epoch))
