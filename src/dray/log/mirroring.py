"""The log's side of a mirror: what a source wrote becomes part of its stream while the source owns it.

A commit of the mirror is an append whose offsets stand in the batches. It has the steps of the commit
protocol, for the same reasons: staging mark, object key and references first; then the object; then, after a
look at the mark, one compare-and-set of the high watermark, which has the new entry as its head. So an object
is never named before it is durable, nor deleted while it is named; of two mirrors one loses; and what a dead
one left is the collector's. The entry is that of a segment: its batches stay as the source wrote them.

Offsets are the source's, so a piece whose reply was lost may be sent again: it goes where it belongs, or
nowhere.

The producer snapshot follows the high watermark, in a write of its own. It may not be in the same one: each
operation of a write has its own expectation, and a snapshot that was put beside a high watermark that was not
would name sequences that the log does not hold, for good once the stream is switched. So it may lag, by some
entries at most; they are read again where it does (`mirror_states.py`). It is at the end before the stream is
switched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from dray.foreign.faults import ForeignFault
from dray.log import wal_keys
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.foreign_segments import ForeignSegments
from dray.log.mirror_states import MirroredPlace, MirrorLost, MirrorState, MirrorStates, refusal, unavailable
from dray.log.mirrored_pieces import MOST_ABORTED, MirroredPiece, pieces_of
from dray.log.origins import BoundaryStands
from dray.log.producer_state import ProducerStates
from dray.log.retention import Retention
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore, Versioned
from dray.log.switching import ProducersBehind, switch_stream
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import Ambiguous, MetadataError, Operation, Outcome, Unavailable
from dray.objects.contract import ObjectError, ObjectStore
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.wal import object_path

__all__ = [
    "MirrorLost",
    "MirrorRefused",
    "MirroredBatches",
    "MirroredPlace",
    "MirroredProducer",
    "StreamMirror",
]

_log = structlog.get_logger(__name__)

MOST_ENTRY_BYTES: Final = 16 << 20
_TRIES: Final = 8
_INLINE_BYTES: Final = 64 << 10


class MirrorRefused(LogError):
    """What the source gave cannot follow what is there, or is damaged. One line says why."""


class MirroredProducer(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int  # -1: it wrote markers only


@dataclass(frozen=True, slots=True)
class MirroredBatches:
    """Whole batches as the source gave them, in the order of its log."""

    stream: int
    batches: memoryview
    aborted: Sequence[tuple[int, int]]  # producer id, first offset: as the source's answers name them
    expected: MirroredPlace


@dataclass(slots=True)
class _Aim:
    """A stream's part of an object: the entry that is to become the head, over which version."""

    stream: int
    state: MirrorState
    piece: MirroredPiece
    producers: ProducerStates
    data: memoryview
    over: Versioned[HighWatermark]
    entry: IndexEntry | None = None
    unsure: bool = False  # a reply was lost at this version
    tries: int = 0

    def following(self) -> HighWatermark:
        origin = self.over.value.origin
        assert self.entry is not None
        assert origin is not None
        return HighWatermark.at(self.entry, replace(origin, source_epoch=self.piece.epoch))


class _Staged(NamedTuple):
    domain: int
    wal_id: UUID
    mark: wal_keys.Staging
    version: int


