"""From batches to WAL objects: one pipeline per metadata domain.

Batches gather in an open object. It closes when it is large enough, when the linger has passed, or, without a
linger, as soon as nothing of the domain is uploading: a lone producer does not wait. Under load, when batches
were already waiting as the last upload ended, it stays open for the milliseconds in which more keep coming:
an object costs as much as dozens of small batches, so under load fewer and larger ones are made. The linger
is for company: a producer that is alone with its stream, and has sent what it may send before an answer, is
not kept waiting by it. Objects are staged and uploaded side by side, and committed in the order in which they
were closed, so that the batches of a producer keep their order.

Small batches need no object where the log carries them (`carried_lane.py`), unless their stream is on its way
in one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from uuid import UUID

import structlog

from dray.base.runtime import DAY_MS, Runtime, run_once
from dray.log import wal_keys
from dray.log.append.carried_lane import CarriedLane
from dray.log.append.chunks import OpenObject, PendingBatch, StagedObject, reference_of
from dray.log.append.commit import Committer
from dray.log.append.stage_ahead import AheadMarks, StagedMark
from dray.log.observer import LogObserver
from dray.log.settings import LogSettings
from dray.log.types import LogUnavailable
from dray.log.wal import Chunk as WalChunk
from dray.log.wal import ChunkBatch, EncodedObject, encode, object_path
from dray.metadata.contract import MetadataError, MetadataStore, Operation
from dray.objects.contract import ObjectError, ObjectStore

_log = structlog.get_logger(__name__)

# An encoded batch reference, rounded up: what a batch adds to a commit.
_REFERENCE_BYTES = 48
# A high watermark and two entries without their batches, rounded up: their paths are the most of it.
_HEADS_BYTES = 1024
# Under load and without a linger: a look every so often whether more came, this many times at most, and not
# at all for an object that is worth its cost already.
_LULL_SECONDS = 0.001
_LULL_LOOKS = 4
_WORTHWHILE_BYTES = 1 << 20
# So much of one stream is all that its producer sends before it has an answer.
_ALONE_BYTES = 512 * 1024
# Objects below this are encoded on the event loop: a hop to a thread would cost more.
_ENCODE_INLINE_BYTES = 256 * 1024


class DomainPipeline:
    def __init__(
        self,
        domain: int,
        store: MetadataStore,
        objects: ObjectStore,
        runtime: Runtime,
        settings: LogSettings,
        committer: Committer,
        observer: LogObserver,
        on_settled: Callable[[list[int]], None],
    ) -> None:
        self._domain = domain
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._settings = settings
        self._committer = committer
        self._observer = observer
        self._on_settled = on_settled
        # A stream takes at most two operations of a commit, one reference of a staging write.
        self._max_streams = max(1, store.limits.operations // 2 - 16)
        # A stream's part of a commit holds its new head and the one that it files away: half of a write is
        # for either, beside what they hold beyond their batches.
        commit_bytes = min(settings.max_commit_bytes, (store.limits.value_bytes - _HEADS_BYTES) // 2)
        self._max_batches = max(1, commit_bytes // _REFERENCE_BYTES)
        self._open = OpenObject()
        self._day: int | None = None  # of the append times in the open object
        # Of the object that was closed last: the stream that had it to itself, and in how many batches.
        self._alone: tuple[int, int] | None = None
        self._closed: deque[OpenObject] = deque()
        self._lane: CarriedLane | None = None
        self._underway: set[asyncio.Task[None]] = set()
        self._unfinished: list[OpenObject] = []  # closed, and not yet committed or failed
        self._uploading = 0  # objects that are not committing yet
        self._last_commit: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        # By object. The operations of an object stay together: if its mark were deleted before its
        # references, no collector would ever find it.
        self._settling: deque[list[Operation]] = deque()
        self._settle_timer: asyncio.TimerHandle | None = None
        self._ahead = AheadMarks(
            runtime, settings.ahead_bytes, self._path, self._write_stage, self._settle_unused
        )
        self._stopping = False

    def append(self, stream: int, pending: PendingBatch) -> None:
        if self._stopping:
            pending.refuse(LogUnavailable("this broker is stopping"))
            return
        lane = self._lane
        if lane is not None:
            size = pending.batch.length
            if (
                size <= lane.largest
                and lane.is_open
                and lane.takes(stream, size)
                and not self._is_on_its_way(stream)
                and lane.append(stream, pending)
            ):
                return
            for earlier in lane.take_back(stream):
                self._add(stream, earlier)
        self._add(stream, pending)

    def carry_by(self, lane: CarriedLane) -> None:
        """From now on small batches go by this lane, while it is open."""
        self._lane = lane

    def _is_on_its_way(self, stream: int) -> bool:
        """Are batches of the stream in an object that is not committed yet? Later batches must go after
        them."""
        return stream in self._open.chunks or any(stream in each.chunks for each in self._unfinished)

    def _add(self, stream: int, pending: PendingBatch) -> None:
        if pending.append_time_ms >= 0:
            self._keep_to_one_day(pending.append_time_ms // DAY_MS)
        opened = self._open
        opened.add(stream, pending)
        if (
            opened.size >= self._settings.object_bytes
            or opened.batch_count >= self._max_batches
            or len(opened.chunks) >= self._max_streams
        ):
            self._close()
            return
        linger = self._settings.linger_seconds
        if linger > 0 and self._nothing_else_comes():
            linger = 0.0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if self._timer is None:
            if linger > 0:
                self._timer = asyncio.get_running_loop().call_later(linger, self._close)
            elif not self._uploading:
                # Not at once, so that batches that arrived together are flushed together.
                self._timer = asyncio.get_running_loop().call_soon(self._close)

    def _nothing_else_comes(self) -> bool:
        """Has one stream this object to itself, as it had the last, and does its producer wait for an answer?
        It does where it has sent much, or where the last object was its one batch, as this one is."""
        opened = self._open
        if self._alone is None or len(opened.chunks) != 1 or self._alone[0] not in opened.chunks:
            return False
        return opened.size >= _ALONE_BYTES or self._alone[1] == opened.batch_count == 1

    def _keep_to_one_day(self, day: int) -> None:
        """Batches that the broker stamps at two sides of midnight (UTC) go into two objects, and so into two
        index entries: a table that is partitioned by day needs files of one day, and they are made of whole
        entries."""
        if self._day not in (None, day):
            self._close()
        self._day = day

    async def stop(self) -> None:
        """Flush the open object, wait for all objects in flight, and settle them."""
        self._stopping = True
        if self._lane is not None:
            await self._lane.stop()
        self._close()
        while self._underway:
            await asyncio.wait(list(self._underway))
        await self._ahead.stop()
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        await self._settle_now()

    # --- closing and launching

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._open.batch_count:
            only = next(iter(self._open.chunks)) if len(self._open.chunks) == 1 else None
            self._alone = None if only is None else (only, self._open.batch_count)
            self._closed.append(self._open)
            self._unfinished.append(self._open)
            self._open = OpenObject()
            self._day = None
        self._launch()

    def _launch(self) -> None:
        while self._closed and len(self._underway) < self._settings.uploads_in_flight:
            previous = self._last_commit
            self._last_commit = done = asyncio.get_running_loop().create_future()
            task = run_once(
                self._runtime, "WAL object", self._bring_in, self._closed.popleft(), previous, done
            )
            self._uploading += 1
            self._underway.add(task)
            task.add_done_callback(self._is_in)

    def _is_in(self, task: asyncio.Task[None]) -> None:
        self._underway.discard(task)
        self._go_on()

    def _go_on(self) -> None:
        """An upload or a whole object is done. While one object commits, the next may be uploaded."""
        if self._closed:
            self._launch()
        elif self._open.batch_count and not self._uploading:
            if self._settings.linger_seconds > 0:
                if self._nothing_else_comes():
                    self._close()
            elif self._timer is None:
                self._close_at_a_lull(0, _LULL_LOOKS)

    def _close_at_a_lull(self, batches_before: int, looks: int) -> None:
        opened = self._open
        if looks == 0 or opened.batch_count == batches_before or opened.size >= _WORTHWHILE_BYTES:
            self._close()
        else:
            self._timer = asyncio.get_running_loop().call_later(
                _LULL_SECONDS, self._close_at_a_lull, opened.batch_count, looks - 1
            )

    # --- one object, from stage to settle

    async def _bring_in(
        self, opened: OpenObject, previous: asyncio.Future[None] | None, done: asyncio.Future[None]
    ) -> None:
        try:
            await self._upload_and_commit(opened, previous)
        finally:
            self._fail(opened, "the append was cut short: try again")
            self._unfinished.remove(opened)
            # Even if this object failed, the next may commit only after those before it.
            if previous is not None and not previous.done():
                previous.add_done_callback(lambda _: _finish(done))
            else:
                _finish(done)

    async def _upload_and_commit(self, opened: OpenObject, previous: asyncio.Future[None] | None) -> None:
        try:
            staged = await self._upload(opened)
        finally:
            self._uploading -= 1
            self._go_on()
        if staged is None:
            return
        if previous is not None and not previous.done():
            await asyncio.shield(previous)
        if self._lane is not None:
            await self._lane.passed(staged.chunks)
        settlement = await self._committer.commit(staged)
        if self._lane is not None and settlement.lost:
            self._lane.lost_races(settlement.lost)
        if settlement.undecided:
            # A write may still apply: the references and the mark stay, and the collector decides.
            _log.debug("WAL object left to the collector", path=staged.path)
        else:
            self._settle(wal_keys.settle(staged.wal_id, staged.staging_version, settlement.failed))
        self._on_settled([stream for stream in staged.chunks if stream not in settlement.failed])

    async def _upload(self, opened: OpenObject) -> StagedObject | None:
        """The object, staged and uploaded. None if that failed: its batches have been refused then."""
        began = self._runtime.monotonic()
        staged, encoded = await self._stage(opened)
        if staged is None or encoded is None:
            self._fail(opened, "the metadata store did not take the staging mark: try again")
            return None
        self._ahead.uploading(opened.chunks, opened.size)
        try:
            await self._objects.put(staged.path, encoded.parts)
        except ObjectError as error:
            _log.debug("WAL upload failed", path=staged.path, error=str(error))
            self._fail(opened, f"the object store did not take the records: {error}")
            self._settle(wal_keys.settle(staged.wal_id, staged.staging_version, list(staged.chunks)))
            return None
        self._observer.flushed(encoded.size, self._runtime.monotonic() - began)
        return staged

    def _fail(self, opened: OpenObject, why: str) -> None:
        for chunk in opened.chunks.values():
            self._committer.fail(chunk, LogUnavailable(why))

    async def _stage(self, opened: OpenObject) -> tuple[StagedObject | None, EncodedObject | None]:
        """The references must be in the store before the first byte is uploaded. If the reply was lost,
        another id is taken and the first is never used: nothing was uploaded under it."""
        created_ms = self._runtime.wall_ms()
        mark = self._ahead.take(opened.chunks, created_ms)
        if mark is not None:
            encoded = await self._encoded(opened, mark.wal_id, created_ms)
            return self._staged(mark.wal_id, mark.staging.path, created_ms, mark.version, opened), encoded
        for _ in range(self._settings.retry_limit):
            wal_id, created_ms = self._runtime.uuid(), self._runtime.wall_ms()
            path = self._path(created_ms, wal_id)
            writing = self._write_stage(wal_id, wal_keys.Staging(path, tuple(sorted(opened.chunks))))
            if opened.size < _ENCODE_INLINE_BYTES:
                encoded = self._encode(opened, wal_id, created_ms)
                version = await writing
            else:
                encoded, version = await asyncio.gather(self._encoded(opened, wal_id, created_ms), writing)
            if version is not None:
                return self._staged(wal_id, path, created_ms, version, opened), encoded
            await self._runtime.sleep(self._settings.retry_seconds)
        return None, None

    def _path(self, created_ms: int, wal_id: UUID) -> str:
        return object_path(self._settings.zone, self._domain, created_ms, wal_id)

    def _staged(
        self, wal_id: UUID, path: str, created_ms: int, version: int, opened: OpenObject
    ) -> StagedObject:
        return StagedObject(wal_id, path, self._domain, created_ms, version, opened.chunks)

    async def _write_stage(self, wal_id: UUID, staging: wal_keys.Staging) -> int | None:
        operations = wal_keys.stage(wal_id, staging)
        riding = self._take_settling(self._store.limits.operations - len(operations))
        try:
            outcomes = await self._store.write(self._domain, operations + _joined(riding))
        except MetadataError as error:
            _log.debug("WAL staging failed", path=staging.path, error=str(error))
            self._settling.extendleft(reversed(riding))  # deleting twice does no harm
            return None
        return outcomes[0].version

    async def _encoded(self, opened: OpenObject, wal_id: UUID, created_ms: int) -> EncodedObject:
        if opened.size < _ENCODE_INLINE_BYTES:
            return self._encode(opened, wal_id, created_ms)
        return await self._runtime.in_thread(self._encode, opened, wal_id, created_ms)

    def _encode(self, opened: OpenObject, wal_id: UUID, created_ms: int) -> EncodedObject:
        chunks = [
            WalChunk(
                chunk.stream,
                [
                    ChunkBatch(
                        pending.view,
                        pending.batch.record_count,
                        pending.batch.min_timestamp,
                        pending.batch.max_timestamp,
                    )
                    for pending in chunk.pending
                ],
            )
            for _, chunk in sorted(opened.chunks.items())
        ]
        encoded = encode(wal_id, self._domain, created_ms, chunks)
        for chunk in opened.chunks.values():
            placement = encoded.placements[chunk.stream]
            chunk.references = [
                reference_of(pending, placement.offset + position)
                for pending, position in zip(chunk.pending, placement.batch_positions, strict=True)
            ]
        return encoded

    # --- settling, off the latency path

    def _settle(self, operations: list[Operation]) -> None:
        self._settling.append(operations)
        self._settle_soon()

    def _settle_unused(self, mark: StagedMark) -> None:
        self._settle(wal_keys.settle(mark.wal_id, mark.version, mark.staging.streams))

    def _settle_soon(self) -> None:
        if self._settle_timer is None and not self._stopping:
            loop = asyncio.get_running_loop()
            self._settle_timer = loop.call_later(self._settings.settle_seconds, self._settle_later)

    def _settle_later(self) -> None:
        self._settle_timer = None
        run_once(self._runtime, "settle WAL objects", self._settle_now)

    async def _settle_now(self) -> None:
        """Settle in a write of its own, for a quiet domain. In a busy one, the next staging write carries
        it."""
        while settling := self._take_settling(self._store.limits.operations):
            try:
                await self._store.write(self._domain, _joined(settling))
            except MetadataError as error:
                # Tried again with the next write. If this broker is stopping, the collector finds the mark,
                # with all references, as an orphan.
                _log.debug("settling WAL objects failed", objects=len(settling), error=str(error))
                self._settling.extendleft(reversed(settling))
                self._settle_soon()
                return

    def _take_settling(self, room: int) -> list[list[Operation]]:
        """Take the settling operations of the first objects, as many as fit into `room` operations."""
        taken: list[list[Operation]] = []
        while self._settling and len(self._settling[0]) <= room:
            room -= len(self._settling[0])
            taken.append(self._settling.popleft())
        return taken


def _joined(parts: list[list[Operation]]) -> list[Operation]:
    return [operation for part in parts for operation in part]


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
