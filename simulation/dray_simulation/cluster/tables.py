"""Tables in memory: the port that compaction asks, with a catalog that can be made to fail.

The catalog is what the tables' clients share. A commit asserts the snapshot that its table was loaded at and
the table's UUID, and it either happens as a whole or not at all; everything else is the clients' business,
and they follow the same order as the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from dray.base.runtime import Runtime
from dray.tables.contract import (
    CommitOutcome,
    LogFiles,
    MaintenanceResult,
    StillOurs,
    TableChange,
    TableChanged,
    TableFile,
    TableMissing,
    TableRefused,
    TableState,
    TablesUnavailable,
    TopicTable,
)
from dray_simulation.kernel.runtime import SimulatedRuntime
from dray_simulation.kernel.weather import UnexpectedErrors, Weather

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    number: int
    made_ms: int
    jobs: frozenset[str]
    files: dict[str, TableFile]  # by path


@dataclass(slots=True)
class Table:
    topic: TopicTable
    table_uuid: UUID
    snapshots: list[Snapshot]  # oldest first, never empty

    @property
    def newest(self) -> Snapshot:
        return self.snapshots[-1]

    def jobs(self) -> set[str]:
        return {job for snapshot in self.snapshots for job in snapshot.jobs}

    def loaded(self) -> Table:
        return Table(self.topic, self.table_uuid, list(self.snapshots))


@dataclass(slots=True)
class MemoryCatalog:
    """`tables` by the topic's name, as real catalogs have them."""

    tables: dict[str, Table] = field(default_factory=dict)
    commits: int = 0
    away: bool = False
    held: set[str] = field(default_factory=set)  # topics whose table others have changed: it is not written
    _made: int = 0

    def create(self, topic: TopicTable, now_ms: int) -> bool:
        """False if something has the name already."""
        if topic.topic in self.tables:
            return False
        self._made += 1
        self.tables[topic.topic] = Table(
            topic, UUID(int=self._made), [Snapshot(self._made, now_ms, frozenset(), {})]
        )
        return True

    def commit(self, on: Table, changes: Sequence[TableChange], now_ms: int) -> bool:
        """False if the table is not at the snapshot that `on` was loaded at."""
        table = self.tables.get(on.topic.topic)
        if table is None or (table.table_uuid, table.newest.number) != (on.table_uuid, on.newest.number):
            return False
        files = dict(table.newest.files)
        for change in changes:
            for path in change.removed:
                files.pop(path, None)
            for file in change.added:
                if file.path in files:  # a real table would take it, and show its records twice
                    raise ValueError(f"{file.path} is in the table already")
                files[file.path] = file
        self._made += 1
        self.commits += 1
        jobs = frozenset(change.job for change in changes)
        table.snapshots.append(Snapshot(self._made, now_ms, jobs, files))
        return True

    def drop(self, topic: TopicTable) -> bool:
        table = self.tables.get(topic.topic)
        if table is None or table.topic.topic_id != topic.topic_id:
            return False
        del self.tables[topic.topic]
        return True

    def expire(self, name: str, unfinished: Sequence[str], older_than_ms: int) -> int:
        table = self.tables.get(name)
        if table is None:
            return 0
        kept = [
            snapshot
            for snapshot in table.snapshots[:-1]
            if snapshot.made_ms >= older_than_ms or snapshot.jobs & set(unfinished)
        ]
        expired = len(table.snapshots) - 1 - len(kept)
        table.snapshots = [*kept, table.newest]
        return expired