class StreamMirror:
    """One per process. Any number of processes may mirror the same stream: each commit is one's."""

    def __init__(
        self,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        settings: LogSettings,
        segments: ForeignSegments,
        retention: Retention,
        expiry: ExpiryClock | None = None,
    ) -> None:
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._settings = settings
        self._retention = retention
        self._states = MirrorStates(store, segments, expiry or UndoubtedClock(runtime))
        self._unsettled: dict[int, list[Operation]] = {}  # by domain: of its last object
        self._most_streams = max(1, store.limits.operations // 4)

    def forget(self, stream: int) -> None:
        """Keep nothing of a stream that is no longer mirrored here."""
        self._states.forget(stream)

    # --- asking

    async def place(self, stream: int) -> MirroredPlace:
        """Where the next batches belong. Raises `BoundaryStands` once the stream is switched."""
        return (await self._states.fresh(stream)).place

    async def producers(self, stream: int) -> frozenset[MirroredProducer]:
        """As the log up to its end says."""
        state = await self._states.fresh(stream)
        return frozenset(
            MirroredProducer(producer_id, producer.epoch, producer.batches[-1].last_sequence)
            for producer_id, producer in state.producers.items()
        )

    async def boundary(self, stream: int) -> int | None:
        """B0; None while the source owns the stream."""
        mark = await self._states.mark(stream)
        if mark.value.origin is None:
            raise BoundaryStands(f"stream {stream} was born here")
        return None if mark.value.is_classic else mark.value.origin.boundary

    # --- the start, and the end of the mirror

    async def raise_start(self, stream: int, start: int) -> int:
        """Follow the source's log start, as far as the mirror has come; the start afterwards. Only while the
        source owns the stream."""
        state = await self._states.fresh(stream)
        wanted = min(start, state.place.end)
        if wanted <= state.start:
            return state.start
        await self._states.put_snapshot(stream, state, surely=True)
        try:
            return await self._retention.raise_start(stream, wanted)
        finally:
            self._states.forget(stream)

    async def decide(
        self, stream: int, boundary: int, is_allowed: Callable[[], Awaitable[bool]] | None = None
    ) -> bool:
        """The stream is ours from `boundary` on, if that is its end: one compare-and-set. False where the log
        has grown in between, or where it is not allowed (`boundary_decision.py`). The source must be fenced,
        and all of it mirrored."""
        try:
            for _ in range(_TRIES):
                with suppress(BoundaryStands, MirrorLost):
                    state = await self._states.fresh(stream)
                    if state.place.end != boundary:
                        return False
                    await self._states.put_snapshot(stream, state, surely=True)
                with suppress(ProducersBehind):
                    decided = await switch_stream(self._store, self._runtime, stream, boundary, is_allowed)
                    return decided == boundary
            raise LogUnavailable(f"stream {stream} could not be switched: another process mirrors it")
        finally:
            self._states.forget(stream)

    # --- committing

    async def commit(
        self, stream: int, batches: memoryview, aborted: Sequence[tuple[int, int]], *, expected: MirroredPlace
    ) -> MirroredPlace:
        """See `commit_all`. Raises what became of it."""
        found = (await self.commit_all([MirroredBatches(stream, batches, aborted, expected)]))[stream]
        if isinstance(found, LogError):
            raise found
        return found

    async def commit_all(
        self, pieces: Sequence[MirroredBatches], *, more_follows: bool = False
    ) -> Mapping[int, MirroredPlace | LogError]:
        """Take in what the source gave of several streams, each at most once: those of a domain lie in one
        object. Where each stands now, or why nothing more was taken of it: `MirrorLost` where another process
        was faster, `BoundaryStands` once it is switched, `MirrorRefused`, `StreamClosed`, `LogUnavailable`. A
        stream does not depend on the others. Where more follows, what can wait rides on its writes."""
        domains: dict[int, list[MirroredBatches]] = {}
        for piece in pieces:
            domains.setdefault(self._store.domain(piece.stream), []).append(piece)
        found: dict[int, MirroredPlace | LogError] = {}
        await asyncio.gather(
            *[self._commit_domain(domain, group, found, more_follows) for domain, group in domains.items()]
        )
        return found

    async def _commit_domain(
        self,
        domain: int,
        pieces: list[MirroredBatches],
        found: dict[int, MirroredPlace | LogError],
        more_follows: bool,
    ) -> None:
        parts: dict[int, list[tuple[MirroredPiece, ProducerStates]]] = {}
        states: dict[int, MirrorState] = {}
        data: dict[int, memoryview] = {}
        for piece in pieces:
            try:
                states[piece.stream] = state = await self._expected(piece)
                parts[piece.stream] = await self._parts(piece, state)
                data[piece.stream] = piece.batches
                found[piece.stream] = state.place
            except LogError as error:
                found[piece.stream] = error
            except MetadataError as error:
                found[piece.stream] = unavailable(piece.stream, error)
        number = 0
        while streams := [stream for stream, each in parts.items() if number < len(each)]:
            for first in range(0, len(streams), self._most_streams):
                some = streams[first : first + self._most_streams]
                aims = {
                    stream: _Aim(
                        stream,
                        states[stream],
                        *parts[stream][number],
                        data[stream],
                        states[stream].high_watermark,
                    )
                    for stream in some
                }
                try:
                    outcome = await self._commit_object(domain, aims, more_follows)
                except (MetadataError, ObjectError) as error:
                    outcome = {stream: unavailable(stream, error) for stream in aims}
                for stream, error_of in outcome.items():
                    if error_of is None:
                        found[stream] = states[stream].place
                    else:
                        found[stream] = error_of
                        del parts[stream]
                        self._states.forget(stream)
            number += 1

    async def _expected(self, piece: MirroredBatches) -> MirrorState:
        """The state that the piece follows. Raises `MirrorLost`, `BoundaryStands`, `StreamClosed`."""
        state = self._states.get(piece.stream)
        if state is None or state.place.end != piece.expected.end:
            state = await self._states.fresh(piece.stream)
        if state.place.end != piece.expected.end:
            self._states.forget(piece.stream)
            raise MirrorLost(
                f"stream {piece.stream} ends at {state.place.end}, not at {piece.expected.end}: another "
                "process mirrors it"
            )
        return state

    async def _parts(
        self, piece: MirroredBatches, state: MirrorState
    ) -> list[tuple[MirroredPiece, ProducerStates]]:
        def work() -> list[tuple[MirroredPiece, ProducerStates]]:
            return pieces_of(
                piece.batches,
                state.place.end,
                piece.aborted,
                state.producers,
                now_ms,
                most_bytes=MOST_ENTRY_BYTES,
                most_aborted=MOST_ABORTED,
            )

        now_ms = self._runtime.wall_ms()
        try:
            if len(piece.batches) <= _INLINE_BYTES:
                return work()
            return await self._runtime.in_thread(work)
        except ForeignFault as fault:
            raise MirrorRefused(f"stream {piece.stream}: what the source gave: {fault.reason}") from fault

    async def _commit_object(
        self, domain: int, aims: dict[int, _Aim], more_follows: bool
    ) -> dict[int, LogError | None]:
        """One object. What became of each stream: None where it was taken in."""
        wal_id, created_ms = self._runtime.uuid(), self._runtime.wall_ms()
        path = object_path(self._settings.zone, domain, created_ms, wal_id)
        streams = tuple(sorted(aims))
        ends = tuple([aims[stream].piece.end for stream in streams])
        mark = wal_keys.Staging(path, streams, wal_keys.StagingKind.MIRROR, ends)
        # If this raises, the id is burnt: nothing is ever uploaded under it.
        unsettled = self._unsettled.get(domain, [])
        outcomes = await self._store.write_in(domain, [*wal_keys.stage(wal_id, mark), *unsettled])
        self._unsettled.pop(domain, None)
        staged = _Staged(domain, wal_id, mark, outcomes[0].version)
        size = sum([aim.piece.size for aim in aims.values()])
        position, parts = 0, []
        for stream in streams:
            aim = aims[stream]
            parts.append(aim.data[aim.piece.begin : aim.piece.begin + aim.piece.size])
            aim.entry = aim.piece.entry(aim.over.value, wal_id, path, size, position, created_ms)
            position += aim.piece.size
        try:
            await self._objects.put(path, parts)
        except ObjectError:
            await self._settle(staged, streams)
            raise
        found, undecided = await self._commit(staged, aims)
        if undecided:
            # A write may still apply: the references and the mark stay, and the collector decides.
            _log.warning("mirrored object left to the collector", path=path)
        else:
            failed = [stream for stream, error in found.items() if error is not None]
            await self._settle(staged, failed, later=more_follows)
        await asyncio.gather(
            *[
                self._states.put_snapshot(stream, aims[stream].state, is_due=not more_follows)
                for stream, error in found.items()
                if error is None
            ]
        )
        return found

    async def _settle(self, staged: _Staged, failed: Sequence[int], *, later: bool = False) -> None:
        """`later`: with the next object of the domain. If there is none after all, the collector settles."""
        operations = wal_keys.settle(staged.wal_id, staged.version, failed, staged.mark)
        if later:
            self._unsettled[staged.domain] = operations
            return
        try:
            await self._store.write_in(staged.domain, operations)
        except MetadataError as error:
            _log.warning("mirrored object not settled: the collector does it", error=str(error))

    async def _commit(
        self, staged: _Staged, aims: Mapping[int, _Aim]
    ) -> tuple[dict[int, LogError | None], bool]:
        """What became of each stream, and whether a write may still apply."""
        found: dict[int, LogError | None] = {}
        waiting = dict(aims)
        undecided = False
        for attempt in range(_TRIES):
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

    async def _still_ours(self, staged: _Staged) -> bool:
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

    async def _write(self, domain: int, aims: Mapping[int, _Aim]) -> dict[int, Outcome | None]:
        """Each stream's outcome; None if the reply was lost. Streams do not depend on each other, so they may
        be in several writes."""
        found: dict[int, Outcome | None] = {}
        limits = self._store.limits
        part: list[Operation] = []
        places: dict[int, int] = {}
        size = 0
        for stream, aim in aims.items():
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

    async def _look(self, staged: _Staged, aim: _Aim) -> LogError | None:
        """What became of a write that was not seen to apply: None if it did, `_AGAIN` if it is to be sent
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
        if mark.value.end != aim.over.value.end:
            return MirrorLost(
                f"stream {aim.stream} ends at {mark.value.end} by now: another process mirrors it"
            )
        # Sealed meanwhile, or not written at all. A late copy of the write expects a version that is gone, or
        # is this very write.
        aim.over = mark
        return _AGAIN

    def _committed(self, aim: _Aim, version: int) -> None:
        state = aim.state
        state.high_watermark = Versioned(aim.following(), version)
        producers = aim.producers
        while (joined := producers.join()) is not producers:
            producers = joined
        state.producers = producers
        state.entries_since += 1


_AGAIN: Final = LogUnavailable("send it again")
_NOT_DONE: Final = Outcome(False, -1)
