"""Collecting metadata files of tables that no table needs any more.

Most go with the snapshots that needed them. What is left lies there because a commit lost its race and could
not clear up, or because the table was dropped. A commit writes its files before it is one, so a file counts
as garbage only once it is older than any commit takes: a table would be broken without it for good.

A topic that exists and whose table the catalog does not know is a reason to look at the catalog, and none to
delete: its metadata stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from dray.compaction.paths import TABLES_PREFIX, parse_metadata_path
from dray.log.deletions import HELD, DeletionSummary, MayDelete
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError, ObjectStore
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.tables.contract import Tables, TablesError, TopicTable
from dray.topics.live import TopicSource

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class MetadataCollection:
    listed: int = 0
    deleted: int = 0  # in a dry run: that would be
    undecided: int = 0  # whose table could not be asked, or is not in the catalog though its topic exists
    held: str | None = None  # why nothing was deleted


class MetadataCollector:
    def __init__(
        self,
        objects: ObjectStore,
        runtime: Runtime,
        tables: Tables,
        topics: TopicSource,
        orphan_seconds: float,
        *,
        may_delete: MayDelete,
        expiry: ExpiryClock | None = None,
    ) -> None:
        self._objects = objects
        self._runtime = runtime
        self._expiry = expiry or UndoubtedClock(runtime)
        self._tables = tables
        self._topics = topics
        self._orphan_seconds = orphan_seconds
        self._may_delete = may_delete

    async def run(self, *, dry_run: bool = False) -> MetadataCollection:
        """List first, then ask the tables: what is listed, old, and not in use then, never will be."""
        seen = MetadataCollection(held=await self._may_delete())
        if seen.held is not None:
            _log.error(HELD, of="metadata of tables", reason=seen.held)
            return seen
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            return seen  # while the clock is doubted, every file may look old
        oldest_ms = now_ms - int(self._orphan_seconds * 1000)
        by_topic: dict[TopicTable, list[str]] = {}
        async for info in self._objects.list(TABLES_PREFIX):
            parsed = parse_metadata_path(info.path)
            if parsed is not None:
                seen.listed += 1
                if info.modified_ms <= oldest_ms:
                    by_topic.setdefault(TopicTable(*parsed), []).append(info.path)
        deleted = DeletionSummary("metadata of tables")
        try:
            for topic, paths in by_topic.items():
                try:
                    needed = await self._needed(topic)
                except Exception as error:
                    if not isinstance(error, (TablesError, MetadataError)):
                        self._runtime.background.report("collect metadata of tables", error)
                    _log.warning("metadata of a table not collected", topic=topic.topic, error=str(error))
                    needed = None
                if needed is None:
                    seen.undecided += len(paths)
                    continue
                for path in sorted(set(paths) - needed):
                    if dry_run or await self._delete(path):
                        seen.deleted += 1
                        if not dry_run:
                            deleted.add(path)
        finally:
            deleted.say()
        return seen

    async def _needed(self, topic: TopicTable) -> set[str] | None:
        """The metadata files that the table needs; None if that is not known."""
        needed = await self._tables.live_metadata(topic)
        if needed is not None:
            return needed
        gone = (await self._topics.live()).are_without(topic.topic, topic.topic_id)
        return set() if gone else None

    async def _delete(self, path: str) -> bool:
        try:
            await self._objects.delete(path)
        except ObjectError as error:
            _log.warning("metadata file not deleted", path=path, error=str(error))
            return False
        return True
