"""The mirror of a topic: read from its source by leader, and taken into the log, until it is switched.

Each leader is read by a task of its own, and what it gave is committed while the next answer comes. What is
in memory is bounded by that (`MirrorLimits`). Nothing is kept elsewhere: a mirror that begins goes on at the
high watermarks. A partition that cannot go on is named and left, and the others are not held up by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

import structlog

from dray.client.cluster import PASSING, Address
from dray.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.log.mirroring import MirroredBatches, MirroredPlace, MirrorRefused, StreamMirror
from dray.log.origins import BoundaryStands
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.runtime import Runtime
from dray.upstream.mirror import MirrorPiece, MirrorPlace, MirrorStopped
from dray.upstream.source import SourceProducer

_log = structlog.get_logger(__name__)

HURRY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Of one leader. What is committed is in memory, and what is gathered meanwhile: each is an object's
    worth of bytes and one answer, at most."""

    answer_bytes: int = 16 << 20
    partition_bytes: int = 4 << 20
    object_bytes: int = 4 << 20  # so much is committed at once, or
    linger_seconds: float = 1.0  # what has come in so long
    small_bytes: int = 256 << 10  # after an answer of less, the next one is asked for a little later
    small_seconds: float = 0.1
    pause_seconds: float = 0.2  # after a failure
    look_seconds: float = 15.0  # between two looks at what no batch tells: starts, and who owns the log


@dataclass(slots=True)
class MirrorProgress:
    """How far a partition is."""

    end: int  # mirrored
    last_stable: int | None = None  # of the source, as it last said; None before its first answer
    heard: float | None = None  # when it said so
    stopped: str | None = None  # why it does not go on
    is_ours: bool = False  # it was switched: nothing is mirrored any more

    @property
    def lag(self) -> int | None:
        return None if self.last_stable is None else max(0, self.last_stable - self.end)

    @property
    def is_at_work(self) -> bool:
        return self.stopped is None and not self.is_ours


class PieceReader(Protocol):
    """`upstream.mirror.MirrorReader`."""

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]: ...

    async def read_each(
        self, leader: Address, places: Mapping[int, MirrorPlace]
    ) -> Mapping[int, MirrorPiece | MirrorStopped | RequestFailed]: ...


class MirroredSource(Protocol):
    """`upstream.source.SourceTopic`."""

    @property
    def topic_id(self) -> UUID | None: ...

    async def learn(self) -> None: ...


@dataclass(slots=True)
class _Gathered:
    """What has come of a partition, and where its next piece begins."""

    begin: int
    pieces: list[memoryview] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)

    def joined(self) -> memoryview:
        return self.pieces[0] if len(self.pieces) == 1 else memoryview(b"".join(self.pieces))


