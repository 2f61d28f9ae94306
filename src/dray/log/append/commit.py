"""Committing an uploaded WAL object, or a carried append: steps 3 to 5 of the commit protocol.

Per stream: aim at a version of the high watermark, look once more whether the object is still ours, then
one compare-and-set. The compare-and-set is the commit and nothing else is. A clear no means aiming
again; an unclear reply is resolved by reading; and a chunk whose write may have landed somewhere is
never aimed at another place. A carried append has the same steps without the look in between: its batches are
in the value that is compared and set, so there is no object that a collector could take. The rule for chunks
holds for it too: after an unclear reply it is never carried again, and never sent as an object instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from itertools import accumulate
from typing import Final

import structlog

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.base.runtime.lean_dataclasses import dataclass
from dray.kafka.records import NO_PRODUCER
from dray.log.append.carried_hints import put_hint
from dray.log.append.chunks import AdmissionResult, PendingBatch, PendingChunk, StagedObject
from dray.log.append.commit_writes import NOTHING, TOO_LARGE, CommitWrites
from dray.log.append.failed_sequences import REMEMBERED, FailedSequences
from dray.log.entries import BatchReference, EntryKind, HighWatermark, IndexEntry, pack_batches
from dray.log.producer_state import ProducerStates, RememberedBatch
from dray.log.settings import LogSettings
from dray.log.stream_state import (
    StreamState,
    load_stream_state,
    load_stream_states,
    must_take_appends,
)
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogError, LogUnavailable, OutOfOrderSequence, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Outcome

_log = structlog.get_logger(__name__)

_ROUNDS = 32
_STREAMS_PER_TURN: Final = 512

MOST_CARRIED: Final = 32 << 20
"""Bytes that the heads of a committer's states may carry, all together."""


class CommitVerdict(Enum):
    """The finding of a read after an unclear reply."""

    COMMITTED = "it is in the log"
    UNMOVED = "the high watermark is still at the version aimed at"
    MOVED = "the high watermark moved on without it"
    UNKNOWN = "reading failed too"


_PRODUCERS_AN_ENTRY: Final = 16
"""To fold an entry takes about as long as to read so many producers from a snapshot."""


