"""Objects of a mirror: uploaded ahead, and committed in the order of their streams' logs.

The steps of one object are those of the commit protocol: staging mark, object key and references in one
write; the object; then, after a look at the mark, one compare-and-set of each stream's high watermark. An
object may wait for any time between its upload and its commit, as that of an append may. So those that follow
are uploaded meanwhile.

The parts of a stream that are planned and not committed stand in `MirrorState.ahead`, in its order. Only the
first of them may be committed, and nothing that was planned behind a part that failed ever is: it may be of a
history that the source no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from dray.base.runtime import Runtime, gather_some
from dray.log import wal_keys
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.producer_state import ProducerStates
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.log.wal import object_path
from dray.log.wal.format import BATCHES_ENDING
from dray.metadata import keys
from dray.metadata.contract import Ambiguous, MetadataError, Operation, Outcome, Unavailable
from dray.migration.mirror.mirror_states import MirrorLost, MirrorState, MirrorStates, refusal
from dray.migration.mirror.mirrored_pieces import MirroredPiece
from dray.objects.contract import ObjectError, ObjectStore

_log = structlog.get_logger(__name__)

TRIES: Final = 8


@dataclass(slots=True)
class MirrorAim:
    """A stream's part of an object."""

    stream: int
    state: MirrorState
    piece: MirroredPiece
    producers: ProducerStates
    data: memoryview
    position: int = 0  # in the object
    # Known once it is its turn: the entry that is to become the head, over which version.
    over: Versioned[HighWatermark] | None = None
    entry: IndexEntry | None = None
    unsure: bool = False  # a reply was lost at this version

    def following(self) -> HighWatermark:
        assert self.over is not None
        assert self.entry is not None
        origin = self.over.value.origin
        assert origin is not None
        return HighWatermark.at(self.entry, replace(origin, source_epoch=self.piece.epoch))


class MirrorObject(NamedTuple):
    """An object that is durable, and that no stream names yet."""

    domain: int
    wal_id: UUID
    mark: wal_keys.Staging
    version: int  # of the mark
    size: int
    created_ms: int
    aims: Mapping[int, MirrorAim]


