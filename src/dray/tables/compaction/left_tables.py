"""Bringing tables up to logs that went on without them.

A stream leaves its table when a job waited for too long for it (`LeftTable`). From then on its new records
get files that no commit names, and nothing is merged. Here its table is made what the log is, in one commit:
were what a merge took away and what it made to come one after the other, queries would miss rows, or see them
twice.

Commits of jobs that went on may still be on their way, of compactors that stood still or through a slow
network. Each asserts the snapshot that it was made for. So a commit is made here even where nothing differs:
it stops all before it. Only then is it forgotten that the stream had left its table; until then the collector
keeps files that none of the three names (`file_collector.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.broker.topics.model import Topic
from dray.log.jobs.machine import CaughtUp, Job, JobState, advance
from dray.log.stream_store import StreamStore, Versioned
from dray.tables.compaction.paths import parse_file_path
from dray.tables.compaction.table_keeper import GONE, TableKeeper, described, new_name, table_of
from dray.tables.contract import CommitOutcome, StillOurs, TableChange, TableFile, Tables, TopicTable

_log = structlog.get_logger(__name__)

MOST_FILES: Final = 10_000
"""So many are added by one commit."""


@dataclass(frozen=True, slots=True)
class TableLag:
    """How the table differs from the log of a stream that went on without it."""

    stream: int
    job: Versioned[Job]  # DONE, as it was before the difference was looked for
    missing: tuple[TableFile, ...]
    gone: frozenset[str]  # in the table, and not in the log any more
    more: bool  # missing files that did not fit

    def is_merged(self, file: TableFile) -> bool:
        """Does the file hold rows that the table has in others?"""
        left = self.job.value.left_table
        return left is not None and left.merged and file.written.job == left.job

    def changes(self, name: str) -> list[TableChange]:
        """Rows that were only written again, and deleted ones, apart from new ones: readers that follow the
        table pass over the former."""
        name = f"{name}-{self.stream}"
        merged = tuple(file for file in self.missing if self.is_merged(file))
        new = tuple(file for file in self.missing if not self.is_merged(file))
        found = [TableChange(f"{name}-new", new)] if new else []
        if merged or self.gone:
            found.append(TableChange(f"{name}-old", merged, tuple(sorted(self.gone))))
        return found or [TableChange(name)]


class LeftTables:
    def __init__(self, store: StreamStore, runtime: Runtime, tables: Tables, keeper: TableKeeper) -> None:
        self._store = store
        self._runtime = runtime
        self._tables = tables
        self._keeper = keeper

    async def catch_up(self, topic: Topic) -> int | None:
        """Make the table what the log is, for the streams that have left it; how many files were added. None:
        not all of them, now."""
        table, added, more = table_of(topic), 0, True
        if topic.settings.iceberg_enabled:
            await self._tables.ensure(table)
        while more:
            current = await self._tables.current_files(table)
            if current is None and topic.settings.iceberg_enabled:
                break  # dropped just now: the next cycle makes it again
            lags = await self._lags(topic, current or set())
            done = lags if current is None else await self._commit(table, current, lags)
            for lag in done:
                added += len(lag.missing)
                if not lag.more:
                    step = advance(lag.stream, lag.job.value, CaughtUp())
                    await self._store.perform(lag.stream, lag.job, step)
            more = any(lag.more and lag.missing for lag in done)
        if added:
            _log.info("a table was brought up to its log", topic=topic.name, files=added)
        return None if await self._any_left(topic) else added

    async def _any_left(self, topic: Topic) -> bool:
        for stream in topic.streams:
            if (await self._store.job(stream)).value.left_table is not None:
                return True
        return False

    async def _lags(self, topic: Topic, current: Collection[str]) -> list[TableLag]:
        """Of the streams that have left their table, and have no job under way."""
        shown: dict[int, set[str]] = {}
        for path in current:
            parsed = parse_file_path(path)
            if parsed is not None and parsed.topic_id == topic.topic_id:
                shown.setdefault(parsed.stream, set()).add(path)
        found: list[TableLag] = []
        room = MOST_FILES
        for partition, stream in enumerate(topic.streams):
            lag = await self._lag(topic, partition, shown.get(stream, set()), room)
            if lag is not None:
                room -= len(lag.missing)
                found.append(lag)
        return found

    async def _lag(self, topic: Topic, partition: int, shown: set[str], room: int) -> TableLag | None:
        stream = topic.streams[partition]
        await self._store.barrier(stream)
        job = await self._store.job(stream)
        if job.value.left_table is None or job.value.state is not JobState.DONE:
            return None
        entries = await self._keeper.entries_of_tables(stream) if topic.settings.iceberg_enabled else []
        lacking = [entry for entry in entries if entry.path not in shown]
        missing = [described(partition, stream, entry) for entry in lacking[:room]]
        gone = frozenset(shown - await self._keeper.live_files({stream}))
        unseen = await self._keeper.not_there([file.path for file in missing])
        seen = tuple(file for file in missing if file.path not in unseen)
        lag = TableLag(stream, job, seen, gone, len(lacking) > room)
        if unseen:
            _log.error(GONE, topic=topic.name, files=len(unseen), examples=sorted(unseen)[:3])
        if any(lag.is_merged(file) for file in missing if file.path in unseen):
            return None  # what the table has of these rows may be the last copy
        return lag

    async def _commit(
        self, table: TopicTable, current: Collection[str], lags: Sequence[TableLag]
    ) -> list[TableLag]:
        """Those that are in the table now."""
        if not lags:
            return []
        name = new_name(self._runtime, "restored")
        by_change = {change.job: (lag, change) for lag in lags for change in lag.changes(name)}
        changes = [change for _, change in by_change.values()]
        outcomes = await self._tables.commit(table, changes, self._as_it_was(table, current, by_change))
        failed = {
            by_change[job][0].stream
            for job, outcome in outcomes.items()
            if outcome is not CommitOutcome.COMMITTED
        }
        return [lag for lag in lags if lag.stream not in failed]

    def _as_it_was(
        self,
        table: TopicTable,
        current: Collection[str],
        by_change: dict[str, tuple[TableLag, TableChange]],
    ) -> StillOurs:
        asked: set[str] = set()
        same = False

        async def as_it_was(change: TableChange) -> bool:
            """Asked of one change after the other, once the commit has loaded the table, and again for each
            try. As long as its job stands where it stood, the files of a stream are what they were."""
            nonlocal same
            if not asked or change.job in asked:
                asked.clear()
                same = await self._tables.current_files(table) == current
            asked.add(change.job)
            lag, _ = by_change[change.job]
            await self._store.barrier(lag.stream)
            return same and await self._store.job_version(lag.stream) == lag.job.version

        return as_it_was
