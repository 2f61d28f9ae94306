"""Objects that the index names and that are gone: how that is proven, and how their offsets are given up.

Nothing is concluded from one answer. An object is lost once its store has said several times, with pauses,
that there is none, has shown that it still answers as it should, and the index names the object even after
that: a compaction deletes what it replaced only once the index has changed.

Nothing here decides to give anything up: an operator does (`drayd admin lost`). Then a *gap* takes the place
of the entries, by a job of the same machine as a compaction: an entry without a file and without a row, which
consumers are led over. Rows that were found elsewhere come back in the same way, in a file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import KeptTask, Runtime, gather_some, keep_running, run_once
from dray.log.entries import EntryKind, IndexEntry
from dray.log.jobs.machine import Compaction, FileWritten, Input, Job, JobState, Planned, advance
from dray.log.jobs.values import WrittenFile
from dray.log.life.deletions import MayDelete
from dray.log.life.retention import Retention
from dray.log.outside_entries import OutsideEntries
from dray.log.outside_table import OWN_STORE
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.log.types import LogError, LogUnavailable, ObjectLost, StreamClosed
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError, ObjectMissing, ObjectStore

TRIES: Final = 3
PAUSE_SECONDS: Final = 2.0
REMEDY: Final = "drayd admin lost says what is gone and what can be done"
WORTH_A_LIST: Final = 100
"""So many objects of a stream in one folder. A folder is of a domain and a day, and other streams have theirs
in it too."""

_AT_ONCE: Final = 16
_STEPS: Final = 64
_MOST_INPUTS: Final = 64


@dataclass(frozen=True, slots=True)
class LostEntry:
    """Offsets of a stream whose object is gone."""

    stream: int
    start: int  # not below the stream's own
    end: int
    kind: EntryKind
    path: str
    object_id: UUID
    size: int
    """Of a compacted file. Another object has at least so many bytes."""

    @classmethod
    def of(cls, stream: int, start: int, entry: IndexEntry) -> LostEntry:
        """`start`: that of the stream."""
        first = max(entry.start, start)
        return cls(stream, first, entry.end, entry.kind, entry.path, entry.object_id, _size_of(entry))

    def may_have(self, size: int) -> bool:
        """Can an object of so many bytes be the one?"""
        return size == self.size if self.kind is EntryKind.PARQUET else size >= self.size

    @property
    def records(self) -> int:
        """How many there were at most."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """The partition that a stream is of, as jobs name it."""

    topic: str
    topic_id: UUID
    partition: int
    stream: int


StoreOf = Callable[[str], ObjectStore]
"""An object store by its name. Raises `OutsideFault` for one that is not configured."""
StoredPath = tuple[str, str]
"""The name of a store, and a path in it."""
Entries = list[Versioned[IndexEntry]]
WriteFile = Callable[[Job, Entries], Awaitable[WrittenFile]]
"""Writes the file that takes the place of these entries: the job has its number, its start and its end."""


async def gap_file(runtime: Runtime, stream: int, job: Job) -> WrittenFile:
    """Nothing: what comes in the place of offsets that are given up."""
    gap_id, compaction = runtime.uuid(), job.compacted
    path = f"gaps/{gap_id.hex}"
    return WrittenFile.gap(stream, job.number, path, gap_id, start=compaction.start, end=compaction.end)


class LostObjects:
    def __init__(
        self, store: StreamStore, objects_of: StoreOf, bucket_fault: MayDelete, runtime: Runtime
    ) -> None:
        """`bucket_fault`: None where our own store is the cluster's, and says so now."""
        self._store = store
        self._objects_of = objects_of
        self._bucket_fault = bucket_fault
        self._runtime = runtime

    # --- proof

    async def of(self, stream: int) -> list[LostEntry]:
        """All that is lost of a stream. Raises `LogUnavailable` where a store does not say."""
        try:
            view = await self._view(stream)
            entries = [] if view is None else _entries(view)
        except MetadataError as error:
            raise LogUnavailable(f"the metadata store did not answer: {error}") from error
        return await self.proven(stream, entries)

    async def proven(
        self, stream: int, suspects: Iterable[IndexEntry], pause_seconds: float = PAUSE_SECONDS
    ) -> list[LostEntry]:
        """Those of these entries that are lost. Raises `LogUnavailable` where a store does not say."""
        gone = [entry for entry in suspects if not (entry.is_gap or entry.is_carried)]
        try:
            for number in range(TRIES):
                if number and gone:
                    await self._runtime.sleep(pause_seconds)
                absent = await self._absent({path for entry in gone for path in _paths_of(entry)})
                gone = [entry for entry in gone if absent.intersection(_paths_of(entry))]
            for store in sorted({store for entry in gone for store, _ in _paths_of(entry)}):
                await self._must_answer(store)
            view = await self._view(stream) if gone else None
        except ObjectError as error:
            raise LogUnavailable(f"the object store did not answer: {error}") from error
        except MetadataError as error:
            raise LogUnavailable(f"the metadata store did not answer: {error}") from error
        if view is None:
            return []
        ids = {entry.object_id for entry in gone}
        return [LostEntry.of(stream, view.start, entry) for entry in _entries(view) if entry.object_id in ids]

    async def _must_answer(self, store: str) -> None:
        """A bucket that was emptied, mounted wrongly or taken for another looks as if all were lost."""
        if store == OWN_STORE:
            fault = await self._bucket_fault()
            if fault is not None:
                raise LogUnavailable(f"nothing is taken for lost: {fault}")
            return
        async for _ in self._objects_of(store).list(""):
            return
        raise LogUnavailable(f"nothing is taken for lost: the foreign store {store!r} looks empty")

    async def _absent(self, paths: set[StoredPath]) -> set[StoredPath]:
        """Those at which a store has no object. Folders of which much is asked are listed first; what a list
        lacks is asked for all the same."""
        folders: dict[StoredPath, set[StoredPath]] = {}
        for store, path in paths:
            folders.setdefault((store, path.rpartition("/")[0] + "/"), set()).add((store, path))
        left = set(paths)
        for (store, folder), wanted in folders.items():
            if len(wanted) >= WORTH_A_LIST:
                async for info in self._objects_of(store).list(folder):
                    left.discard((store, info.path))

        async def is_absent(store: str, path: str) -> bool:
            try:
                await self._objects_of(store).head(path)
            except ObjectMissing:
                return True
            return False

        asked = sorted(left)
        answers = await gather_some((is_absent(*each) for each in asked), _AT_ONCE)
        return {each for each, absent in zip(asked, answers, strict=True) if absent}

    async def _view(self, stream: int) -> StreamView | None:
        """None for a stream that is closed: nothing of it is needed."""
        await self._store.barrier(stream)
        view = await self._store.view(stream)
        return None if view is None or view.high_watermark.value.closed else view

    # --- the way out

    async def replace(
        self, place: StreamPlace, objects: Collection[UUID], write: WriteFile, retention: Retention
    ) -> int:
        """Put what `write` makes in the place of the entries that name these objects; how many offsets that
        were. Each run of adjoining ones is a job, which any process carries on once its file is written."""
        replaced = 0
        for _ in range(_STEPS + 2 * len(objects)):
            job = await self._store.job(place.stream)
            if job.value.state is not JobState.DONE:
                await retention.carry_on(place.stream, job)
                continue
            view = await self._view(place.stream)
            if view is None:
                raise StreamClosed(f"stream {place.stream} is closed")
            mark = view.high_watermark
            if mark.value.head is not None and mark.value.head.object_id in objects:
                # Jobs work below the head: file it, so that there is none.
                sealed = self._store.advance(place.stream, mark, mark.value.sealed())
                await self._store.write(place.stream, sealed)
                continue
            run = _first_run(view, objects)
            if not run:
                return replaced
            replaced += await self._swap(place, view.start, job, run, write, retention)
        raise LogUnavailable(f"stream {place.stream}: its index changes too fast, try again")

    async def _swap(
        self,
        place: StreamPlace,
        start: int,
        job: Versioned[Job],
        run: Entries,
        write: WriteFile,
        retention: Retention,
    ) -> int:
        compaction = Compaction(
            topic=place.topic,
            topic_id=place.topic_id,
            partition=place.partition,
            start=max(start, run[0].value.start),
            end=run[-1].value.end,
            inputs=tuple(Input.of(entry) for entry in run),
            table=False,  # the table follows the index, once that says what is left
        )
        stream = place.stream
        created = await self._store.perform(stream, job, advance(stream, job.value, Planned(compaction)))
        if created is None:
            return 0
        file = await write(created.value, run)
        written = await self._store.perform(
            stream, created, advance(stream, created.value, FileWritten(file))
        )
        if written is None:
            return 0
        ended = await retention.finish(stream, written)
        if ended.value.number == written.value.number and ended.value.state is not JobState.DONE:
            raise LogUnavailable(f"stream {stream}: its index could not be changed, try again")
        return compaction.end - compaction.start