class TopicMirror:
    """`run` until nothing is left to mirror, or it is cancelled. `streams`: by partition."""

    def __init__(
        self,
        source: MirroredSource,
        reader: PieceReader,
        mirror: StreamMirror,
        streams: Mapping[int, int],
        runtime: Runtime,
        limits: MirrorLimits,
        *,
        topic_id: UUID | None = None,
        on_progress: Callable[[int, MirrorProgress], None] = lambda *_: None,
        on_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`topic_id`: that of the source's topic when it was linked. One that was made anew has another."""
        self._source = source
        self._reader = reader
        self._mirror = mirror
        self._streams = dict(streams)
        self._runtime = runtime
        self._limits = limits
        self._topic_id = topic_id
        self._on_progress = on_progress
        self._on_read = on_read  # so many bytes
        self._places: dict[int, MirroredPlace] = {}
        self._starts: dict[int, int] = {}  # of the source
        self._hurry_until = float("-inf")
        self._reading: dict[Address, dict[int, MirrorPlace]] = {}  # where each leader's next pieces begin
        self._unled = asyncio.Event()  # a partition has lost its leader
        self.progress: dict[int, MirrorProgress] = {}

    def hurry(self) -> None:
        """Commit what comes at once, for the next seconds: a switch waits for it."""
        self._hurry_until = self._runtime.monotonic() + HURRY_SECONDS

    async def run(self) -> None:
        """Raises `AuthenticationFailed`: a password does not become right by being sent again."""
        at_work: dict[asyncio.Task[None], Address] = {}
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
        """Or a partition has no leader: then only for a moment."""
        unled = self._runtime.spawn(self._unled.wait(), "mirror: a partition without a leader")
        is_idle = not at_work or self._waiting() or self._missing()
        seconds = self._limits.pause_seconds if is_idle else None
        try:
            done, _ = await asyncio.wait(
                [*at_work, unled], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            unled.cancel()
        if unled in done:
            self._unled.clear()
            await self._runtime.sleep(self._limits.pause_seconds)
        return {task for task in at_work if task in done}

    def _missing(self) -> bool:
        return len(self.progress) < len(self._streams)

    async def _begin_partitions(self) -> None:
        """Where they stand: those of which that is not known yet."""
        for partition, stream in self._streams.items():
            if partition not in self.progress:
                await self._look_again(partition, stream)

    async def _look_again(self, partition: int, stream: int) -> bool:
        """Where the partition stands by now. False where that could not be found out."""
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
            _log.warning("mirror: the log did not answer", partition=partition, error=str(error))
            return False
        else:
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

    def _said(self, partition: int) -> None:
        self._on_progress(partition, self.progress[partition])

    async def _learnt(self) -> bool:
        try:
            await self._source.learn()
        except AuthenticationFailed:
            raise
        except (ClientError, RequestFailed) as error:
            _log.warning("mirror: the source does not answer", error=str(error))
            return False
        if self._topic_id is not None and self._source.topic_id != self._topic_id:
            for partition, progress in self.progress.items():
                if progress.is_at_work:
                    self._stop(partition, "the source's topic was deleted, and another has its name")
            return False
        return True

    # --- one leader

    async def _follow(self, leader: Address) -> None:
        """Until none of its partitions is left, or it cannot be reached: then they are looked at again. What
        was read and is not committed is read again."""
        reading = self._reading[leader]
        committing: asyncio.Task[set[int]] | None = None
        look_at = self._runtime.monotonic()
        try:
            while reading:
                gathered = await self._gather(leader, reading, look_at)
                if committing is not None:
                    for partition in await committing:
                        gathered.pop(partition, None)
                        if partition in reading:
                            reading[partition] = _place_of(self._places[partition])
                    committing = None
                if self._runtime.monotonic() >= look_at:
                    await self._look_around(reading, gathered)
                    look_at = self._runtime.monotonic() + self._limits.look_seconds
                for partition in [each for each in reading if not self.progress[each].is_at_work]:
                    del reading[partition]
                if gathered:
                    committing = self._runtime.spawn(
                        self._commit(gathered, self._more_follows(reading)), "mirror commit"
                    )
            if committing is not None:
                await committing
        except AuthenticationFailed:
            raise
        except (ClientError, RequestFailed) as error:
            _log.info("mirror: a leader does not answer", leader=leader, error=str(error))
            if committing is not None:
                await committing
            await self._runtime.sleep(self._limits.pause_seconds)
        finally:
            if committing is not None and not committing.done():
                committing.cancel()
                await asyncio.wait([committing])

    async def _gather(
        self, leader: Address, reading: dict[int, MirrorPlace], look_at: float
    ) -> dict[int, _Gathered]:
        """Answers, until they are worth an object, or have waited long enough. Moves `reading` on."""
        gathered: dict[int, _Gathered] = {}
        total = 0
        first: float | None = None
        while reading:
            size = self._take(await self._reader.read_each(leader, dict(reading)), gathered, reading)
            total += size
            now = self._runtime.monotonic()
            if gathered and first is None:
                first = now
            linger = 0.0 if now < self._hurry_until else self._limits.linger_seconds
            if total >= self._limits.object_bytes or (first is not None and now - first >= linger):
                break
            if first is None and now >= look_at:
                break
            if 0 < size < self._limits.small_bytes and linger:
                await self._runtime.sleep(self._limits.small_seconds)
        return gathered

    def _take(
        self,
        answers: Mapping[int, MirrorPiece | MirrorStopped | RequestFailed],
        gathered: dict[int, _Gathered],
        reading: dict[int, MirrorPlace],
    ) -> int:
        size = 0
        for partition, answer in answers.items():
            if isinstance(answer, MirrorPiece):
                size += self._take_piece(answer, gathered, reading)
                continue
            del reading[partition]
            if isinstance(answer, RequestFailed) and answer.code in PASSING:
                self._unled.set()
            else:
                self._stop(partition, str(answer))
        return size

    def _take_piece(
        self, piece: MirrorPiece, gathered: dict[int, _Gathered], reading: dict[int, MirrorPlace]
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
        some = gathered.setdefault(partition, _Gathered(reading[partition].offset))
        some.pieces.append(piece.batches)
        some.aborted.update(piece.aborted)
        reading[partition] = piece.place
        return len(piece.batches)

    def _more_follows(self, reading: Mapping[int, MirrorPlace]) -> bool:
        """Has the source more than what was read of all these?"""
        return all(
            place.offset < (self.progress[partition].last_stable or 0) for partition, place in reading.items()
        )

    # --- into the log

    async def _commit(self, gathered: Mapping[int, _Gathered], more_follows: bool) -> set[int]:
        """The partitions of which nothing was taken in: what else was read of them is read again."""
        again = {
            partition for partition, some in gathered.items() if some.begin != self._places[partition].end
        }
        partitions = {self._streams[partition]: partition for partition in gathered if partition not in again}
        outcomes = await self._mirror.commit_all(
            [
                MirroredBatches(
                    stream,
                    gathered[partition].joined(),
                    sorted(gathered[partition].aborted),
                    self._places[partition],
                )
                for stream, partition in partitions.items()
            ],
            more_follows=more_follows,
        )
        for stream, partition in partitions.items():
            outcome = outcomes[stream]
            if isinstance(outcome, MirroredPlace):
                self._places[partition] = outcome
                self.progress[partition].end = outcome.end
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


def _place_of(place: MirroredPlace) -> MirrorPlace:
    return MirrorPlace(place.end, -1 if place.epoch is None else place.epoch)


class LogTarget:
    """The topic at Dray for `TopicSwitch`. `hurry` is called when a switch waits for the mirror."""

    def __init__(
        self, mirror: StreamMirror, streams: Mapping[int, int], hurry: Callable[[], None] = lambda: None
    ) -> None:
        self._mirror = mirror
        self._streams = streams
        self._hurry = hurry

    async def end(self, partition: int) -> int:
        self._hurry()
        return (await self._place(partition)).end

    async def last_epoch(self, partition: int) -> int | None:
        return (await self._place(partition)).epoch

    async def _place(self, partition: int) -> MirroredPlace:
        return await self._mirror.place(self._streams[partition])

    async def producers(self, partition: int) -> Collection[SourceProducer]:
        found = await self._mirror.producers(self._streams[partition])
        return [SourceProducer(*each) for each in found]

    async def boundary(self, partition: int) -> int | None:
        return await self._mirror.boundary(self._streams[partition])

    async def decide(self, partition: int, boundary: int) -> bool:
        return await self._mirror.decide(self._streams[partition], boundary)
