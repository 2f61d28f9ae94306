"""Work that is done now and then rather than in every round: tables held against the log, garbage collected.

Each part is separate and may be begun anew at any time. A catalog that does not answer costs the topics
concerned their turn, and nothing else. Topics are gone over side by side. One whose table nobody committed to
since it was last held against the log, and whose streams had no job since, costs one question to the catalog:
every change of an index is a job's.

Rounds have a schedule of their own, beside the cycles of compaction. A round of many tables takes minutes,
and compaction does not wait for it. Two that go on at once are no worse than two compactors: neither
believes anything that the other may change. The results of a round are told with the next cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from dray.base.runtime import ExpiryClock, KeptTask, Runtime, UndoubtedClock, keep_running
from dray.broker.topics.live import TopicSource
from dray.broker.topics.model import Topic, TopicSettings
from dray.log.life.deletions import HELD, MayDelete
from dray.log.life.lost_objects import LostObjects
from dray.log.outside_table import OWN_STORE
from dray.log.stream_store import StreamStore
from dray.log.types import OutsideFault
from dray.metadata import keys
from dray.objects.contract import ObjectStore
from dray.tables.compaction.left_tables import LeftTables
from dray.tables.compaction.planning.job_board import JobBoard
from dray.tables.compaction.planning.shares import WHOLE, ShareNow, TopicShare
from dray.tables.compaction.planning.stream_memory import RaisedStarts
from dray.tables.compaction.round import FORESEEN
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import Cause, CycleSummary, StalledStream
from dray.tables.compaction.table_keeper import TableKeeper, table_of
from dray.tables.compaction.upkeep.file_collector import REST_SECONDS, FileCollector, MetadataCollector
from dray.tables.compaction.upkeep.lost_files import LostFiles
from dray.tables.contract import TableChanged, Tables, TablesUnavailable, TopicTable

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Resting:
    """A table that says what the log says, as it was seen: its version, its streams' jobs, its settings."""

    seen: tuple[str | None, tuple[int, ...], TopicSettings]
    at: float
    oldest_ms: int | None
    """Of the snapshots that go some day."""

    def is_due(self, older_than_ms: int | None, now: float) -> bool:
        if now - self.at >= REST_SECONDS:
            return True
        return self.oldest_ms is not None and older_than_ms is not None and self.oldest_ms < older_than_ms


