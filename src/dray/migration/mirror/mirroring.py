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

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock, gather_some
from dray.log.life.retention import Retention
from dray.log.origins import BoundaryStands
from dray.log.producer_state import ProducerStates
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable
from dray.metadata.contract import MetadataError
from dray.migration.entries.segments import ForeignSegments
from dray.migration.formats.batches import ForeignFault
from dray.migration.mirror.mirror_states import (
    MirroredPlace,
    MirrorLost,
    MirrorState,
    MirrorStates,
    PlannedPart,
    unavailable,
)
from dray.migration.mirror.mirrored_objects import TRIES, MirrorAim, MirroredObjects, MirrorObject
from dray.migration.mirror.mirrored_pieces import MOST_ABORTED, NO_BATCH, MirroredPiece, pieces_of
from dray.migration.mirror.switching import ProducersBehind, switch_stream
from dray.objects.contract import ObjectError, ObjectStore

__all__ = [
    "MirrorLost",
    "MirrorPlan",
    "MirrorRefused",
    "MirrorTail",
    "MirroredBatches",
    "MirroredPlace",
    "MirroredProducer",
    "StreamMirror",
]

MOST_ENTRY_BYTES: Final = 16 << 20
_INLINE_BYTES: Final = 64 << 10


class MirrorRefused(LogError):
    """The source's batches cannot follow those that are there, or are damaged. One line says why."""


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
    behind: MirrorTail | None = None
    """The tail of the plan with what was read of the stream before; None where its place was asked for."""


@dataclass(slots=True)
class MirrorPlan:
    """A plan for batches: which entries they make, and in which objects these lie. It is given to `upload`
    and then to `commit_plan`. If that does not happen, the collector deletes what is left of it."""

    parts: dict[int, _Parts]
    found: dict[int, MirroredPlace | LogError]
    objects: list[MirrorObject] = field(default_factory=list)

    def tail(self, stream: int) -> MirrorTail:
        parts = self.parts.get(stream)
        return MirrorTail(None, None) if parts is None else MirrorTail(parts.state, parts.each[-1][1])


class MirrorTail(NamedTuple):
    """The last part that a plan has of a stream, by its producers. Without a state: it has none."""

    state: MirrorState | None
    producers: ProducerStates | None

    def is_last_of(self, state: MirrorState) -> bool:
        """Is nothing else planned or committed behind it, and has it not failed?"""
        return self.state is state and state.last is self.producers


