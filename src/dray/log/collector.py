"""Collecting WAL objects that nobody needs any more.

Three ways lead to one, and each alone would miss some: an object key without references; a staging mark
that nobody works on, whose object may or may not be in the log; and, slowly, the list of the bucket itself,
for uploads that arrived after everything else was gone. Nothing here needs a lock: two collectors at
work on the same object do each other no harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from uuid import UUID

import structlog

from dray.log import wal_keys
from dray.log.observer import LogObserver
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, Put, Record
from dray.metadata.values import UnreadableValue, ValueCorrupt
from dray.objects.contract import ObjectError, ObjectStore
from dray.runtime import Runtime
from dray.wal import PREFIX, WalPath, parse_object_path

_log = structlog.get_logger(__name__)

_PAGE = 256


@dataclass(slots=True)
class Collection:
    """What a round of collection saw and did."""

    objects: int = 0  # object keys looked at
    deleted: int = 0  # objects deleted
    pending: int = 0  # without references, waiting out their grace
    staged: int = 0  # staging marks looked at
    orphans: int = 0  # marks that nobody worked on, now resolved
    audited: int = 0  # objects seen in the bucket


class Collector:
    def __init__(
        self,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        settings: LogSettings,
        observer: LogObserver | None = None,
    ) -> None:
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._settings = settings
        self._observer = observer or LogObserver()
        self._dry_run = False
        # On this collector's own clock: when an object, or a mark at a version, was first seen so.
        self._unreferenced_since: dict[int, dict[UUID, float]] = {}
        self._staged_since: dict[int, dict[tuple[UUID, int], float]] = {}

    async def run(self, audit: bool = True, dry_run: bool = False) -> Collection:
        """One round over every domain. A dry run counts what would be done, and does nothing."""
        seen = Collection()
        self._dry_run = dry_run
        for domain in range(self._store.domains):
            await self._part(self._resolve_orphans(domain, seen))
            await self._part(self._delete_unreferenced(domain, seen))
        if audit:
            await self._part(self._audit(seen))
        self._observer.collected(seen.orphans, seen.pending, seen.deleted)
        return seen

    async def _part(self, work: Awaitable[None]) -> None:
        """What is unforeseen in one domain keeps nothing of the others. Stores that fail fail all of them."""
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
                if now - since < self._settings.grace_seconds:
                    waiting[wal_id] = since
                    seen.pending += 1
                elif (path := _path_of(record)) is not None and await self._delete_object(path):
                    seen.deleted += 1
                    # Only now: while the key is there, the object is found again.
                    if not self._dry_run:
                        await self._store.store.write(domain, [Delete(record.key)])
        self._unreferenced_since[domain] = waiting

    async def _referenced(self, domain: int, page: list[Record]) -> set[UUID]:
        first, last = keys.wal_id_of(page[0].key), keys.wal_id_of(page[-1].key)
        records = await self._store.store.scan(
            domain, keys.references(first), keys.prefix_end(keys.references(last))
        )
        return {keys.wal_id_of(record.key) for record in records}

    async def _delete_object(self, path: str) -> bool:
        """True once the object is known to be gone."""
        if self._dry_run:
            return True
        try:
            await self._objects.delete(path)
        except ObjectError as error:
            _log.warning("WAL object not deleted", path=path, error=str(error))
            return False
        return True

    # --- staging marks that nobody works on

    async def _resolve_orphans(self, domain: int, seen: Collection) -> None:
        before = self._staged_since.get(domain, {})
        watched: dict[tuple[UUID, int], float] = {}
        async for page in self._pages(domain, keys.STAGING):
            for record in page:
                seen.staged += 1
                wal_id = keys.wal_id_of(record.key)
                now = self._runtime.monotonic()
                since = before.get((wal_id, record.version), now)
                if now - since < self._settings.orphan_seconds:
                    watched[wal_id, record.version] = since
                elif self._dry_run or await self._resolve_orphan(domain, wal_id, record):
                    seen.orphans += 1
        self._staged_since[domain] = watched

    async def _resolve_orphan(self, domain: int, wal_id: UUID, record: Record) -> bool:
        """Take the mark, fence every stream, judge, and let go of what is not in the log."""
        try:
            staging = wal_keys.Staging.decode(record.value)  # before it is touched: it may be unreadable
            # Taking it moves its version: whoever staged it will see that before it commits again.
            [taken] = await self._store.store.write(domain, [Put(record.key, record.value, record.version)])
            if not taken.applied:
                return False
            dropped = []
            for stream in staging.streams:
                if not await self._fence(stream):
                    return False
                if not await self._in_log(stream, wal_id):
                    dropped.append(stream)
            settled = wal_keys.settle(wal_id, taken.version, dropped)
            outcomes = await self._store.store.write(domain, settled)
        except Exception as error:
            if not isinstance(error, MetadataError):
                self._runtime.background.report("collect WAL objects", error)
            _log.warning("orphan left for the next round", wal_id=wal_id.hex, error=str(error))
            return False
        return outcomes[-1].applied

    async def _fence(self, stream: int) -> bool:
        """Seal the stream and see its version moved: a commit that was aimed before can then no
        longer land, so what is not in the log now never will be. Behind a barrier: a version that was
        past already when it was read proves nothing by having moved."""
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
        """List first, then look for references, behind a barrier: what is listed was staged before."""
        oldest_ms = self._runtime.wall_ms() - int(self._settings.orphan_seconds * 1000)
        listed: list[tuple[str, WalPath]] = []
        async for info in self._objects.list(PREFIX):
            seen.audited += 1
            if info.modified_ms <= oldest_ms and (parsed := parse_object_path(info.path)) is not None:
                listed.append((info.path, parsed))
            if len(listed) >= _PAGE:
                seen.deleted += await self._delete_unknown(listed)
                listed = []
        seen.deleted += await self._delete_unknown(listed)

    async def _delete_unknown(self, listed: list[tuple[str, WalPath]]) -> int:
        deleted = 0
        for domain in sorted({parsed.domain for _, parsed in listed if parsed.domain < self._store.domains}):
            await self._store.store.barrier(domain)
        for path, parsed in listed:
            prefix = keys.references(parsed.wal_id)
            if parsed.domain < self._store.domains and not await self._store.store.scan(
                parsed.domain, prefix, keys.prefix_end(prefix), 1
            ):
                deleted += await self._delete_object(path)
        return deleted

    async def _pages(self, domain: int, prefix: str) -> AsyncIterator[list[Record]]:
        start, end = prefix, keys.prefix_end(prefix)
        while page := await self._store.store.scan(domain, start, end, _PAGE):
            yield page
            start = page[-1].key + "\0"


def _path_of(record: Record) -> str | None:
    """Where the object of an object key lies. None, and it stays, if this build cannot read the value."""
    try:
        path = wal_keys.decode_object(record.value)
        parsed = parse_object_path(path)
        if parsed is None or parsed.wal_id != keys.wal_id_of(record.key):
            raise ValueCorrupt("a WAL object key", f"its path {path!r} is not that of its object")
    except UnreadableValue as error:
        _log.error("WAL object not deleted", key=record.key, error=str(error))
        return None
    return path
