"""What is done now and then rather than in every round: tables held against the log, garbage collected.

Each part is separate and may be begun anew at any time. A catalog that does not answer costs the topics
concerned their turn, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable
from uuid import UUID

import structlog

from dray.compaction.file_collector import FileCollector
from dray.compaction.job_board import JobBoard
from dray.compaction.metadata_collector import MetadataCollector
from dray.compaction.raised_starts import RaisedStarts
from dray.compaction.settings import CompactionSettings
from dray.compaction.summary import Cause, CycleSummary, StalledStream
from dray.compaction.table_keeper import TableKeeper, table_of
from dray.log.deletions import HELD, MayDelete
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectStore
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.tables.contract import Tables, TablesError, TopicTable
from dray.topics.live import TopicSource
from dray.topics.model import Topic

_log = structlog.get_logger(__name__)


class Upkeep:
    def __init__(
        self,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        tables: Tables | None,
        topics: TopicSource,
        settings: CompactionSettings,
        *,
        may_delete: MayDelete,
        expiry: ExpiryClock | None = None,
        starts: RaisedStarts | None = None,
    ) -> None:
        self._starts = starts or RaisedStarts()
        self._runtime = runtime
        self._expiry = expiry or UndoubtedClock(runtime)
        self._store = store
        self._tables = tables
        self._topics = topics
        self._settings = settings
        self._may_delete = may_delete
        self._board = JobBoard(store, runtime)
        self._keeper = None if tables is None else TableKeeper(store, runtime, tables)
        self._metadata = (
            None
            if tables is None
            else MetadataCollector(
                objects,
                runtime,
                tables,
                topics,
                settings.metadata_orphan_seconds,
                may_delete=may_delete,
                expiry=self._expiry,
            )
        )
        self.files = FileCollector(
            store,
            objects,
            runtime,
            tables,
            settings.grace_seconds,
            may_delete=may_delete,
            topics=topics,
            brake=settings.brake,
        )

    async def run(self, summary: CycleSummary) -> None:
        if self._tables is not None:
            await self.drop_dead_tables(summary)
            topics = (await self._topics.live()).known
            await self.follow(topics, summary)
            await self._maintain(self._tables, topics, summary)
        await self.collect(summary)

    async def collect(self, summary: CycleSummary, *, dry_run: bool = False) -> None:
        """Collect files, and metadata of tables, that nothing needs. A dry run only counts them."""
        collected = await self.files.run(dry_run=dry_run)
        summary.files_deleted += collected.deleted
        summary.files_pending += collected.pending
        summary.held = summary.held or collected.held
        summary.braked = summary.braked or collected.braked
        if self._metadata is not None:
            metadata = await self._metadata.run(dry_run=dry_run)
            summary.metadata_deleted += metadata.deleted
            summary.held = summary.held or metadata.held

    async def follow(self, topics: list[Topic], summary: CycleSummary) -> None:
        """Let the tables of these topics follow the log."""
        keeper = self._keeper
        if keeper is None:
            return

        async def hold(topic: Topic) -> None:
            raised = self._starts.of(topic.streams)
            gone = await keeper.remove_expired(topic)
            summary.table_files_removed += gone or 0
            if gone is not None:
                self._starts.hold(raised)
            if topic.settings.iceberg_enabled and gone is not None:
                summary.table_files_restored += await keeper.restore(topic)

        for topic in topics:
            await self._try(topic.name, hold(topic), summary)

    async def remove_deleted(self, topics: list[Topic], summary: CycleSummary) -> None:
        """Let whole files leave the tables whose streams' starts were raised above them. Nothing else of the
        tables is looked at: DeleteRecords may come often."""
        keeper = self._keeper
        if keeper is None:
            return

        async def remove(topic: Topic, raised: dict[int, int]) -> None:
            gone = await keeper.remove_expired(topic, raised)
            summary.table_files_removed += gone or 0
            if gone is not None:
                self._starts.hold(raised)

        for topic in topics:
            raised = self._starts.of(topic.streams)
            if raised and topic.settings.iceberg_enabled:
                await self._try(topic.name, remove(topic, raised), summary)

    async def drop_dead_tables(self, summary: CycleSummary, *, dry_run: bool = False) -> None:
        """The tables first, then the topics: a table is never older than its topic. The table of a topic that
        cannot be read stays. A topic that is unknown, even as a deleted one, may be younger than the backup
        that this metadata store was restored from: many tables of such topics are held by the brake."""
        tables = self._tables
        if tables is None or not self._settings.drop_tables:
            return

        if await self._is_held("tables", summary):
            return

        async def drop() -> None:
            there = await tables.topics()
            live = await self._topics.live()
            names = {topic.name for topic in live.known}
            dead = [table for table in there if live.are_without(table.topic, table.topic_id)]
            deleted = await self._deleted_topics() if dead else set()
            unproven = [table for table in dead if table.topic_id not in deleted and table.topic not in names]
            if self._settings.brake.stops(len(unproven), len(there)):
                summary.braked = self._settings.brake.line("tables", len(unproven), len(there))
                _log.error(HELD, of="tables", reason=summary.braked)
                dead = [table for table in dead if table not in unproven]
            for table in dead:
                if dry_run or await tables.drop(table):
                    summary.tables_dropped += 1
                    if not dry_run:
                        _log_dropped(table)

        await self._try("tables of deleted topics", drop(), summary)

    async def _is_held(self, what: str, summary: CycleSummary) -> bool:
        reason = await self._may_delete()
        if reason is not None:
            summary.held = reason
            _log.error(HELD, of=what, reason=reason)
        return reason is not None

    async def _deleted_topics(self) -> set[UUID]:
        """The topics that the metadata still knows to be deleted."""
        prefix = keys.DELETED_TOPICS
        found = await self._store.scan_in(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix))
        return {topic_id for record in found if (topic_id := keys.deleted_topic_of(record.key)) is not None}

    async def _maintain(self, tables: Tables, topics: list[Topic], summary: CycleSummary) -> None:
        if await self._is_held("snapshots of tables", summary):
            return
        # The time before the jobs: what is committed by a job that begins after them is younger.
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            return  # no snapshot is old while the clock is doubted
        older_than_ms = now_ms - self._settings.snapshot_keep_ms
        await self._board.read()
        for topic in topics:
            streams = set(topic.streams)
            if streams & self._board.unreadable:
                continue  # one of their jobs may need a snapshot, and it is not known which
            unfinished = self._board.unfinished_names(streams)

            async def maintain(topic: Topic = topic, unfinished: list[str] = unfinished) -> None:
                if await tables.live_files(table_of(topic)) is not None:
                    done = await tables.maintain(table_of(topic), unfinished, older_than_ms)
                    summary.snapshots_expired += done.snapshots_expired
                    summary.metadata_deleted += done.metadata_deleted

            await self._try(topic.name, maintain(), summary)

    async def _try(self, what: str, work: Awaitable[None], summary: CycleSummary) -> None:
        try:
            await work
        except Exception as error:
            if not isinstance(error, (TablesError, MetadataError, LogError)):
                self._runtime.background.report("upkeep of tables", error)
            summary.troubles.append(StalledStream(what, -1, str(error) or type(error).__name__, Cause.TABLE))
            _log.warning("upkeep of tables interrupted", what=what, error=str(error))


def _log_dropped(table: TopicTable) -> None:
    _log.info("table of a deleted topic dropped", topic=table.topic, id=str(table.topic_id))