class MirroredObjects:
    def __init__(
        self,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        settings: LogSettings,
        states: MirrorStates,
    ) -> None:
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._settings = settings
        self._states = states
        self._unsettled: dict[int, list[Operation]] = {}  # by domain: they ride on its next write

    async def upload(self, domain: int, aims: Mapping[int, MirrorAim]) -> MirrorObject:
        """It is durable when this returns. Raises `MetadataError` and `ObjectError`: then it is not there for
        any stream."""
        wal_id, created_ms = self._runtime.uuid(), self._runtime.wall_ms()
        path = object_path(self._settings.zone, domain, created_ms, wal_id, BATCHES_ENDING)
        streams = tuple(sorted(aims))
        ends = tuple([aims[stream].piece.end for stream in streams])
        mark = wal_keys.Staging(path, streams, wal_keys.StagingKind.OUTSIDE, ends)
        # If this raises, the id is burnt: nothing is ever uploaded under it.
        version = await self._stage(domain, wal_keys.stage(wal_id, mark))
        size, parts = 0, []
        for stream in streams:
            aim = aims[stream]
            parts.append(aim.data[aim.piece.begin : aim.piece.begin + aim.piece.size])
            aim.position = size
            size += aim.piece.size
        staged = MirrorObject(domain, wal_id, mark, version, size, created_ms, aims)
        try:
            await self._objects.put(path, parts)
        except ObjectError:
            await self._settle(staged, streams)
            raise
        return staged

    async def _stage(self, domain: int, operations: list[Operation]) -> int:
        """The version of the mark, which is the first of them."""
        riding = self._riding(domain, operations)
        try:
            outcomes = await self._store.write_in(domain, [*operations, *riding])
        except MetadataError:
            # They may be sent again: a mark goes by its version, and a reference is never put twice.
            self._unsettled.setdefault(domain, []).extend(riding)
            raise
        return outcomes[0].version

    def _riding(self, domain: int, operations: Sequence[Operation]) -> list[Operation]:
        """The operations that wait for a write of the domain, as far as this one has room."""
        unsettled = self._unsettled.pop(domain, [])
        room = max(0, self._store.limits.operations - len(operations))
        if len(unsettled) > room:
            self._unsettled[domain] = unsettled[room:]
        return unsettled[:room]

    async def commit(self, staged: MirrorObject, more_follows: bool) -> dict[int, LogError | None]:
        """The outcome of each stream: None if it was taken in. A stream of which another part comes first is
        refused: what was planned before it has failed."""
        found: dict[int, LogError | None] = {}
        aims: dict[int, MirrorAim] = {}
        for stream, aim in staged.aims.items():
            if self._states.is_next(stream, aim.state, aim.producers):
                aim.over = aim.state.high_watermark
                aim.entry = aim.piece.entry(
                    aim.over.value,
                    staged.wal_id,
                    staged.mark.path,
                    staged.size,
                    aim.position,
                    staged.created_ms,
                )
                aims[stream] = aim
            else:
                found[stream] = MirrorLost(f"stream {stream}: what comes before was not taken in")
        undecided = False
        if aims:
            committed, undecided = await self._commit(staged, aims)
            found.update(committed)
        if undecided:
            # A write may still apply: the references and the mark stay, and the collector decides.
            _log.debug("mirrored object left to the collector", path=staged.mark.path)
        else:
            failed = [stream for stream, error in found.items() if error is not None]
            await self._settle(staged, failed, later=more_follows)
        await gather_some(
            self._states.put_snapshot(stream, aims[stream].state, is_due=not more_follows)
            for stream, error in found.items()
            if error is None
        )
        return found

    async def _settle(self, staged: MirrorObject, failed: Sequence[int], *, later: bool = False) -> None:
        """`later`: with the next object of the domain. If there is none after all, the collector settles."""
        operations = wal_keys.settle(staged.wal_id, staged.version, failed, staged.mark)
        if later:
            self._unsettled.setdefault(staged.domain, []).extend(operations)
            return
        operations += self._riding(staged.domain, operations)
        try:
            await self._store.write_in(staged.domain, operations)
        except MetadataError as error:
            _log.debug("mirrored object not settled: the collector does it", error=str(error))

    async def _commit(
        self, staged: MirrorObject, aims: Mapping[int, MirrorAim]
    ) -> tuple[dict[int, LogError | None], bool]:
        """The outcome of each stream, and whether a write may still apply."""
        found: dict[int, LogError | None] = {}
        waiting = dict(aims)
        undecided = False
        for attempt in range(TRIES):
            if not waiting:
                break
            if attempt:
                await self._runtime.sleep(self._settings.retry_seconds * attempt)
            if not await self._still_ours(staged):
                undecided = True  # a collector has taken the object, and decides what becomes of it
                break
            outcomes = await self._write(staged.domain, waiting)
            for stream, aim in list(waiting.items()):
                outcome = outcomes[stream]
                if outcome is not None and outcome.applied:
                    self._committed(aim, outcome.version)
                    found[stream] = None
                    del waiting[stream]
                    continue
                aim.unsure = aim.unsure or outcome is None
                try:
                    verdict = await self._look(staged, aim)
                except MetadataError:
                    continue  # looked at again
                if verdict is not _AGAIN:
                    found[stream] = verdict
                    del waiting[stream]
        for stream, aim in waiting.items():
            undecided = undecided or aim.unsure
            found[stream] = LogUnavailable(f"stream {stream}: the mirror's commit did not come through")
        return found, undecided

    async def _still_ours(self, staged: MirrorObject) -> bool:
        """The look at the mark, by its version, after the high watermarks were read: see
        `Committer._still_ours`."""
        for attempt in range(self._settings.retry_limit):
            try:
                record = await self._store.get_in(staged.domain, keys.staging(staged.wal_id))
            except MetadataError:
                await self._runtime.sleep(self._settings.retry_seconds * (attempt + 1))
                continue
            return record is not None and record.version == staged.version
        return False

    async def _write(self, domain: int, aims: Mapping[int, MirrorAim]) -> dict[int, Outcome | None]:
        """Each stream's outcome; None if the reply was lost. Streams do not depend on each other, so they may
        be in several writes."""
        found: dict[int, Outcome | None] = {}
        limits = self._store.limits
        part: list[Operation] = []
        places: dict[int, int] = {}
        size = 0
        for stream, aim in aims.items():
            assert aim.over is not None
            pair = self._store.advance(stream, aim.over, aim.following())
            more = sum([len(put.value) for put in pair])
            if places and (size + more > limits.value_bytes or len(part) + len(pair) > limits.operations):
                await self._write_part(domain, part, places, found)
                part, places, size = [], {}, 0
            places[stream] = len(part)
            part += pair
            size += more
        await self._write_part(domain, part, places, found)
        return found

    async def _write_part(
        self,
        domain: int,
        part: list[Operation],
        places: dict[int, int],
        found: dict[int, Outcome | None],
    ) -> None:
        try:
            outcomes = await self._store.write_in(domain, part)
        except Unavailable:
            found.update(dict.fromkeys(places, _NOT_DONE))
        except Ambiguous:
            found.update(dict.fromkeys(places))
        else:
            found.update({stream: outcomes[place] for stream, place in places.items()})

    async def _look(self, staged: MirrorObject, aim: MirrorAim) -> LogError | None:
        """The outcome of a write that was not seen to apply: None if it did, `_AGAIN` if it is to be sent
        again, or why it never will. High watermark first, then the index: see `Committer._find`."""
        await self._store.barrier(aim.stream)
        mark = await self._store.high_watermark(aim.stream)
        if mark is None:
            return StreamClosed(f"stream {aim.stream} is closed")
        head = mark.value.head
        if head is not None and head.object_id == staged.wal_id:
            self._committed(aim, mark.version)
            return None
        assert aim.entry is not None
        filed = await self._store.entry(aim.stream, aim.entry.end, aim.entry.cumulative_size)
        if filed is not None and filed.value.object_id == staged.wal_id:
            self._committed(aim, 0)
            self._states.forget(aim.stream)  # it has moved on since: what is known here is old
            return None
        refused = refusal(aim.stream, mark.value)
        if refused is not None:
            return refused
        assert aim.over is not None
        if mark.value.end != aim.over.value.end:
            return MirrorLost(
                f"stream {aim.stream} ends at {mark.value.end} by now: another process mirrors it"
            )
        # Sealed meanwhile, or not written at all. A late copy of the write expects a version that is gone, or
        # is this very write.
        aim.over = mark
        return _AGAIN

    def _committed(self, aim: MirrorAim, version: int) -> None:
        self._states.committed(aim.stream, aim.state, Versioned(aim.following(), version), aim.producers)


_AGAIN: Final = LogUnavailable("send it again")
_NOT_DONE: Final = Outcome(False, -1)
