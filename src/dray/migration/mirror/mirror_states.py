"""A process's view of the streams that it mirrors, each at one version of its high watermark.

A cache: the compare-and-set of the mirror's commit checks it. The producers are those of the snapshot, and of
the batches above it, where the snapshot lags.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dray.base.runtime import ExpiryClock, Runtime
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.origins import NO_EPOCH, BoundaryStands
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.stream_state import largest_snapshot, say_forgotten
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogError, LogUnavailable, OutsideFault, StreamClosed
from dray.metadata.contract import MetadataError, Put
from dray.migration.entries.segments import ForeignSegments
from dray.migration.formats.batches import ForeignFault
from dray.migration.mirror.mirrored_pieces import fold_batches
from dray.objects.contract import Buffer, ObjectMissing

SMALL_SNAPSHOT: Final = 16 << 10
"""Up to this size it is written with every commit."""

MOST_LAG: Final = 16
"""Entries by which a snapshot may lag: so many are read again by a process that follows."""

_TRIES: Final = 8


class MirrorLost(LogError):
    """Another process has moved the stream on: ask for the place again."""


class MirroredPlace(NamedTuple):
    """The place that a stream's mirror has reached."""

    end: int
    epoch: int | None  # of the last mirrored batch, as the source gave it; None where nothing is mirrored
    start: int


class PlannedPart(NamedTuple):
    """A part that is on its way into the log."""

    end: int
    producers: ProducerStates  # at its end: a fork of those before it
    epoch: int  # of its last batch, as the source gave it


@dataclass(slots=True)
class MirrorState:
    """This process's view of a stream, at one version of its high watermark."""

    high_watermark: Versioned[HighWatermark]
    start: int
    producers: ProducerStates
    snapshot: Versioned[int]  # up to which offset
    entries_since: int = 0
    ahead: list[PlannedPart] = field(default_factory=list)
    """The parts that are to be committed on top, in this order, and are not yet."""
    newest: ProducerStates | None = None
    """Those of the last part that was committed here: by them it is known."""

    @property
    def last(self) -> ProducerStates | None:
        """Those of the last part, of what is committed and of what is planned."""
        return self.ahead[-1].producers if self.ahead else self.newest

    @property
    def planned_end(self) -> int:
        return self.ahead[-1].end if self.ahead else self.place.end

    @property
    def begins_anew(self) -> bool:
        """Is nothing mirrored directly before what comes next? Then the source's log begins there, or did a
        moment ago: it may be within a batch. At the end of its tier a batch ends too."""
        if self.ahead:
            return self.ahead[-1].epoch == NO_EPOCH
        origin = self.high_watermark.value.origin
        if origin is None or origin.source_epoch != NO_EPOCH:
            return False
        return self.start == self.place.end or origin.tier_end < self.place.end

    @property
    def planned_producers(self) -> ProducerStates:
        return self.ahead[-1].producers if self.ahead else self.producers

    @property
    def place(self) -> MirroredPlace:
        value = self.high_watermark.value
        epoch = -1 if value.origin is None else value.origin.source_epoch
        return MirroredPlace(value.end, None if epoch < 0 else epoch, self.start)