@dataclass(slots=True)
class CommitAttempt:
    """One stream's part of a commit: the entry it wants to become the head, over which version."""

    chunk: PendingChunk
    over: Versioned[HighWatermark]
    entry: IndexEntry
    judgement: AdmissionResult
    producers: ProducerStates
    start: int
    following: HighWatermark  # with the entry as its head
    hinted_at: float | None = None  # as it is once the attempt has succeeded
    hints: bool = False  # is the stream's hint put in the same write?
    unsure: bool = False  # a reply was lost at this version
    tries: int = 0


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The work that is left for an object. None is, while a write of it may still apply."""

    undecided: bool
    failed: list[int]
    lost: list[int] = field(default_factory=list)  # streams at which another broker was first


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    stream: int
    high_watermark: Versioned[HighWatermark]
    entry: IndexEntry
    selected: list[tuple[int, PendingBatch]]


class Committer:
    """Commits objects and carried appends, of one domain or of all. It alone holds the states of their
    streams, and a stream is in one commit at a time."""

    def __init__(
        self,
        store: StreamStore,
        runtime: Runtime,
        settings: LogSettings,
        on_committed: Callable[[CommittedEntry], None],
        on_duplicate: Callable[[int, RememberedBatch, PendingBatch], None],
        on_retry: Callable[[], None],
        expiry: ExpiryClock | None = None,
        domains: int = 1,
    ) -> None:
        """`domains`: of how many it has the streams."""
        self._expiry = expiry or UndoubtedClock(runtime)
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self._hint_seconds = 0.0 if settings.carry is None else settings.carry.hint_seconds
        self._on_committed = on_committed
        self._on_duplicate = on_duplicate
        self._on_retry = on_retry
        self._states: dict[int, StreamState] = {}  # those that were set last are at the end
        self._carried_bytes = 0  # in the heads of the states
        self._resting: dict[int, StreamState] = {}  # as they were when idle ones were last looked for
        self._failures = FailedSequences(REMEMBERED * domains)

    def entries_since_snapshot(self, stream: int) -> int:
        state = self._states.get(stream)
        return 0 if state is None else state.entries_since_snapshot

    def is_snapshot_due(self, stream: int) -> bool:
        """A snapshot is written whole: of many producers it is not for a few entries."""
        since = self.entries_since_snapshot(stream)
        if since < self._settings.snapshot_every_entries:
            return False
        return since * _PRODUCERS_AN_ENTRY >= self._states[stream].producers.count

    def start(self, stream: int) -> int | None:
        """The stream's first readable offset, as of when its state was loaded."""
        state = self._states.get(stream)
        return None if state is None else state.start

    def snapshot_moved(self, stream: int) -> None:
        if (state := self._states.get(stream)) is not None:
            state.entries_since_snapshot = 0

    def created(self, stream: int, version: int) -> None:
        """This process has created the stream, and knows what a load would find: nothing. (Version 0: it does
        not.) If another process appends first, the compare-and-set fails as with any state that is old."""
        if version:
            producers = ProducerStates(self._store.producer_expiry_ms)
            self._remember(stream, StreamState(Versioned(HighWatermark(), version), producers))

    def forget(self, stream: int) -> None:
        state = self._states.pop(stream, None)
        if state is not None:
            self._carried_bytes -= _carried_by(state)

    def _remember(self, stream: int, state: StreamState) -> None:
        """Keep a state. If heads carry much, the states that were set longest ago are dropped: the next
        append reads them again."""
        self.forget(stream)
        self._states[stream] = state
        self._carried_bytes += _carried_by(state)
        while self._carried_bytes > MOST_CARRIED and len(self._states) > 1:
            self.forget(next(iter(self._states)))

    def forget_idle(self) -> None:
        """Drop the states that no commit has touched since the last call. The next append reads them
        again."""
        for stream, state in self._resting.items():
            if self._states.get(stream) is state:
                self.forget(stream)
        self._resting = dict(self._states)

    def fail(self, chunk: PendingChunk, error: LogError) -> None:
        """Refuse what is left of a chunk. Its producers may have sent further batches already: those must not
        be taken for their first ones."""
        moment_ms = self._moment_ms()
        for pending in chunk.pending:
            if not pending.answered:
                self._failures.note(chunk.stream, pending.batch, moment_ms)
                pending.refuse(error)

    def _moment_ms(self) -> int:
        """The time for what only this process remembers. The wall clock will not do: it may be set
        meanwhile."""
        return int(self._runtime.monotonic() * 1000)

    async def commit(self, staged: StagedObject) -> CommitResult:
        waiting: dict[int, CommitAttempt | None] = dict.fromkeys(staged.chunks)
        failed: list[int] = []
        lost: list[int] = []
        undecided = False
        give_up_at = self._runtime.monotonic() + self._settings.commit_seconds
        for attempt in range(_ROUNDS):
            if attempt and self._runtime.monotonic() >= give_up_at:
                break  # the producer has given up long ago, and may have sent the batch again
            aims = await self._aim_all(staged, waiting, failed)
            if not aims:
                break
            if not await self._still_ours(staged):
                # A collector has taken the object, and decides what becomes of it.
                undecided = True
                break
            outcomes = await self._write(staged, aims)
            if None in outcomes.values():
                self._on_retry()
            for count, (stream, aim) in enumerate(aims.items(), 1):
                if not count % _STREAMS_PER_TURN:
                    await self._breathe()
                outcome = outcomes[stream]
                if outcome is NOTHING:
                    continue  # the same write is sent again
                if outcome is TOO_LARGE:
                    await self._make_room(aim)
                    waiting[stream] = None
                elif outcome is not None and outcome.applied:
                    self._committed(aim, outcome.version)
                    del waiting[stream]
                elif outcome is not None and not aim.unsure:
                    self._on_retry()
                    lost.append(stream)
                    self.forget(stream)
                    waiting[stream] = None
                else:
                    aim.unsure = True
                    if await self._resolve(staged, aim, waiting, failed) is CommitVerdict.UNKNOWN:
                        undecided = True
            if any(aim is not None for aim in waiting.values()):
                await self._back_off(attempt)
        for stream, leftover in waiting.items():
            undecided = undecided or (leftover is not None and leftover.unsure)
            self.fail(staged.chunks[stream], LogUnavailable("the commit did not come through: try again"))
            self.forget(stream)
            failed.append(stream)
        return CommitResult(undecided, failed, lost)

    async def _breathe(self) -> None:
        """Let others have their turn of the event loop: an object may hold thousands of streams."""
        await self._runtime.sleep(0)

    # --- aiming

    async def _aim_all(
        self, staged: StagedObject, waiting: dict[int, CommitAttempt | None], failed: list[int]
    ) -> dict[int, CommitAttempt]:
        aims: dict[int, CommitAttempt] = {}
        await self._load_together([stream for stream, aim in waiting.items() if aim is None])
        for count, stream in enumerate(list(waiting), 1):
            if not count % _STREAMS_PER_TURN:
                await self._breathe()
            aim = waiting[stream]
            if aim is None:
                try:
                    aim = await self._aim(staged, staged.chunks[stream])
                except LogError as error:
                    self.fail(staged.chunks[stream], error)
                except MetadataError as error:
                    unavailable = LogUnavailable(f"the metadata store did not answer: {error}")
                    unavailable.__cause__ = error
                    self.fail(staged.chunks[stream], unavailable)
                if aim is None:
                    del waiting[stream]
                    failed.append(stream)
                    continue
                waiting[stream] = aim
            aims[stream] = aim
        return aims

    async def _aim(self, staged: StagedObject, chunk: PendingChunk) -> CommitAttempt | None:
        """None when the stream's state leaves nothing of the chunk to append."""
        state = self._states.get(chunk.stream) or await self._load(chunk.stream)
        producers = state.producers.fork()
        created_ms = self._created_ms(staged, state)
        judgement = self._judge(state, producers, chunk, created_ms)
        if not self._certain(judgement):
            await self._store.barrier(chunk.stream)
            earlier = state.producers
            state = await self._load(chunk.stream)
            state.producers.still_ours(earlier, {batch.producer_id for batch in chunk.references})
            producers = state.producers.fork()
            created_ms = self._created_ms(staged, state)
            judgement = self._judge(state, producers, chunk, created_ms)
        if not judgement.selected:
            self._answer(chunk.stream, judgement)
            return None
        entry = self._entry(staged, state.high_watermark.value, judgement, created_ms)
        over = state.high_watermark
        following = HighWatermark.at(entry, over.value.origin)
        aim = CommitAttempt(chunk, over, entry, judgement, producers, state.start, following, state.hinted_at)
        if staged.is_carried:
            now = self._runtime.monotonic()
            if state.hinted_at is None or now - state.hinted_at >= self._hint_seconds:
                aim.hinted_at, aim.hints = now, True
        return aim

    def _created_ms(self, staged: StagedObject, state: StreamState) -> int:
        """Producers grow old by it, at every broker. So one whose clock is doubted goes by those of the
        others, and never below the head: a retry elsewhere would else be taken for a new batch."""
        if self._expiry.now_ms() is not None:
            return staged.created_ms
        head = state.high_watermark.value.head
        return max(self._expiry.likely_ms(), 0 if head is None else head.created_ms)

    @staticmethod
    def _certain(judgement: AdmissionResult) -> bool:
        """Is the answer right even if the state is old? A state, cached or just read from a deposed leader,
        may lag behind what another broker appended. An append is safe: the compare-and-set checks it. A
        duplicate stays a duplicate. But a refusal needs the newest state."""
        return not judgement.refused

    def _answer(self, stream: int, judgement: AdmissionResult) -> None:
        """Answer the batches that are duplicates or out of order. If other batches of the chunk are to be
        appended, this waits until they are: the copy of a batch that may still fail is no duplicate."""
        for remembered, pending in judgement.duplicates:
            self._on_duplicate(stream, remembered, pending)
        for error, pending in judgement.refused:
            if isinstance(error, LogUnavailable):  # so is what comes behind it to be sent again
                self._failures.note(stream, pending.batch, self._moment_ms())
            pending.refuse(error)

    async def _load_together(self, streams: list[int]) -> None:
        """Read the states of an object's streams side by side, where several are not known."""
        unknown = [stream for stream in streams if stream not in self._states]
        if len(unknown) > 1:
            for stream, state in (await load_stream_states(self._store, unknown)).items():
                if not state.high_watermark.value.is_classic:
                    self._remember(stream, state)

    async def _load(self, stream: int) -> StreamState:
        self.forget(stream)
        state = await load_stream_state(self._store, stream)
        must_take_appends(stream, state)
        self._remember(stream, state)
        return state

    def _judge(
        self, state: StreamState, producers: ProducerStates, chunk: PendingChunk, created_ms: int
    ) -> AdmissionResult:
        over = state.high_watermark.value
        now_ms = -1
        judgement = AdmissionResult(
            end=over.end,
            running_max_timestamp=over.max_timestamp,
            running_max_offset=over.max_timestamp_offset,
        )
        offset = over.end
        for pending, reference in zip(chunk.pending, chunk.references, strict=True):
            if pending.answered:
                continue  # answered in an earlier round
            if reference.producer_id != NO_PRODUCER:
                if now_ms < 0:
                    now_ms = self._expiry.now_ms() or 0  # while the clock is doubted, no producer is old
                try:
                    remembered = producers.judge(reference, now_ms)
                    if (
                        remembered is None
                        and self._failures  # usually empty
                        and not producers.knows(reference.producer_id, now_ms)
                    ):
                        self._failures.check(chunk.stream, reference, self._moment_ms())
                except LogError as error:
                    judgement.refused.append(
                        (self._refusal(error, chunk.stream, producers, reference), pending)
                    )
                    continue
                if remembered is not None:
                    judgement.duplicates.append((remembered, pending))
                    continue
                producers.record(reference, offset, created_ms, is_ours=True)
            judgement.take(offset, pending, reference)
            offset = judgement.end
        return judgement

    def _refusal(
        self, error: LogError, stream: int, producers: ProducerStates, reference: BatchReference
    ) -> LogError:
        """A gap is no fault of the producer where the batch that belongs there failed here, or may be on its
        way into the log at another broker, which appended the one before."""
        expected = producers.expected(reference) if isinstance(error, OutOfOrderSequence) else None
        if expected is None:
            return error
        moment_ms = self._moment_ms()
        found = self._failures.gap(stream, reference, expected, moment_ms)
        if found is None and not producers.appended_last(reference.producer_id):
            patience_ms = int(self._settings.commit_seconds * 1000)
            found = self._failures.young_gap(stream, reference, expected, moment_ms, patience_ms)
        return found or error

    @staticmethod
    def _entry(
        staged: StagedObject, over: HighWatermark, judgement: AdmissionResult, created_ms: int
    ) -> IndexEntry:
        data = b""
        if staged.is_carried:
            data = b"".join([pending.view for _, pending in judgement.selected])
            judgement.references = _adjoining(judgement.references)
        return IndexEntry(
            start=over.end,
            end=judgement.end,
            cumulative_size=over.cumulative_size + judgement.size,
            created_ms=created_ms,
            min_timestamp=judgement.min_timestamp,
            max_timestamp=judgement.max_timestamp,
            running_max_timestamp=judgement.running_max_timestamp,
            running_max_offset=judgement.running_max_offset,
            object_id=staged.wal_id,
            path=staged.path,
            table=pack_batches(judgement.references),
            kind=EntryKind.CARRIED if staged.is_carried else EntryKind.WAL,
            data=data,
        )

    # --- committing

    async def _still_ours(self, staged: StagedObject) -> bool:
        """The recheck of the staging mark, by its version, after the high watermark was read. A collector
        that took the object before now has moved the mark's version. One that takes it later seals the
        streams before it decides, which moves the versions aimed at. A carried append has no object."""
        if staged.is_carried:
            return True
        for attempt in range(self._settings.retry_limit):
            try:
                record = await self._store.get_in(staged.domain, keys.staging(staged.wal_id))
            except MetadataError:
                await self._back_off(attempt)
                continue
            return record is not None and record.version == staged.staging_version
        return False

    async def _write(self, staged: StagedObject, aims: dict[int, CommitAttempt]) -> dict[int, Outcome | None]:
        """Each stream's outcome, as `CommitWrites` gives it."""
        writes = CommitWrites(self._store)
        for count, (stream, aim) in enumerate(aims.items(), 1):
            if not count % _STREAMS_PER_TURN:
                await self._breathe()
            puts = self._store.advance(stream, aim.over, aim.following)
            if aim.hints:
                puts.append(put_hint(stream, staged.created_ms))
            if writes.is_full_for(stream, puts):
                await writes.write()
            writes.add(stream, puts)
        await writes.write()
        return writes.found

    async def _make_room(self, aim: CommitAttempt) -> None:
        """The present head and the new one do not fit into one write. So the present one is filed first,
        which is a seal, and the stream is aimed at anew. Nothing of the chunk was sent."""
        stream = aim.chunk.stream
        self.forget(stream)
        sealed = aim.over.value.sealed()
        try:
            await self._store.write(stream, self._store.advance(stream, aim.over, sealed))
        except MetadataError as error:
            _log.debug("stream not sealed before a large append", stream=stream, error=str(error))
            await self._back_off(0)

    def _committed(self, aim: CommitAttempt, version: int) -> None:
        stream = aim.chunk.stream
        high_watermark = Versioned(aim.following, version)
        since = self.entries_since_snapshot(stream) + 1
        self._remember(
            stream, StreamState(high_watermark, aim.producers.join(), since, aim.start, aim.hinted_at)
        )
        self._on_committed(CommittedEntry(stream, high_watermark, aim.entry, aim.judgement.selected))
        self._answer(stream, aim.judgement)

    # --- after an unclear reply

    async def _resolve(
        self,
        staged: StagedObject,
        aim: CommitAttempt,
        waiting: dict[int, CommitAttempt | None],
        failed: list[int],
    ) -> CommitVerdict:
        stream = aim.chunk.stream
        verdict = await self._find(staged, aim)
        if verdict is CommitVerdict.UNMOVED:
            aim.tries += 1
            if aim.tries <= self._settings.retry_limit:
                return verdict  # the same write is sent again
            verdict = CommitVerdict.UNKNOWN
        del waiting[stream]
        if verdict is not CommitVerdict.COMMITTED:
            _log.debug("append given up after an unclear reply", stream=stream, found=verdict.value)
            self.fail(aim.chunk, LogUnavailable("the metadata store did not answer: try again"))
            self.forget(stream)
            if verdict is CommitVerdict.MOVED:
                failed.append(stream)
        return verdict

    async def _find(self, staged: StagedObject, aim: CommitAttempt) -> CommitVerdict:
        """Where did the write go? High watermark first, then the index: a head that is filed in
        between is then found in the index, never missed in both."""
        for attempt in range(self._settings.retry_limit):
            try:
                return await self._look(staged, aim)
            except StreamClosed:
                return CommitVerdict.MOVED
            except MetadataError:
                await self._back_off(attempt)
        return CommitVerdict.UNKNOWN

    async def _look(self, staged: StagedObject, aim: CommitAttempt) -> CommitVerdict:
        stream = aim.chunk.stream
        await self._store.barrier(stream)  # or a stale read would look like a version that has moved
        found = await self._store.high_watermark(stream)
        if found is None:
            return CommitVerdict.MOVED
        head = found.value.head
        if head is not None and head.object_id == staged.wal_id:
            self._committed(aim, found.version)
            return CommitVerdict.COMMITTED
        filed = await self._store.entry(stream, aim.entry.end, aim.entry.cumulative_size)
        if filed is not None and filed.value.object_id == staged.wal_id:
            self._committed(aim, 0)
            self.forget(stream)  # other brokers have appended since: our state is old
            return CommitVerdict.COMMITTED
        return CommitVerdict.UNMOVED if found.version == aim.over.version else CommitVerdict.MOVED

    async def _back_off(self, attempt: int) -> None:
        await self._runtime.sleep(self._settings.retry_seconds * min(2**attempt, 16))


def _carried_by(state: StreamState) -> int:
    head = state.high_watermark.value.head
    return 0 if head is None else len(head.data)


def _adjoining(references: list[BatchReference]) -> list[BatchReference]:
    """The positions of batches that are put one behind the other."""
    if len(references) == 1:
        return references  # it lies at the beginning already
    starts = accumulate([reference.length for reference in references], initial=0)
    return [reference._replace(position=start) for reference, start in zip(references, starts, strict=False)]