class _Parts(NamedTuple):
    """Of one stream, in the order of its log."""

    state: MirrorState
    data: memoryview
    each: list[tuple[MirroredPiece, ProducerStates]]


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
        self._runtime = runtime
        self._retention = retention
        self._states = MirrorStates(store, segments, runtime, expiry or UndoubtedClock(runtime))
        self._objects = MirroredObjects(store, objects, runtime, settings, self._states)
        self._most_streams = max(1, store.limits.operations // 4)

    def forget(self, stream: int) -> None:
        """Keep nothing of a stream that is no longer mirrored here."""
        self._states.forget(stream)

    # --- asking

    async def place(self, stream: int) -> MirroredPlace:
        """The place of the next batches. Raises `BoundaryStands` once the stream is switched."""
        return (await self._states.fresh(stream)).place

    async def producers(self, stream: int) -> frozenset[MirroredProducer]:
        """Those of the batches in the log. Of one whose batches were all deleted the source may know more:
        it may have deleted later ones before they could be mirrored."""
        state = await self._states.fresh(stream)
        known = [
            (producer_id, producer.epoch, producer.batches[-1])
            for producer_id, producer in state.producers.items()
        ]
        return frozenset(
            MirroredProducer(producer_id, epoch, last.last_sequence)
            for producer_id, epoch, last in known
            if last == NO_BATCH or last.last_offset >= state.start
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
        self,
        stream: int,
        boundary: int,
        is_allowed: Callable[[], Awaitable[bool]] | None = None,
        taken_over: Collection[MirroredProducer] = (),
    ) -> bool:
        """The stream is ours from `boundary` on, if that is its end: one compare-and-set. False where the log
        has grown in between, or where it is not allowed (`switching.py`). The source must be fenced,
        and all of it mirrored. `taken_over`: what the source knows of producers that are not among those of
        the log; it must have told it at its final end."""
        now_ms = self._runtime.wall_ms()
        try:
            for _ in range(TRIES):
                try:
                    state = await self._states.fresh(stream)
                    if state.place.end != boundary:
                        return False
                    changed = [each for each in taken_over if state.producers.take_over(*each, now_ms)]
                    await self._states.put_snapshot(stream, state, surely=True, again=bool(changed))
                except MirrorLost:
                    continue  # the producers are not there yet
                except BoundaryStands:
                    pass
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
        object. Returns the place that each has reached, or why nothing more was taken of it: `MirrorLost`
        where another process was faster, `BoundaryStands` once it is switched, `MirrorRefused`,
        `StreamClosed`, `LogUnavailable`. A stream does not depend on the others. If more follows, operations
        that can wait go with its writes."""
        plan = await self.plan(pieces)
        await self.upload(plan)
        return await self.commit_plan(plan, more_follows=more_follows)

    async def plan(self, pieces: Sequence[MirroredBatches]) -> MirrorPlan:
        """Look at every batch. A plan may follow an earlier one that is not committed yet: so it can be
        uploaded ahead. Plans are committed in their order."""
        plan = MirrorPlan({}, {})
        states: dict[int, MirrorState] = {}
        for piece in pieces:
            try:
                states[piece.stream] = await self._expected(piece)
            except LogError as error:
                plan.found[piece.stream] = error
            except MetadataError as error:
                plan.found[piece.stream] = unavailable(piece.stream, error)
        wanted = [piece for piece in pieces if piece.stream in states]
        bases = [states[piece.stream].planned_producers for piece in wanted]
        ends = [states[piece.stream].planned_end for piece in wanted]
        anew = [states[piece.stream].begins_anew for piece in wanted]
        now_ms = self._runtime.wall_ms()

        def work() -> list[list[tuple[MirroredPiece, ProducerStates]] | MirrorRefused]:
            return [_parts_of(*each, now_ms) for each in zip(wanted, ends, anew, bases, strict=True)]

        is_little = sum([len(piece.batches) for piece in wanted]) <= _INLINE_BYTES
        walked = work() if is_little else await self._runtime.in_thread(work)
        for piece, end, parts in zip(wanted, ends, walked, strict=True):
            state = states[piece.stream]
            if isinstance(parts, MirrorRefused):
                plan.found[piece.stream] = parts
            elif self._states.get(piece.stream) is not state or state.planned_end != end:
                plan.found[piece.stream] = _lost(piece, state.planned_end)
            elif piece.behind is not None and not piece.behind.is_last_of(state):
                # The log may reach to its first offset all the same: with another history of the source.
                plan.found[piece.stream] = MirrorLost(
                    f"stream {piece.stream}: what comes before was not taken in"
                )
            else:
                self._states.plan(
                    state, [PlannedPart(part.end, producers, part.epoch) for part, producers in parts]
                )
                plan.parts[piece.stream] = _Parts(state, piece.batches, parts)
                plan.found[piece.stream] = state.place
        return plan

    async def upload(self, plan: MirrorPlan) -> None:
        """All that was planned is durable, or has failed: `commit_plan` says which."""
        domains: dict[int, list[int]] = {}
        for stream in plan.parts:
            domains.setdefault(self._store.domain(stream), []).append(stream)
        for objects in await gather_some(
            self._upload_domain(domain, streams, plan) for domain, streams in domains.items()
        ):
            plan.objects += objects

    async def _upload_domain(self, domain: int, streams: list[int], plan: MirrorPlan) -> list[MirrorObject]:
        found: list[MirrorObject] = []
        number = 0
        while streams := [stream for stream in streams if number < len(plan.parts[stream].each)]:
            for first in range(0, len(streams), self._most_streams):
                aims = {
                    stream: MirrorAim(stream, state, *each[number], data)
                    for stream in streams[first : first + self._most_streams]
                    for state, data, each in [plan.parts[stream]]
                }
                try:
                    found.append(await self._objects.upload(domain, aims))
                except (MetadataError, ObjectError) as error:
                    for stream, aim in aims.items():
                        self._fail(plan, aim, unavailable(stream, error))
            streams = [stream for stream in streams if isinstance(plan.found[stream], MirroredPlace)]
            number += 1
        return found

    async def commit_plan(
        self, plan: MirrorPlan, *, more_follows: bool = False
    ) -> Mapping[int, MirroredPlace | LogError]:
        """See `commit_all`. Plans before it are committed, or have failed."""
        domains: dict[int, list[MirrorObject]] = {}
        for staged in plan.objects:
            domains.setdefault(staged.domain, []).append(staged)
        await gather_some(self._commit_objects(objects, plan, more_follows) for objects in domains.values())
        return plan.found

    async def _commit_objects(
        self, objects: Sequence[MirrorObject], plan: MirrorPlan, more_follows: bool
    ) -> None:
        for staged in objects:
            try:
                outcome = await self._objects.commit(staged, more_follows)
            except MetadataError as error:
                outcome = {stream: unavailable(stream, error) for stream in staged.aims}
            for stream, error_of in outcome.items():
                aim = staged.aims[stream]
                if error_of is not None:
                    self._fail(plan, aim, error_of)
                    if self._states.get(stream) is aim.state:
                        self._states.forget(stream)  # what is known of it is old
                elif isinstance(plan.found[stream], MirroredPlace):
                    plan.found[stream] = aim.state.place

    def _fail(self, plan: MirrorPlan, aim: MirrorAim, error: LogError) -> None:
        if isinstance(plan.found[aim.stream], MirroredPlace):
            plan.found[aim.stream] = error
        self._states.give_up(aim.state, aim.producers)

    async def _expected(self, piece: MirroredBatches) -> MirrorState:
        """The state that the piece follows. Raises `MirrorLost`, `BoundaryStands`, `StreamClosed`."""
        state = self._states.get(piece.stream)
        if state is not None and state.ahead and state.place.end == piece.expected.end:
            state.ahead.clear()  # what was planned is read again
        if state is None or state.planned_end != piece.expected.end:
            state = await self._states.fresh(piece.stream)
        if state.planned_end != piece.expected.end:
            self._states.forget(piece.stream)
            raise _lost(piece, state.planned_end)
        return state


def _lost(piece: MirroredBatches, end: int) -> MirrorLost:
    return MirrorLost(
        f"stream {piece.stream} ends at {end}, not at {piece.expected.end}: another process mirrors it"
    )


def _parts_of(
    piece: MirroredBatches, end: int, begins_anew: bool, producers: ProducerStates, now_ms: int
) -> list[tuple[MirroredPiece, ProducerStates]] | MirrorRefused:
    try:
        return pieces_of(
            piece.batches,
            end,
            piece.aborted,
            producers,
            now_ms,
            most_bytes=MOST_ENTRY_BYTES,
            most_aborted=MOST_ABORTED,
            may_begin_before=begins_anew,
        )
    except ForeignFault as fault:
        return MirrorRefused(f"stream {piece.stream}: what the source gave: {fault.reason}")