def lost_note(count: int, example: str) -> str:
    """For `/readyz`."""
    return f"{count} objects that the index names are gone, such as {example}: {REMEDY}"


def _entries(view: StreamView) -> list[IndexEntry]:
    live = [entry.value for entry in view.split()[0]]
    head = view.high_watermark.value.head
    return live if head is None else [*live, head]


def _size_of(entry: IndexEntry) -> int:
    if entry.is_parquet:
        return entry.file_size
    return 0 if entry.is_outside else max(batch.position + batch.length for _, batch in entry.batches())


def _paths_of(entry: IndexEntry) -> set[StoredPath]:
    """All that its records cannot be read without."""
    if not entry.is_outside:
        return {(OWN_STORE, entry.path)}
    table = entry.outside()
    return {(table.store, path) for path in (entry.path, table.manifest) if path}


def _first_run(view: StreamView, objects: Collection[UUID]) -> Entries:
    run: Entries = []
    for entry in view.split()[0]:
        if entry.value.object_id in objects and len(run) < _MOST_INPUTS:
            if run and run[-1].value.end != entry.value.start:
                break
            run.append(entry)
        elif run:
            break
    return run


# --- objects that readers of this broker did not find
#
# They are looked for again in the background, and remembered once they are proven to be lost.
#
# Until then clients are told to wait, for as long as any other bad answer is doubted (`doubts.py`): a store
# that hides what it has for some seconds must neither stop them nor page anybody. From then on they get an
# error that they stop on, the log of the broker names the offsets, a metric counts them and `/readyz` has a
# note. An object that was restored, given up or expired is forgotten at the next look.


