"""The mirror of a topic: read from its source by leader, and taken into the log, until it is switched.

Each leader is read by a task of its own. Its answers are looked at, uploaded and committed while the next
ones come: batches are looked at in order, uploads go side by side, commits are in order again. Memory is
bounded (`leader_reads.py`). Nothing is kept elsewhere: a mirror that begins goes on at the high watermarks.
A partition that cannot go on is named and left, and the others are not held up by it.

A source deletes its oldest records, also such that were not mirrored yet. Then the mirror goes on where the
source begins: the offsets that are gone become a hole, and that is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Address
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.log.origins import BoundaryStands
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.migration.live.leader_reads import Answers, LeaderReads, MirrorLimits, MirrorMemory, size_of
from dray.migration.live.news import News
from dray.migration.mirror.mirrored_pieces import hole_before
from dray.migration.mirror.mirroring import (
    MirroredBatches,
    MirroredPlace,
    MirrorPlan,
    MirrorRefused,
    MirrorTail,
    StreamMirror,
)
from dray.migration.source.mirror import (
    PASSING_READS,
    MirrorOvertaken,
    MirrorPiece,
    MirrorPlace,
    MirrorReader,
)
from dray.migration.source.source import SourceTopic, is_no_such_topic

_log = structlog.get_logger(__name__)

HURRY_SECONDS: Final = 10.0
GONE_SECONDS: Final = 5.0
"""For so long a source says that there is no such topic, until that is believed."""


@dataclass(slots=True)
class MirrorProgress:
    """How far a partition is."""

    end: int  # mirrored
    last_stable: int | None = None  # of the source, as it last said; None before its first answer
    heard: float | None = None  # when it said so
    stopped: str | None = None  # why it does not go on
    is_ours: bool = False  # it was switched: nothing is mirrored any more
    skipped: int = 0  # offsets that the source deleted before they were mirrored, in this process

    @property
    def lag(self) -> int | None:
        return None if self.last_stable is None else max(0, self.last_stable - self.end)

    @property
    def is_at_work(self) -> bool:
        return self.stopped is None and not self.is_ours


@dataclass(slots=True)
class _Gathered:
    """The pieces of a partition that have come, and where the next one begins."""

    begin: int
    pieces: list[memoryview] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)
    hole_to: int | None = None  # nothing came: the source begins there by now


async def _unsaid(*_: int) -> None:
    return None


class TopicMirror:
    """`run` until nothing is left to mirror, or it is cancelled. `streams`: by partition."""

    def __init__(
        self,
        source: SourceTopic,
        reader: MirrorReader,
        mirror: StreamMirror,
        streams: Mapping[int, int],
        runtime: Runtime,
        limits: MirrorLimits,
        memory: MirrorMemory,
        *,
        topic_id: UUID | None = None,
        on_progress: Callable[[int, MirrorProgress], None] = lambda *_: None,
        on_read: Callable[[int], None] = lambda _: None,
        on_skipped: Callable[[int, int, int], Awaitable[None]] = _unsaid,
    ) -> None:
        """`topic_id`: that of the source's topic when it was linked. One that was made anew has another.
        `on_skipped` is told of a partition's offsets, from the one up to before the other, that the source
        deleted before they were mirrored: before that is in the log, so perhaps more than once."""
        self._source = source
        self._reader = reader
        self._mirror = mirror
        self._streams = dict(streams)
        self._runtime = runtime
        self._limits = limits
        self._memory = memory
        self._topic_id = topic_id
        self._gone_since: float | None = None
        self._on_progress = on_progress
        self._on_read = on_read  # so many bytes
        self._on_skipped = on_skipped
        self._places: dict[int, MirroredPlace] = {}
        self._starts: dict[int, int] = {}  # of the source
        self._dry: dict[int, int] = {}  # where an answer had nothing at all
        self._hurry_until = float("-inf")
        self._reading: dict[Address, dict[int, MirrorPlace]] = {}  # where each leader's next pieces begin
        self._wake = asyncio.Event()  # a partition has lost its leader, or is to be tried again
        self._news = News(runtime)
        self._again: set[int] = set()  # partitions that stopped and are to be tried again
        self._is_running = False
        self.progress: dict[int, MirrorProgress] = {}

    def hurry(self) -> None:
        """Commit what comes at once, for the next seconds: a switch waits for it."""
        self._hurry_until = self._runtime.monotonic() + HURRY_SECONDS

    def try_stopped_again(self) -> bool:
        """Partitions that could not go on are tried once more; the others work on meanwhile. False where none
        do: then `run` has ended."""
        if not self._is_running:
            return False
        self._again.update(each for each, progress in self.progress.items() if progress.stopped is not None)
        self._wake.set()
        return True

    async def run(self) -> None:
        """Raises `AuthenticationFailed`: a password does not become right by being sent again."""
        at_work: dict[asyncio.Task[None], Address] = {}
        self._is_running = True
        try:
            while True:
                await self._begin_partitions()
                waiting = self._waiting()
                if not waiting and not at_work and not self._missing():
                    return
                if waiting and await self._learnt():
                    for leader, places in self._reader.by_leader(waiting).items():
                        if leader in self._reading:
                            self._reading[leader].update(places)
                            continue
                        self._reading[leader] = dict(places)
                        at_work[self._runtime.spawn(self._follow(leader), f"mirror of {leader}")] = leader
                for task in await self._until_something_ends(at_work):
                    del self._reading[at_work.pop(task)]
                    task.result()
        finally:
            self._is_running = False
            for task in at_work:
                task.cancel()
            if at_work:
                await asyncio.wait(at_work)
            self._reading.clear()

    def _waiting(self) -> dict[int, MirrorPlace]:
        """The partitions that no leader's task reads."""
        read = {partition for places in self._reading.values() for partition in places}
        return {
            partition: _place_of(self._places[partition])
            for partition, progress in self.progress.items()
            if progress.is_at_work and partition not in read
        }

    async def _until_something_ends(self, at_work: Collection[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        """Or a partition has no leader, or is to be tried again: then only for a moment."""
        woken = self._runtime.spawn(self._wake.wait(), "mirror: a partition that nobody reads")
        is_idle = not at_work or self._waiting() or self._missing() or self._again
        seconds = self._limits.pause_seconds if is_idle else None
        try:
            done, _ = await asyncio.wait(
                [*at_work, woken], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()
        if woken in done:
            self._wake.clear()
            await self._runtime.sleep(self._limits.pause_seconds)
        return {task for task in at_work if task in done}

    def _missing(self) -> bool:
        return len(self.progress) < len(self._streams)

    async def _begin_partitions(self) -> None:
        """Find the places of partitions: those that are not known yet, and those that are tried again."""
        for partition, stream in self._streams.items():
            if partition not in self.progress:
                await self._look_again(partition, stream)
            elif partition in self._again:
                progress = self.progress[partition]
                why, progress.stopped = progress.stopped, None
                if await self._look_again(partition, stream):
                    self._again.discard(partition)
                else:
                    progress.stopped = why

    async def _look_again(self, partition: int, stream: int) -> bool:
        """Find the place of a partition anew. False if it could not be found."""
        progress = self.progress.get(partition)
        try:
            place = await self._mirror.place(stream)
        except BoundaryStands:
            progress = self.progress.setdefault(partition, MirrorProgress(0))
            with suppress(LogError):
                progress.end = await self._mirror.boundary(stream) or 0
            progress.is_ours = True
        except StreamClosed:
            self._stop(partition, "the topic was deleted at Dray")
        except LogError as error:
            if self._news.is_news(partition):
                _log.warning("mirror: the log did not answer", partition=partition, error=str(error))
            return False
        else:
            self._news.forget(partition)
            self._places[partition] = place
            if progress is None:
                self.progress[partition] = MirrorProgress(place.end)
            else:
                progress.end = place.end
        self._said(partition)
        return True

    def _stop(self, partition: int, why: str) -> None:
        progress = self.progress.setdefault(partition, MirrorProgress(0))
        progress.stopped = why
        _log.error("a partition is no longer mirrored", partition=partition, why=why)
        self._said(partition)

    def _skipped(self, partition: int, first: int, below: int) -> None:
        self.progress[partition].skipped += below - first
        _log.warning(
            "the source has deleted records before they were mirrored",
            partition=partition,
            first=first,
            below=below,
            offsets=below - first,
        )

    def _said(self, partition: int) -> None:
        self._on_progress(partition, self.progress[partition])

    async def _learnt(self) -> bool:
        try:
            await self._source.learn()
        except AuthenticationFailed:
            raise
        except (ClientError, RequestFailed) as error:
            if is_no_such_topic(error):
                self._not_there()
            elif self._news.is_news("source"):
                _log.warning("mirror: the source does not answer", error=str(error))
            return False
        self._news.forget("source")
        self._gone_since = None
        if self._topic_id is not None and self._source.topic_id != self._topic_id:
            self._stop_all("the source's topic was deleted, and another has its name")
            return False
        return True

    def _not_there(self) -> None:
        """The source knows no such topic. A broker that has just been started may say so for a moment."""
        now = self._runtime.monotonic()
        if self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since >= GONE_SECONDS:
            self._stop_all("the source's topic was deleted. What was mirrored is kept")

    def _stop_all(self, why: str) -> None:
        for partition, progress in self.progress.items():
            if progress.is_at_work:
                self._stop(partition, why)

    # --- one leader

    async def _follow(self, leader: Address) -> None:
        """Until none of its partitions is left, or it cannot be reached: then they are looked at again.
        Records that were read and are not committed are read again."""
        reading = self._reading[leader]
        reads = LeaderReads(self._reader, self._runtime, leader, self._has_more, self._limits, self._memory)
        commits: list[asyncio.Task[set[int]]] = []  # in their order
        planned: asyncio.Future[None] | None = None  # when the last of them is
        tails: dict[int, MirrorTail] = {}  # of what was planned: none before anything was, or after a failure
        look_at = self._runtime.monotonic()
        try:
            while reading:
                gathered = await self._gather(leader, reads, reading, look_at)
                is_time = self._runtime.monotonic() >= look_at
                again = await self._end_commits(commits, 0 if is_time else self._limits.commits - 1)
                for partition in again:
                    gathered.pop(partition, None)
                    tails.pop(partition, None)
                    if partition in reading:
                        reading[partition] = _place_of(self._places[partition])
                if is_time:
                    tails.clear()  # all of it is committed
                    await self._look_around(reading, gathered)
                    look_at = self._runtime.monotonic() + self._limits.look_seconds
                for partition in [each for each in reading if not self.progress[each].is_at_work]:
                    del reading[partition]
                if not commits and _size(gathered) <= self._limits.small_answer_bytes:
                    reads.rest(reading)
                if gathered:
                    after, planned = planned, asyncio.get_running_loop().create_future()
                    commit = self._commit(
                        gathered, tails, self._more_follows(reading), after, planned, commits[-1:]
                    )
                    commits.append(self._runtime.spawn(commit, "mirror commit"))
                    # Committed or not, it is not in memory any more then.
                    commits[-1].add_done_callback(partial(_give_back, reads, _size(gathered)))
            await self._end_commits(commits, 0)
        except AuthenticationFailed:
            raise
        except (ClientError, RequestFailed) as error:
            if self._news.is_news(leader):
                _log.info("mirror: a leader does not answer", leader=leader, error=str(error))
            await self._end_commits(commits, 0)
            await self._runtime.sleep(self._limits.pause_seconds)
        finally:
            await reads.stop()
            for task in commits:
                task.cancel()
            if commits:
                await asyncio.wait(commits)

    async def _end_commits(self, commits: list[asyncio.Task[set[int]]], most: int) -> set[int]:
        """Until no more than so many are under way. The partitions of which something was not taken in, and
        so nothing that was read after it: none of them is under way any more."""
        again: set[int] = set()
        while commits and (again or len(commits) > most or commits[0].done()):
            again |= await commits[0]
            del commits[0]
        return again

    async def _gather(
        self, leader: Address, reads: LeaderReads, reading: dict[int, MirrorPlace], look_at: float
    ) -> dict[int, _Gathered]:
        """Answers, until they are worth an object, or have waited long enough. Moves `reading` on."""
        gathered: dict[int, _Gathered] = {}
        total = 0
        first: float | None = None
        while reading and not (gathered and reads.is_held_up(reading)):
            asked, answers = await reads.next(reading)
            self._news.forget(leader)
            size = self._take(asked, answers, gathered, reading)
            reads.give_back(size_of(answers) - size)  # what was asked for in vain
            if any(isinstance(answer, MirrorOvertaken) for answer in answers.values()):
                break  # a hole is committed by itself: what is aborted behind it is another answer's to say
            reads.read_ahead(reading)
            total += size
            now = self._runtime.monotonic()
            if gathered and first is None:
                first = now
            linger = 0.0 if now < self._hurry_until else self._limits.linger_seconds
            worthwhile = self._limits.object_bytes if reads.is_large else self._limits.small_answer_bytes
            if total >= worthwhile or (first is not None and now - first >= linger):
                break
            if first is None and now >= look_at:
                break
        return gathered

    def _take(
        self,
        asked: Mapping[int, MirrorPlace],
        answers: Answers,
        gathered: dict[int, _Gathered],
        reading: dict[int, MirrorPlace],
    ) -> int:
        size = 0
        for partition, answer in answers.items():
            if reading.get(partition) != asked[partition]:
                continue  # it was asked for before the partition was set back, or left
            if isinstance(answer, MirrorPiece):
                size += self._take_piece(answer, asked[partition], gathered, reading)
                continue
            if isinstance(answer, MirrorOvertaken):
                self._take_hole(answer, asked[partition], gathered, reading)
                continue
            del reading[partition]
            if isinstance(answer, RequestFailed) and answer.code in PASSING_READS:
                self._wake.set()
            else:
                self._stop(partition, str(answer))
        if not size:
            self._dry.update({partition: place.offset for partition, place in asked.items()})
        return size

    def _take_piece(
        self,
        piece: MirrorPiece,
        asked: MirrorPlace,
        gathered: dict[int, _Gathered],
        reading: dict[int, MirrorPlace],
    ) -> int:
        partition = piece.partition
        self._starts[partition] = piece.source_start
        progress = self.progress[partition]
        progress.heard = self._runtime.monotonic()
        self._on_read(len(piece.batches))
        if progress.last_stable != piece.last_stable:
            progress.last_stable = piece.last_stable
            self._said(partition)
        if not piece.batches:
            return 0
        some = gathered.setdefault(partition, _Gathered(asked.offset))
        some.pieces.append(piece.batches)
        some.aborted.update(piece.aborted)
        del reading[partition]  # to the end: a leader fills its answer in the order of the request
        reading[partition] = piece.place
        return len(piece.batches)

    def _take_hole(
        self,
        overtaken: MirrorOvertaken,
        asked: MirrorPlace,
        gathered: dict[int, _Gathered],
        reading: dict[int, MirrorPlace],
    ) -> None:
        """All that is mirrored lies below the source's start. Batches that were gathered before go into the
        log first: then the source is asked again."""
        partition, start = overtaken
        if partition in gathered:
            return
        self.progress[partition].heard = self._runtime.monotonic()
        gathered[partition] = _Gathered(asked.offset, [memoryview(hole_before(start))], hole_to=start)
        reading[partition] = MirrorPlace(start)

    def _is_behind(self, partition: int, offset: int) -> bool:
        return offset < (self.progress[partition].last_stable or 0)

    def _has_more(self, partition: int, offset: int) -> bool:
        """So that a read does not wait. If compaction has removed the last records, there is nothing below
        the last stable offset: an answer without any says so."""
        return self._is_behind(partition, offset) and self._dry.get(partition) != offset

    def _more_follows(self, reading: Mapping[int, MirrorPlace]) -> bool:
        """Has the source more than what was read of all these?"""
        return all(self._is_behind(partition, place.offset) for partition, place in reading.items())

    # --- into the log

    async def _plan(
        self, gathered: Mapping[int, _Gathered], tails: MutableMapping[int, MirrorTail]
    ) -> MirrorPlan:
        joined = {partition: await self._joined(some.pieces) for partition, some in gathered.items()}
        for partition, some in gathered.items():
            some.pieces = [joined[partition]]  # they are not kept twice
        plan = await self._mirror.plan(
            [
                MirroredBatches(
                    self._streams[partition],
                    joined[partition],
                    sorted(some.aborted),
                    self._places[partition]._replace(end=some.begin),
                    tails.get(partition),
                )
                for partition, some in gathered.items()
            ]
        )
        tails.update({partition: plan.tail(self._streams[partition]) for partition in gathered})
        return plan

    async def _joined(self, pieces: list[memoryview]) -> memoryview:
        if len(pieces) == 1:
            return pieces[0]
        return memoryview(await self._runtime.in_thread(b"".join, pieces))

    async def _commit(
        self,
        gathered: Mapping[int, _Gathered],
        tails: MutableMapping[int, MirrorTail],
        more_follows: bool,
        after: asyncio.Future[None] | None,
        planned: asyncio.Future[None],
        before: Sequence[asyncio.Task[set[int]]],
    ) -> set[int]:
        """The partitions of which nothing was taken in: what else was read of them is read again. It is
        planned `after` the one before it, and committed when that is done."""
        again: set[int] = set()
        try:
            if after is not None:
                await asyncio.shield(after)
            plan = await self._plan(gathered, tails)
        finally:
            planned.set_result(None)
        holes = {each: some for each, some in gathered.items() if some.hole_to is not None}
        for partition, some in holes.items():
            await self._on_skipped(partition, some.begin, some.hole_to or 0)
        await self._mirror.upload(plan)
        if before:
            await asyncio.wait(before)
        outcomes = await self._mirror.commit_plan(plan, more_follows=more_follows)
        partitions = {stream: partition for partition, stream in self._streams.items() if stream in outcomes}
        for stream, partition in partitions.items():
            outcome = outcomes[stream]
            if isinstance(outcome, MirroredPlace):
                self._places[partition] = outcome
                self.progress[partition].end = outcome.end
                if partition in holes:
                    self._skipped(partition, holes[partition].begin, outcome.end)
                self._said(partition)
                continue
            again.add(partition)
            if isinstance(outcome, MirrorRefused):
                self._stop(partition, str(outcome))
                continue
            _log.info("mirror: not taken in", partition=partition, error=str(outcome))
            if isinstance(outcome, LogUnavailable):
                await self._runtime.sleep(self._limits.pause_seconds)
            while not await self._look_again(partition, stream):
                await self._runtime.sleep(self._limits.pause_seconds)
        return again

    async def _look_around(self, reading: Collection[int], gathered: Collection[int]) -> None:
        """A source that is fenced gives nothing, so that no commit would show that the log is ours by now.
        And the start of the log follows the source's. Nothing is being committed meanwhile."""
        for partition in list(reading):
            stream = self._streams[partition]
            if partition not in gathered:
                await self._look_again(partition, stream)
            if self._starts.get(partition, -1) > self._places[partition].start:
                try:
                    start = await self._mirror.raise_start(stream, self._starts[partition])
                except LogError as error:
                    _log.info("mirror: the start was not raised", partition=partition, error=str(error))
                else:
                    self._places[partition] = self._places[partition]._replace(start=start)


def _give_back(reads: LeaderReads, size: int, _: object) -> None:
    reads.give_back(size)


def _size(gathered: Mapping[int, _Gathered]) -> int:
    return sum([len(piece) for some in gathered.values() for piece in some.pieces])


def _place_of(place: MirroredPlace) -> MirrorPlace:
    return MirrorPlace(place.end, -1 if place.epoch is None else place.epoch)