class MirrorStates:
    def __init__(
        self, store: StreamStore, segments: ForeignSegments, runtime: Runtime, expiry: ExpiryClock
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._segments = segments
        self._expiry = expiry
        self._states: dict[int, MirrorState] = {}

    def get(self, stream: int) -> MirrorState | None:
        return self._states.get(stream)

    def forget(self, stream: int) -> None:
        self._states.pop(stream, None)

    # --- what is on its way

    def plan(self, state: MirrorState, parts: Iterable[PlannedPart]) -> None:
        """They follow all that is planned. The first of them is a fork of the producers at its end."""
        for part in parts:
            if not state.ahead:
                part.producers.rebase(state.producers)
            state.ahead.append(part)

    def is_next(self, stream: int, state: MirrorState, producers: ProducerStates) -> bool:
        """May the part with these producers be committed? Only on top of what it was planned behind."""
        current = self._states.get(stream) is state
        return current and bool(state.ahead) and state.ahead[0].producers is producers

    def give_up(self, state: MirrorState, producers: ProducerStates) -> None:
        """The part with these producers is not committed: nor is what was planned behind it."""
        for place, planned in enumerate(state.ahead):
            if planned.producers is producers:
                del state.ahead[place:]
                return

    def committed(
        self,
        stream: int,
        state: MirrorState,
        high_watermark: Versioned[HighWatermark],
        producers: ProducerStates,
    ) -> None:
        """The part with these producers is in the log."""
        state.high_watermark = high_watermark
        state.producers = producers.join()
        state.newest = producers
        if state.ahead and state.ahead[0].producers is producers:
            del state.ahead[0]
            if state.ahead:
                state.ahead[0].producers.rebase(state.producers)
        else:
            state.ahead.clear()
        state.entries_since += 1
        # A question that came meanwhile may have put what it found here: this is as new, and knows what is on
        # its way.
        self._states[stream] = state

    # --- reading what is there

    async def mark(self, stream: int) -> Versioned[HighWatermark]:
        try:
            await self._store.barrier(stream)
            mark = await self._store.high_watermark(stream)
        except MetadataError as error:
            raise unavailable(stream, error) from error
        if mark is None or mark.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        return mark

    async def fresh(self, stream: int) -> MirrorState:
        """The state as it is now, kept where it has not moved. Raises `BoundaryStands`."""
        for _ in range(_TRIES):
            mark = await self.mark(stream)
            refused = refusal(stream, mark.value)
            if refused is not None:
                self.forget(stream)
                raise refused
            try:
                start = (await self._store.start(stream)).value
                state = self._states.get(stream)
                if state is not None and state.place.end == mark.value.end:
                    state.high_watermark, state.start = mark, start
                    return state
                loaded = await self._load(stream, mark, start)
            except MetadataError as error:
                raise unavailable(stream, error) from error
            if loaded is not None:
                self._states[stream] = loaded
                return loaded
        raise LogUnavailable(f"stream {stream}: its index and its producer snapshot do not meet")

    async def _load(self, stream: int, mark: Versioned[HighWatermark], start: int) -> MirrorState | None:
        """The producers: the snapshot, and above it the batches themselves. None: another process has moved
        the stream on meanwhile."""
        end = mark.value.end
        glance = await self._store.snapshot_upto(stream)
        entries = [entry.value for entry in await self._store.entries_above(stream, glance.value)]
        if mark.value.head is not None:
            entries.append(mark.value.head)
        snapshot = await self._store.snapshot(stream)
        producers, reached = snapshot.value.states, snapshot.value.upto
        for entry in entries:
            if entry.is_outside and entry.start == reached and entry.end <= end:
                await self._fold(entry, producers)
                reached = entry.end
        if reached != end:
            return None
        return MirrorState(mark, start, producers, Versioned(snapshot.value.upto, snapshot.version))

    async def _fold(self, entry: IndexEntry, producers: ProducerStates) -> None:
        table = entry.outside()

        def work(data: Buffer) -> None:
            fold_batches(data, producers, entry.created_ms, entry.start, entry.end)

        for number in range(len(table.rows)):
            begin, end = table.bounds_of(number)
            try:
                await self._segments.with_range(entry, table, begin, end - begin, work)
            except ObjectMissing as error:
                raise LogUnavailable(f"{entry.path} is gone: ask again") from error
            except ForeignFault as fault:
                raise OutsideFault(f"{entry.path}: {fault.reason}") from fault

    # --- the producer snapshot

    async def put_snapshot(
        self,
        stream: int,
        state: MirrorState,
        *,
        is_due: bool = True,
        surely: bool = False,
        again: bool = False,
    ) -> None:
        """Move the snapshot to the end of what is committed. A large one, and any that is not due, only now
        and then. `surely`: it is there when this returns. Raises `MirrorLost` and `LogUnavailable` only
        then. `again`: also if it is at the end, as the producers have changed."""
        lags_little = not surely and state.entries_since < MOST_LAG
        is_there = state.snapshot.value >= state.place.end and not again
        if is_there or (lags_little and not is_due):
            return
        if lags_little and state.producers.least_bytes > SMALL_SNAPSHOT:
            return
        upto, entries = state.place.end, state.entries_since
        now_ms = self._expiry.now_ms()
        put, expired = await self._made(stream, upto, state, now_ms)
        state.producers.drop_expired(expired, now_ms or 0)
        if lags_little and len(put.value) > SMALL_SNAPSHOT:
            return
        try:
            [outcome] = await self._store.write(stream, [put])
        except MetadataError as error:
            self.forget(stream)
            if surely:
                raise unavailable(stream, error) from error
            return
        if outcome.applied:
            state.snapshot = Versioned(upto, outcome.version)
            state.entries_since -= entries  # others may have been committed meanwhile
            return
        self.forget(stream)
        if surely:
            raise MirrorLost(f"stream {stream}: another process mirrors it")

    async def _made(
        self, stream: int, upto: int, state: MirrorState, now_ms: int | None
    ) -> tuple[Put, list[int]]:
        """A snapshot of what is known now, and the producers that have expired. One of many producers is made
        in a thread: it would hold up all else."""
        version = state.snapshot.version
        is_small = state.producers.least_bytes <= SMALL_SNAPSHOT
        producers = state.producers if is_small else state.producers.copy()

        def work() -> tuple[Put, list[int]]:
            expired = [] if now_ms is None else producers.expired(now_ms)
            snapshot = ProducerSnapshot(upto, self._bounded(stream, producers, now_ms))
            return self._store.put_snapshot(stream, snapshot, version), expired

        return work() if is_small else await self._runtime.in_thread(work)

    def _bounded(self, stream: int, producers: ProducerStates, now_ms: int | None) -> ProducerStates:
        living = producers if now_ms is None else producers.without_expired(now_ms)
        kept, forgotten = living.within(
            largest_snapshot(self._store), living.newest_ms() if now_ms is None else now_ms
        )
        say_forgotten(stream, forgotten)
        return kept


def refusal(stream: int, mark: HighWatermark) -> LogError | None:
    """Why nothing may be mirrored into a stream."""
    if mark.closed:
        return StreamClosed(f"stream {stream} is closed")
    if not mark.is_classic:
        return BoundaryStands(f"stream {stream} is not its source's: nothing is mirrored into it")
    return None


def unavailable(stream: int, error: Exception) -> LogUnavailable:
    return LogUnavailable(f"stream {stream}: the store did not answer: {error}")