@dataclass(frozen=True, slots=True)
class _Followed:
    error: Exception | None  # what was in the way
    quiet: bool
    """The table was found to say what the log says, and nothing had to be changed."""


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
        self._resting: dict[UUID, _Resting] = {}  # by topic id
        lost = LostObjects(store, partial(_own_store, objects), may_delete, runtime)
        self._lost = LostFiles(store, lost, topics, runtime.background)
        self._keeper = None if tables is None else TableKeeper(store, objects, runtime, tables)
        self._left = None
        if tables is not None and self._keeper is not None:
            self._left = LeftTables(store, runtime, tables, self._keeper)
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
                at_once=settings.topics_at_once,
            )
        )
        self.files = FileCollector(
            store,
            objects,
            runtime,
            tables,
            settings.collect_grace,
            may_delete=may_delete,
            topics=topics,
            brake=settings.brake,
            commit_seconds=settings.metadata_orphan_seconds,
            at_once=settings.topics_at_once,
        )
        self._turn = 0

    async def run(
        self, summary: CycleSummary, share: TopicShare = WHOLE, troubled: Collection[tuple[str, int]] = ()
    ) -> None:
        """`troubled`: topics and partitions that could not be compacted."""
        if self._tables is not None:
            await self.drop_dead_tables(summary)
            topics = [each for each in (await self._topics.live()).known if share.has(each.topic_id)]
            await self._keep(self._tables, topics, summary)
        await self.collect(summary, share, troubled)

    async def collect(
        self,
        summary: CycleSummary,
        share: TopicShare = WHOLE,
        troubled: Collection[tuple[str, int]] = (),
        *,
        dry_run: bool = False,
    ) -> None:
        """Collect files, and metadata of tables, that nothing needs. A dry run only counts them."""
        collected = await self.files.run(share, dry_run=dry_run)
        if collected.held is None:
            units = {(one.topic, one.partition) for one in summary.troubles if one.cause is Cause.UNIT}
            summary.lost = await self._lost.find(collected.paths, units.union(troubled), share)
        summary.files_deleted += collected.deleted
        summary.files_pending += collected.pending
        summary.held = summary.held or collected.held
        summary.braked = summary.braked or collected.braked
        if self._metadata is not None:
            metadata = await self._metadata.run(share, dry_run=dry_run)
            summary.metadata_deleted += metadata.deleted
            summary.held = summary.held or metadata.held

    async def follow(self, topics: list[Topic], summary: CycleSummary) -> None:
        """Let the tables of these topics follow the log."""
        if self._keeper is None or not topics:
            return
        board = JobBoard(self._store, self._runtime)
        await board.read()

        async def follow(topic: Topic) -> None:
            await self._follow(topic, board, summary)

        await self._each(topics, follow)

    async def catch_up(self, topics: list[Topic], summary: CycleSummary) -> None:
        """Of topics whose log went on without their tables: each is tried in each cycle. If the catalog does
        not answer, one of them is enough to see that."""
        board = JobBoard(self._store, self._runtime)
        await board.read()
        first = self._turn % len(topics)
        for topic in topics[first:] + topics[:first]:
            if isinstance((await self._follow(topic, board, summary)).error, TablesUnavailable):
                self._turn += 1  # the next cycle asks for another
                return

    async def _each(self, topics: list[Topic], act: Callable[[Topic], Awaitable[None]]) -> None:
        limit = asyncio.Semaphore(self._settings.topics_at_once)

        async def one(topic: Topic) -> None:
            async with limit:
                await act(topic)

        await asyncio.gather(*map(one, topics))

    async def _follow(self, topic: Topic, board: JobBoard, summary: CycleSummary) -> _Followed:
        keeper, left, changes = self._keeper, self._left, 0
        if keeper is None or left is None:
            return _Followed(None, quiet=True)

        async def hold() -> None:
            nonlocal changes
            if any(board.has_left_table(stream) for stream in topic.streams):
                changes += 1
                caught_up = await left.catch_up(topic)
                summary.table_files_restored += caught_up or 0
                summary.waiting += caught_up is None
            raised = self._starts.of(topic.streams)
            gone = await keeper.remove_expired(topic)
            summary.table_files_removed += gone or 0
            if gone is None:
                changes += 1
                return
            self._starts.hold(raised)
            restored = await keeper.restore(topic) if topic.settings.iceberg_enabled else 0
            summary.table_files_restored += restored or 0
            changes += (gone, restored) != (0, 0)

        try:
            error = await self._try(topic.name, hold(), summary, TableChanged)
        except TableChanged as changed:
            if not await self.put_back(topic, summary, changed):
                return _Followed(changed, quiet=False)
            changes += 1
            error = await self._try(topic.name, hold(), summary)
        return _Followed(error, quiet=error is None and not changes)

    async def put_back(
        self, topic: Topic, summary: CycleSummary, changed: TableChanged | None = None
    ) -> bool:
        """Put the log's files back into a table that another writer changed, where that loses nothing or is
        what the config asks for. True if that was done."""
        keeper, done = self._keeper, False

        async def look() -> None:
            nonlocal done
            if keeper is None or not topic.settings.iceberg_enabled:
                return
            found = changed or await keeper.why_changed(topic)
            if found is not None and found.rows_changed and not self._settings.revert_foreign_rows:
                raise found
            done = found is not None and await keeper.put_back(topic)

        await self._try(topic.name, look(), summary)
        return done

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

    async def _keep(self, tables: Tables, topics: list[Topic], summary: CycleSummary) -> None:
        """Hold the tables against the log, and expire their snapshots."""
        # The time before the jobs: what is committed by a job that begins after them is younger.
        now_ms = None if await self._is_held("snapshots of tables", summary) else self._expiry.now_ms()
        # No snapshot is old while the clock is doubted.
        older_than_ms = None if now_ms is None else now_ms - self._settings.snapshot_keep_ms
        board = JobBoard(self._store, self._runtime)  # of this moment, whoever else reads one
        await board.read()
        known, self._resting = self._resting, {}

        async def keep(topic: Topic) -> None:
            resting = known.get(topic.topic_id)
            if resting is not None:
                self._resting[topic.topic_id] = resting  # until it is seen to have changed

            async def look() -> None:
                await self._keep_one(tables, topic, board, older_than_ms, summary)

            await self._try(topic.name, look(), summary)

        await self._each(topics, keep)

    async def _keep_one(
        self, tables: Tables, topic: Topic, board: JobBoard, older_than_ms: int | None, summary: CycleSummary
    ) -> None:
        table, started = table_of(topic), self._runtime.monotonic()
        jobs = board.versions(topic.streams)
        seen = await tables.version(table), jobs, topic.settings  # before anything is looked at
        resting = self._resting.pop(topic.topic_id, None)
        if (
            resting is not None
            and resting.seen == seen
            and not resting.is_due(older_than_ms, started)
            and not self._starts.of(topic.streams)
        ):
            self._resting[topic.topic_id] = resting
            return
        summary.tables_kept += 1
        followed = await self._follow(topic, board, summary)
        # One of the jobs may need a snapshot, and where one cannot be read it is not known which.
        if older_than_ms is None or board.unreadable.intersection(topic.streams):
            return
        unfinished = board.unfinished_names(set(topic.streams))
        done = await tables.maintain(table, unfinished, older_than_ms)
        summary.snapshots_expired += done.snapshots_expired
        summary.metadata_deleted += done.metadata_deleted
        if followed.quiet and not unfinished:
            self._resting[topic.topic_id] = _Resting(seen, started, done.oldest_ms)

    async def _try(
        self,
        what: str,
        work: Awaitable[None],
        summary: CycleSummary,
        passed: type[Exception] | tuple[()] = (),
    ) -> Exception | None:
        """The error that came in the way. `passed`: errors that the caller takes care of."""
        try:
            await work
            return None
        except passed:
            raise
        except Exception as error:
            if not isinstance(error, FORESEEN):
                self._runtime.background.report("upkeep of tables", error)
            summary.troubles.append(StalledStream(what, -1, str(error) or type(error).__name__, Cause.TABLE))
            _log.warning("upkeep of tables interrupted", what=what, error=str(error))
            return error