class MemoryTables:
    """A client of a `MemoryCatalog`. Kinds of calls: create, load, commit, expire, topics, drop."""

    def __init__(self, catalog: MemoryCatalog, runtime: Runtime) -> None:
        self.catalog = catalog
        self._runtime = runtime

    async def call(self, kind: str, name: str, act: Callable[[], T]) -> T:  # noqa: ARG002 - for those that fail
        """Over the network, to the catalog."""
        await self._runtime.sleep(0)
        return act()

    async def ensure(self, topic: TopicTable) -> TableState:
        def create() -> bool:
            return self.catalog.create(topic, self._runtime.wall_ms())

        created = False
        if await self._find(topic.topic) is None:
            created = await self.call("create", topic.topic, create)
        table = await self._load(topic)
        self._check(topic)
        _check_form(table, topic)
        return TableState(table.table_uuid, f"memory:{topic.topic}", created)

    async def version(self, topic: TopicTable) -> str | None:
        table = await self._find(topic.topic)
        if table is None or table.topic.topic_id != topic.topic_id:
            return None
        return f"{table.table_uuid} {[snapshot.number for snapshot in table.snapshots]}"

    async def guard(self, topic: TopicTable) -> bool:  # noqa: ARG002
        """Nobody changes their properties."""
        return False

    async def commit(
        self, topic: TopicTable, changes: Sequence[TableChange], still_ours: StillOurs
    ) -> dict[str, CommitOutcome]:
        table = await self._load(topic)
        self._check(topic)
        _check_form(table, topic)
        ours = [change for change in changes if await still_ours(change)]
        outcomes = {change.job: CommitOutcome.NOT_OURS for change in changes}
        found = table.jobs()
        outcomes |= {change.job: CommitOutcome.COMMITTED for change in ours if change.job in found}
        rest = [change for change in ours if change.job not in found]
        if rest:
            if await self._commit(table, rest):
                outcome = CommitOutcome.COMMITTED
            else:
                outcome = CommitOutcome.LOST_RACE
            outcomes |= {change.job: outcome for change in rest}
        return outcomes

    async def _commit(self, table: Table, changes: list[TableChange]) -> bool:
        def commit() -> bool:
            return self.catalog.commit(table, changes, self._runtime.wall_ms())

        try:
            return await self.call("commit", table.topic.topic, commit)
        except TablesUnavailable:
            # It may have happened, or happen yet: look, and let the next cycle go on from what is there.
            again = await self._load(table.topic)
            if all(change.job in again.jobs() for change in changes):
                return True
            raise

    async def put_back(self, topic: TopicTable, change: str, files: LogFiles) -> bool:  # noqa: ARG002
        """Nobody else writes these tables."""
        return False

    async def committed(self, topic: TopicTable, jobs: Sequence[str]) -> set[str]:
        table = await self._find(topic.topic)
        if table is None or table.topic.topic_id != topic.topic_id:
            return set()
        return table.jobs() & set(jobs)

    async def live_files(self, topic: TopicTable) -> set[str] | None:
        table = await self._find(topic.topic)
        if table is None or table.topic.topic_id != topic.topic_id:
            return None
        return {path for snapshot in table.snapshots for path in snapshot.files}

    async def current_files(self, topic: TopicTable) -> set[str] | None:
        table = await self._find(topic.topic)
        if table is None or table.topic.topic_id != topic.topic_id:
            return None
        return set(table.newest.files)

    async def live_metadata(self, topic: TopicTable) -> set[str] | None:
        """It has no files at all."""
        return None if await self.live_files(topic) is None else set()

    async def maintain(
        self, topic: TopicTable, unfinished_jobs: Sequence[str], older_than_ms: int
    ) -> MaintenanceResult:
        def expire() -> MaintenanceResult:
            expired = self.catalog.expire(topic.topic, unfinished_jobs, older_than_ms)
            left = (
                self.catalog.tables[topic.topic].snapshots[:-1] if topic.topic in self.catalog.tables else []
            )
            return MaintenanceResult(expired, 0, left[0].made_ms if left else None)

        if await self.live_files(topic) is None:
            return MaintenanceResult()
        self._check(topic)
        return await self.call("expire", topic.topic, expire)

    async def topics(self) -> list[TopicTable]:
        return await self.call("topics", "", lambda: [table.topic for table in self.catalog.tables.values()])

    async def drop(self, topic: TopicTable) -> bool:
        return await self.call("drop", topic.topic, lambda: self.catalog.drop(topic))

    def _check(self, topic: TopicTable) -> None:
        if topic.topic in self.catalog.held:
            raise TableChanged(f"another writer changed the table of {topic.topic}", rows_changed=True)

    async def _find(self, name: str) -> Table | None:
        def load() -> Table | None:
            table = self.catalog.tables.get(name)
            return None if table is None else table.loaded()

        return await self.call("load", name, load)

    async def _load(self, topic: TopicTable) -> Table:
        table = await self._find(topic.topic)
        if table is None:
            raise TableMissing(f"there is no table of topic {topic.topic}")
        if table.topic.topic_id != topic.topic_id:
            raise TableRefused(f"the table of {topic.topic} is that of another topic of the same name")
        return table


def _check_form(table: Table, topic: TopicTable) -> None:
    if table.topic != topic:
        raise TableRefused(f"the table of {topic.topic} is partitioned otherwise than its topic")


class FaultyTables(MemoryTables):
    """In the same weather as the other stores of its process."""

    def __init__(
        self,
        catalog: MemoryCatalog,
        runtime: SimulatedRuntime,
        weather: Weather,
        unexpected: UnexpectedErrors | None = None,
    ) -> None:
        super().__init__(catalog, runtime)
        self._unexpected = unexpected or UnexpectedErrors(weather)
        self._process = runtime
        self._weather = weather
        self.cut_off = False

    async def call(self, kind: str, name: str, act: Callable[[], T]) -> T:  # noqa: ARG002 - all alike
        weather = self._weather
        await self._travel()
        if self.catalog.away or weather.happens(weather.refused):
            raise TablesUnavailable("the catalog is away")
        answer: T | None = None
        why = ""
        chance = weather.random.random()
        if (chance := chance - weather.lost) < 0:
            why = "the request was lost"
        elif (chance := chance - weather.late) < 0 and kind == "commit":
            weather.arrive_later(act)
            why = "the request timed out"
        else:
            answer = act()
            if (chance := chance - weather.unanswered) < 0:
                why = "the reply was lost"
            elif chance - weather.twice < 0 and kind == "commit":
                weather.arrive_later(act)
        await self._travel()
        if why:
            weather.counts[f"catalog: {why}"] += 1
            raise TablesUnavailable(f"the catalog: {why}")
        return answer  # type: ignore[return-value]

    async def _travel(self) -> None:
        await self._weather.delay()
        await self._process.awake()
        if self.cut_off:
            raise asyncio.CancelledError
        self._unexpected.maybe_raise()
