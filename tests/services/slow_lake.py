"""Compactors whose catalog and object store are far away, on the simulation's clock.

Every request is counted and takes its time. The tables are real ones of Iceberg, in a SQL catalog that is as
far as a REST catalog: a load and a commit are a request each, and metadata.json is the catalog's own affair.
Compacted files are written without a network: that is Spark's.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dray.log.stream_store import StreamStore
from dray.objects.contract import ObjectInfo
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.model import Deliver, Progress, Unit, UnitAnswer
from dray.tables.compaction.planning.shares import TopicShare
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray.tables.iceberg.local_files import LocalFiles
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.sql_catalog import OnceReadingSqlCatalog
from dray.tables.iceberg.tables import IcebergTables
from dray_simulation.kernel.runtime import SimulatedRuntime
from tests.services import room_settings
from tests.services.compaction_cluster import DOMAINS, Cluster
from tests.simulation.scripted import ScriptedObjects, ScriptedStore

T = TypeVar("T")

_PAGE = 1000


@dataclass
class Requests:
    """By kind, since it was last taken."""

    seconds: float = 0.03
    counts: Counter[str] = field(default_factory=Counter)

    def take(self) -> Counter[str]:
        taken, self.counts = self.counts, Counter()
        return taken


class SlowRuntime:
    """What is done in a thread takes as long as the requests that it makes, one after the other."""

    def __init__(self, runtime: SimulatedRuntime, requests: Requests) -> None:
        self._runtime = runtime
        self._requests = requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        before = self._requests.counts.total()
        try:
            return function(*arguments)
        finally:
            made = self._requests.counts.total() - before
            await asyncio.sleep(made * self._requests.seconds)


class SlowObjects(ScriptedObjects):
    def __init__(self, runtime: SimulatedRuntime, cluster: Cluster, requests: Requests) -> None:
        super().__init__(runtime, cluster.bucket)
        self._requests = requests

    async def _travel(self, kind: str) -> None:
        self._requests.counts[kind] += 1
        await asyncio.sleep(self._requests.seconds)

    async def head(self, path: str) -> ObjectInfo:
        await self._travel("head object")
        return await super().head(path)

    async def delete(self, path: str) -> None:
        await self._travel("delete object")
        await super().delete(path)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        number = 0
        async for info in super().list(prefix):
            if number % _PAGE == 0:
                await self._travel("list objects")
            number += 1
            yield info


@contextmanager
def slow_files(requests: Requests) -> Iterator[None]:
    """Count what the library asks of files and of the catalog."""
    calls: tuple[tuple[type, str], ...] = (
        (LocalFiles, "new_input"),
        (LocalFiles, "new_output"),
        (LocalFiles, "delete"),
        (OnceReadingSqlCatalog, "load_table"),
        (OnceReadingSqlCatalog, "commit_table"),
        (OnceReadingSqlCatalog, "list_tables"),
    )
    words = {"new_input": "read", "new_output": "write", "delete": "delete"}

    def counted(owner: type, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            if owner is LocalFiles:
                if not str(arguments[0]).endswith(".metadata.json"):
                    requests.counts[f"{words[name]} file"] += 1
                return inner(self, *arguments, **options)
            before = Counter(requests.counts)
            try:
                return inner(self, *arguments, **options)
            finally:  # what a commit does within is the server's
                requests.counts = before
                requests.counts[name.replace("_", " ")] += 1

        return call

    # Some are inherited, and are so again afterwards: pytest's own patches know that.
    with pytest.MonkeyPatch.context() as patched:
        for owner, name in calls:
            patched.setattr(owner, name, counted(owner, name, getattr(owner, name)))
        yield


class TimedWriter(LocalUnitWriter):
    """Knows how much processor time went into files."""

    seconds = 0.0

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, deliver: Deliver | None = None
    ) -> list[UnitAnswer]:
        started = time.process_time()
        try:
            return await super().write(units, progress, deliver)
        finally:
            self.seconds += time.process_time() - started


class SlowLake:
    """Several compactors, which share topics, over one catalog and one bucket."""

    def __init__(self, folder: Path, compactors: int, settings: CompactionSettings, seconds: float) -> None:
        self.requests = Requests(seconds)
        self.cluster = Cluster()
        self._folder = folder
        self._tables: list[IcebergTables] = []
        self.writers: list[TimedWriter] = []
        names = [f"compactor-{number}" for number in range(compactors)]
        self.compactors = [
            self._compactor(number, TopicShare(name, [each for each in names if each != name]), settings)
            for number, name in enumerate(names)
        ]

    def _compactor(self, number: int, share: TopicShare, settings: CompactionSettings) -> Compactor:
        cluster, runtime = self.cluster, SimulatedRuntime(100 + number)
        store = ScriptedStore(runtime, cluster.state, cluster.limits)
        tables = IcebergTables(
            CatalogSettings("sql", f"sqlite:///{self._folder / 'catalog.sqlite'}", "lake"),
            locations(f"file:{self._folder / 'objects'}", {}, {}),
            "cluster-one",
            SlowRuntime(runtime, self.requests),
        )
        self._tables.append(tables)
        self.writers.append(TimedWriter(ScriptedObjects(runtime, cluster.bucket), runtime))
        return Compactor(
            CompactorStores(
                StreamStore(store, DOMAINS, cluster.settings.producer_expiry_ms),
                SlowObjects(runtime, cluster, self.requests),
                cluster.may_delete,
            ),
            runtime,
            self.writers[-1],
            tables,
            cluster.topics,
            settings,
            room_settings.log(),
            share=lambda: share,
        )

    async def close(self) -> None:
        for tables in self._tables:
            await tables.close()

    async def topics(self, count: int, partitions: int) -> None:
        for number in range(count):
            await self.cluster.topic(f"topic-{number:05}", partitions)

    async def produce(self, topics: int | None = None) -> None:
        """A batch into every partition."""
        for topic in self.cluster.topics.topics[:topics]:
            for stream in topic.streams:
                await self.cluster.append(stream, b"a value of a record")

    async def cycle(self) -> list[CycleSummary]:
        return await asyncio.gather(*[each.run_cycle(everything=False) for each in self.compactors])

    async def collect(self) -> list[CycleSummary]:
        async def one(compactor: Compactor) -> CycleSummary:
            await compactor.collection.run_once()
            summary = CycleSummary()
            compactor.collection.tell(summary)
            return summary

        return await asyncio.gather(*map(one, self.compactors))