def _own_store(objects: ObjectStore, name: str) -> ObjectStore:
    if name != OWN_STORE:
        raise OutsideFault(f"collection does not ask the foreign store {name!r}")
    return objects


def _log_dropped(table: TopicTable) -> None:
    _log.info("table of a deleted topic dropped", topic=table.topic, id=str(table.topic_id))


# --- their schedule

_NAME = "collect files and tables"
_LEAST_SECONDS = 0.1


class CollectionRounds:
    def __init__(self, upkeep: Upkeep, runtime: Runtime, pause_seconds: float, share: ShareNow) -> None:
        self._upkeep = upkeep
        self._runtime = runtime
        self._pause = pause_seconds
        self._share = share
        self._troubled: set[tuple[str, int]] = set()
        self._done = CycleSummary()
        self._task: KeptTask | None = None
        self._next = runtime.monotonic()

    @property
    def is_due(self) -> bool:
        """Is a cycle to collect, since there is no schedule and the time has come?"""
        return self._task is None and self._runtime.monotonic() >= self._next

    def start(self) -> None:
        self._task = keep_running(self._runtime, _NAME, self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    def tell(self, cycle: CycleSummary) -> None:
        """Add to a cycle what was collected since the last one, and take from it what could not be compacted:
        all that this rests on is looked for."""
        self._troubled |= {(one.topic, one.partition) for one in cycle.troubles if one.cause is Cause.UNIT}
        done, self._done = self._done, CycleSummary()
        cycle.add_collection(done)

    async def _run(self) -> None:
        while True:
            await self.run_once()
            await self._runtime.sleep(max(_LEAST_SECONDS, self._pause))

    async def run_once(self) -> None:
        """One round. The results of an interrupted one are told as well."""
        summary = CycleSummary()
        try:
            await self.collect(summary, self._share())
        except Exception as error:
            if not isinstance(error, FORESEEN):
                self._runtime.background.report(_NAME, error)
            _log.warning("collection interrupted", error=str(error) or type(error).__name__)
        finally:
            self._done.add_collection(summary)

    async def collect(self, summary: CycleSummary, share: TopicShare) -> None:
        troubled, self._troubled = self._troubled, set()
        started = self._runtime.monotonic()
        await self._upkeep.run(summary, share, troubled)
        summary.collected = True
        now = self._runtime.monotonic()
        summary.collection_seconds, self._next = now - started, now + self._pause
