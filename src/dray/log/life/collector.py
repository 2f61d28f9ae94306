"""Collecting WAL objects that nothing needs any more.

Such objects are found in three ways, and each alone would miss some: by an object key without references; by
a staging mark without a writer, whose object may or may not be in the log; and, slowly, by the list of the
bucket itself, for uploads that arrived after all their keys were gone. The list only nominates: an object
that the metadata does not know waits as long as known garbage, and is held against the brake
(`deletions.py`). Nothing here needs a lock: two collectors at work on the same object do each other no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.log import wal_keys
from dray.log.jobs.machine import Job, JobState, put_job
from dray.log.life.deletions import HELD, DeletionSummary, MayDelete
from dray.log.observer import Collection, LogObserver
from dray.log.outside_entries import OutsideEntries
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore
from dray.log.wal import PREFIX, WalPath, parse_object_path
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, Put, StoredValue
from dray.metadata.values import UnreadableValue, ValueCorrupt
from dray.objects.contract import ObjectError, ObjectStore

__all__ = ["Collection", "Collector"]

_log = structlog.get_logger(__name__)

_PAGE = 256
_MOST_NOMINATED: Final = 100_000
"""Further unknown objects are only counted, and have their turn in a later audit. This bounds the memory."""


@dataclass(slots=True)
class _Candidate:
    parsed: WalPath
    since: float  # on this collector's own clock


class Collector:
    def __init__(
        self,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        settings: LogSettings,
        observer: LogObserver | None = None,
        *,
        may_delete: MayDelete,
        expiry: ExpiryClock | None = None,
        outside: OutsideEntries | None = None,
    ) -> None:
        self._outside = outside
        self._expiry = expiry or UndoubtedClock(runtime)
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._settings = settings
        self._observer = observer or LogObserver()
        self._may_delete = may_delete
        self._dry_run = False
        self._deleted = DeletionSummary("WAL objects")
        # On this collector's own clock: when an object, or a mark at a version, was first seen so.
        self._unreferenced_since: dict[int, dict[UUID, float]] = {}
        self._staged_since: dict[int, dict[tuple[UUID, int], float]] = {}
        self._nominated: dict[str, _Candidate] = {}  # by path: what the metadata does not know
        self._braked: str | None = None  # by the last audit: why none of them may go

    async def run(
        self, audit: bool = True, dry_run: bool = False, domains: Iterable[int] | None = None
    ) -> Collection:
        """One round over these domains, or over all. A dry run counts what would be done, and does
        nothing."""
        asked = range(self._store.domains) if domains is None else list(domains)
        seen = Collection()
        seen.held = await self._may_delete()
        if seen.held is not None:
            _log.error(HELD, of="WAL objects", reason=seen.held)
            self._observer.collected(seen)
            return seen
        self._dry_run = dry_run
        self._deleted = DeletionSummary("WAL objects")
        try:
            for left in set(range(self._store.domains)) - set(asked):
                self._staged_since.pop(left, None)
                self._unreferenced_since.pop(left, None)
            for domain in asked:
                await self._part(self._resolve_orphans(domain, seen))
                await self._part(self._delete_unreferenced(domain, seen))
            if audit:
                await self._part(self._audit(seen))
            await self._part(self._delete_nominated(seen))
        finally:
            self._deleted.say()
        seen.unknown = len(self._nominated)
        seen.braked = self._braked
        self._observer.collected(seen)
        return seen

    async def _part(self, work: Awaitable[None]) -> None:
        """An unforeseen error in one domain does not stop the others; an error of a store does."""
        try:
            await work
        except (MetadataError, ObjectError):
            raise
        except Exception as error:
            self._runtime.background.report("collect WAL objects", error)

    # --- objects without references

    async def _delete_unreferenced(self, domain: int, seen: Collection) -> None:
        before = self._unreferenced_since.get(domain, {})
        waiting: dict[UUID, float] = {}
        async for page in self._pages(domain, keys.OBJECTS):
            # The object keys first, then the references: an object staged in between is not in the
            # page, and no reference is ever added to one that is.
            referenced = await self._referenced(domain, page)
            for record in page:
                seen.objects += 1
                wal_id = keys.wal_id_of(record.key)
                if wal_id in referenced:
                    continue
                now = self._runtime.monotonic()
                since = before.get(wal_id, now)
                if now - since < self._settings.collect_grace:
                    waiting[wal_id] = since
                    seen.pending += 1
                elif (owned := _owned_by(record)) is not None and await self._delete_owned(owned):
                    seen.deleted += 1
                    # Only now: while the key is there, the object is found again.
                    if not self._dry_run:
                        await self._store.write_in(domain, [Delete(record.key)])
        self._unreferenced_since[domain] = waiting

    async def _referenced(self, domain: int, page: list[StoredValue]) -> set[UUID]:
        """Those that something refers to. Of an object with many references, two or three are read."""
        found: set[UUID] = set()
        start = keys.references(keys.wal_id_of(page[0].key))
        end = keys.prefix_end(keys.references(keys.wal_id_of(page[-1].key)))
        limit = _PAGE
        while len(records := await self._store.scan_in(domain, start, end, limit)) == limit:
            seen = {keys.wal_id_of(record.key) for record in records}
            found |= seen
            start = keys.prefix_end(keys.references(keys.wal_id_of(records[-1].key)))
            limit = min(_PAGE, 2 * len(seen))
        return found | {keys.wal_id_of(record.key) for record in records}

    async def _delete_owned(self, owned: wal_keys.OwnedObject) -> bool:
        """True once all of it is known to be gone."""
        if not owned.store:
            return all([await self._delete_object(path) for path in owned.paths])
        return self._outside is not None and await self._outside.delete(
            owned.store, owned.paths, self._deleted.add, dry_run=self._dry_run
        )

    async def _delete_object(self, path: str) -> bool:
        """True once the object is known to be gone."""
        if self._dry_run:
            return True
        try:
            await self._objects.delete(path)
        except ObjectError as error:
            _log.warning("WAL object not deleted", path=path, error=str(error))
            return False
        self._deleted.add(path)
        return True

    # --- staging marks without a writer

    async def _resolve_orphans(self, domain: int, seen: Collection) -> None:
        before = self._staged_since.get(domain, {})
        watched: dict[tuple[UUID, int], float] = {}
        async for page in self._pages(domain, keys.STAGING):
            for record in page:
                seen.staged += 1
                wal_id = keys.wal_id_of(record.key)
                now = self._runtime.monotonic()
                since = before.get((wal_id, record.version), now)
                if now - since < self._settings.orphan_ttl:
                    watched[wal_id, record.version] = since
                    seen.standing += since < now  # a writer at work settles within a round
                elif self._dry_run or await self._resolve_orphan(domain, wal_id, record):
                    seen.orphans += 1
        self._staged_since[domain] = watched

    async def _resolve_orphan(self, domain: int, wal_id: UUID, record: StoredValue) -> bool:
        """Take the mark, fence every stream, see which streams hold the object, and drop the references of
        the others."""
        try:
            staging = wal_keys.Staging.decode(record.value)  # before it is touched: it may be unreadable
            # Taking the mark moves its version: the broker that staged the object sees that before it commits
            # again.
            [taken] = await self._store.write_in(domain, [Put(record.key, record.value, record.version)])
            if not taken.applied:
                return False
            dropped = []
            is_pack = staging.kind is wal_keys.StagingKind.PACK
            for stream in staging.streams:
                held = await (self._holds_pack if is_pack else self._holds_append)(stream, wal_id)
                if held is None:
                    return False
                if not held:
                    dropped.append(stream)
            settled = wal_keys.settle(wal_id, taken.version, dropped, staging)
            outcomes = await self._store.write_in(domain, settled)
        except Exception as error:
            if not isinstance(error, MetadataError):
                self._runtime.background.report("collect WAL objects", error)
            _log.warning("orphan left for the next round", wal_id=wal_id.hex, error=str(error))
            return False
        return outcomes[-1].applied

    async def _holds_append(self, stream: int, wal_id: UUID) -> bool | None:
        """Is the object in the stream, and will it ever be? None: that could not be found out."""
        if not await self._fence(stream):
            return None
        return await self._in_log(stream, wal_id)

    async def _holds_pack(self, stream: int, wal_id: UUID) -> bool | None:
        """The same of a pack. It is aimed at a job that was DONE before it was staged, so a job in any other
        state has moved past it, and one that is DONE is moved here. A pack is never aimed at a job that is
        not there. First the job, then the index: a pack that is finished in between is found in the index."""
        job = await self._fence_job(stream)
        if job is None:
            return None
        return job.packs_into(wal_id) or await self._in_log(stream, wal_id)

    async def _fence_job(self, stream: int) -> Job | None:
        """The stream's job, at a version that no pack was aimed at. None: it did not move. (The barrier is no
        rule here, as it is in `_fence`: a pack reads its job before it is staged, and the mark was seen.)"""
        await self._store.barrier(stream)
        found = await self._store.job(stream)
        if found.version == 0 or found.value.state is not JobState.DONE:
            return found.value
        await self._store.write(stream, [put_job(stream, found.value, found.version)])
        after = await self._store.job(stream)
        return None if after.version == found.version else after.value

    async def _fence(self, stream: int) -> bool:
        """Seal the stream and see its version moved. A commit that was aimed at the earlier version can then
        no longer apply, so an object that is not in the log now never will be. The version is read behind a
        barrier: a stale read would look like a version that has moved."""
        await self._store.barrier(stream)
        found = await self._store.high_watermark(stream)
        if found is None:
            return True
        await self._store.write(stream, self._store.advance(stream, found, found.value.sealed()))
        after = await self._store.high_watermark(stream)
        return after is None or after.version != found.version

    async def _in_log(self, stream: int, wal_id: UUID) -> bool:
        view = await self._store.view(stream)
        return view is not None and view.holds(wal_id)

    # --- the bucket itself

    async def _audit(self, seen: Collection) -> None:
        """List first, then look for keys, behind a barrier: every listed object was staged before. An object
        without a key is nominated. One that is no longer listed, or has a key after all, is no longer
        nominated."""
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            return  # while the clock is doubted, every object may look old
        oldest_ms = now_ms - int(self._settings.orphan_ttl * 1000)
        nominated: dict[str, _Candidate] = {}
        page: dict[str, WalPath] = {}
        ours = unknown = 0
        async for info in self._objects.list(PREFIX):
            seen.audited += 1
            parsed = parse_object_path(info.path)
            if parsed is None or parsed.domain >= self._store.domains:
                continue
            ours += 1
            if info.modified_ms <= oldest_ms:
                page[info.path] = parsed
            if len(page) >= _PAGE:
                unknown += await self._nominate(page, nominated)
                page = {}
        unknown += await self._nominate(page, nominated)
        self._nominated = nominated
        brake = self._settings.brake
        self._braked = brake.line("WAL objects", unknown, ours) if brake.stops(unknown, ours) else None
        if self._braked is not None:
            _log.error(HELD, of="WAL objects", reason=self._braked)

    async def _nominate(self, page: dict[str, WalPath], nominated: dict[str, _Candidate]) -> int:
        unknown = await self._unknown(page)
        for path in unknown:
            if len(nominated) < _MOST_NOMINATED:
                before = self._nominated.get(path)
                now = self._runtime.monotonic()
                nominated[path] = before or _Candidate(page[path], now)
        return len(unknown)

    async def _unknown(self, page: dict[str, WalPath]) -> list[str]:
        """The objects with neither a reference nor an object key. One that has an object key is collected by
        way of it."""
        for domain in sorted({parsed.domain for parsed in page.values()}):
            await self._store.barrier_in(domain)
        unknown = []
        for path, parsed in page.items():
            prefix = keys.references(parsed.wal_id)
            if (
                not await self._store.scan_in(parsed.domain, prefix, keys.prefix_end(prefix), 1)
                and await self._store.get_in(parsed.domain, keys.wal_object(parsed.wal_id)) is None
            ):
                unknown.append(path)
        return unknown

    async def _delete_nominated(self, seen: Collection) -> None:
        now = self._runtime.monotonic()
        due = [
            path
            for path, nominated in self._nominated.items()
            if now - nominated.since >= self._settings.collect_grace and self._braked is None
        ]
        seen.pending += len(self._nominated) - len(due)
        for first in range(0, len(due), _PAGE):
            page = {path: self._nominated[path].parsed for path in due[first : first + _PAGE]}
            unknown = await self._unknown(page)  # a late copy of its staging write may have come since
            for path in page:
                if path not in unknown:
                    del self._nominated[path]
                elif await self._delete_object(path):
                    seen.deleted += 1
                    if not self._dry_run:
                        del self._nominated[path]

    async def _pages(self, domain: int, prefix: str) -> AsyncIterator[list[StoredValue]]:
        start, end = prefix, keys.prefix_end(prefix)
        while page := await self._store.scan_in(domain, start, end, _PAGE):
            yield page
            start = page[-1].key + "\0"


def _owned_by(record: StoredValue) -> wal_keys.OwnedObject | None:
    """The object that a key stands for. None if this build cannot read the value: then the object stays."""
    try:
        owned = wal_keys.decode_owned(record.value)
        if not owned.is_outside:
            [path] = owned.paths
            parsed = parse_object_path(path)
            if parsed is None or parsed.wal_id != keys.wal_id_of(record.key):
                raise ValueCorrupt("a WAL object key", f"its path {path!r} is not that of its object")
    except UnreadableValue as error:
        _log.error("WAL object not deleted", key=record.key, error=str(error))
        return None
    return owned