_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 60.0
_PROOFS_AT_ONCE: Final = 32  # a proof takes seconds of waiting
_MOST: Final = 1000
"""So many are remembered by name. More are as lost: their reads fail, and are asked for again each time."""

Key = tuple[int, UUID]


class LostReads:
    def __init__(
        self,
        objects: LostObjects,
        runtime: Runtime,
        outside: OutsideEntries | None,
        patience_seconds: float,
    ) -> None:
        self._pause = patience_seconds / (TRIES - 1)
        self._objects = objects
        self._runtime = runtime
        self._outside = outside
        self._asking: set[Key] = set()
        self._lost: dict[Key, tuple[IndexEntry, list[LostEntry]]] = {}
        self._task: KeptTask | None = None

    @property
    def count(self) -> int:
        """Objects that are known to be lost."""
        return len(self._lost)

    def note(self) -> str | None:
        """For `/readyz`."""
        if not self._lost:
            return None
        _, [first, *_] = next(iter(self._lost.values()))
        return lost_note(self.count, first.path)

    def start(self) -> None:
        self._task = keep_running(self._runtime, "look for lost objects", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    def suspect(self, stream: int, entry: IndexEntry) -> None:
        """A read did not find the object, and the index names it. Raises `ObjectLost` once that is proven."""
        key = stream, entry.object_id
        if key in self._lost:
            [lost, *_] = self._lost[key][1]
            raise ObjectLost(f"{lost.path} is gone, and with it the offsets {lost.start} to {lost.end - 1}")
        if key not in self._asking and len(self._asking) + len(self._lost) < _MOST:
            self._asking.add(key)
            run_once(self._runtime, "look for a lost object", self._ask, stream, entry)

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(LOOK_SECONDS)
            known = [(stream, entry) for (stream, _), (entry, _) in self._lost.items()]
            await gather_some((self._look(*each) for each in known), _PROOFS_AT_ONCE)

    async def _ask(self, stream: int, entry: IndexEntry) -> None:
        try:
            await self._look(stream, entry)
        finally:
            self._asking.discard((stream, entry.object_id))

    async def _look(self, stream: int, entry: IndexEntry) -> None:
        key = stream, entry.object_id
        try:
            lost = await self._objects.proven(stream, [entry])
            if lost and entry.is_outside and self._outside is not None:
                await self._outside.look_after(stream)
            is_new = key not in self._lost
            if lost and (entry.is_outside or is_new):
                lost = await self._objects.proven(stream, [entry], self._pause if is_new else PAUSE_SECONDS)
        except LogError as error:
            _log.warning("an object was not found, and its store does not say more", error=str(error))
            return
        if not lost:
            if self._lost.pop(key, None) is not None:
                _log.info("a lost object is back, or nobody needs it any more", path=entry.path)
        elif key not in self._lost:
            for each in lost:
                _log.error(
                    "an object is lost: its records cannot be read",
                    stream=stream,
                    first=each.start,
                    below=each.end,
                    path=each.path,
                    what=REMEDY,
                )
            self._lost[key] = entry, lost
