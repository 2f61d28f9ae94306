"""The whole compactor with real Iceberg tables: read back by pyiceberg, the table equals the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster

from dray.compaction.table_keeper import table_of
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray.topics.model import Topic

DAILY = {"message.timestamp.type": "LogAppendTime", "dray.iceberg.partition.by.day": "true"}

assert compaction_cluster  # its tests run on virtual time: see conftest


class Lake:
    """A cluster whose workers share a SQL catalog."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster(real_tables=self.open)
        self._opened: list[IcebergTables] = []
        self.tables = self.open(self.cluster.runtime)

    def open(self, runtime: SimulatedRuntime) -> IcebergTables:
        settings = CatalogSettings("sql", f"sqlite:///{self.folder / 'catalog.sqlite'}", "lake")
        places = locations(f"file:{self.folder / 'objects'}", {}, {})
        self._opened.append(IcebergTables(settings, places, "cluster-one", runtime))
        return self._opened[-1]

    async def close(self) -> None:
        for tables in self._opened:
            await tables.close()

    async def rows(self, topic: Topic) -> dict[int, list[tuple[int, bytes]]]:
        """What a query sees. The files are put where it looks for them."""
        for path in self.cluster.files():
            target = self.folder / "objects" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bytes(self.cluster.bucket.objects[path].data))
        table = await self.tables.load(topic.name)
        assert table is not None
        rows: dict[int, list[tuple[int, bytes]]] = {place: [] for place in range(len(topic.streams))}
        for row in table.scan().to_arrow().to_pylist():
            rows[row["partition"]].append((row["offset"], row["value"]))
        return {partition: sorted(found) for partition, found in rows.items()}

    async def check(self, topic: Topic) -> None:
        rows = await self.rows(topic)
        for partition, stream in enumerate(topic.streams):
            assert rows[partition] == await self.cluster.read(stream)


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    made = Lake(tmp_path)
    yield made
    await made.close()


async def test_a_topic_in_its_table(lake: Lake) -> None:
    cluster = lake.cluster
    topic = await cluster.topic("orders", 2, {"retention.ms": "600000"})
    first, second = topic.streams
    await cluster.fill(second, 2)
    for turn in range(3):
        await cluster.fill(first, 2, first=2 * turn)
        summary = await cluster.worker().once()
        assert summary.troubles == []
    await lake.check(topic)
    # merged
    summary = await cluster.worker(replace(ALL, parquet_max_files=1)).once()
    assert summary.troubles == []
    assert await cluster.entries(first) == ["parquet 0-12"]
    await lake.check(topic)
    # dropped by somebody
    table = await lake.tables.load("orders")
    assert table is not None
    table.catalog.drop_table(table.name())
    summary = await cluster.worker().once()
    assert (summary.troubles, summary.table_files_restored) == ([], 2)
    await lake.check(topic)
    # expired
    await asyncio.sleep(300)
    await cluster.fill(first, 1, first=6)
    await asyncio.sleep(400)
    summary = await cluster.worker().once()
    assert (summary.troubles, summary.raised, summary.table_files_removed) == ([], 2, 2)
    await lake.check(topic)
    assert await lake.rows(topic) == {0: [(12, b"0.6-a"), (13, b"0.6-b")], 1: []}


async def test_what_was_deleted_leaves_the_table(lake: Lake) -> None:
    """In two partitions, by one commit; and what was never compacted does not come in."""
    cluster = lake.cluster
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.append(stream, *[b"%d" % number for number in range(100)])
    await cluster.log.delete_records(topic.streams[1], 10)
    assert (await cluster.worker().once()).troubles == []
    await lake.check(topic)
    for stream in topic.streams:
        await cluster.log.delete_records(stream, 97)
    summary = await cluster.worker().once()
    assert (summary.troubles, summary.commits) == ([], 1)
    await lake.check(topic)
    assert [len(rows) for rows in (await lake.rows(topic)).values()] == [3, 3]


async def test_a_new_topic_of_an_old_name(lake: Lake) -> None:
    cluster = lake.cluster
    old = await cluster.topic("orders", config=DAILY)
    await cluster.fill(old.streams[0], 2)
    await cluster.worker().once()
    await cluster.delete(old)
    new = await cluster.topic("orders")
    await cluster.append(new.streams[0], b"new")
    summary = await cluster.worker().once()
    assert (summary.tables_dropped, summary.finished) == (1, 1)
    assert await lake.rows(new) == {0: [(0, b"new")]}
    await cluster.worker().once()
    assert len(cluster.files()) == 1


async def test_a_crash_after_the_commit_of_a_deleted_topic_by_day(lake: Lake) -> None:
    """Its file is taken out of the table as it was, though the topic cannot be asked any more."""
    cluster = lake.cluster
    keeping = replace(ALL, drop_tables=False)
    topic = await cluster.topic("orders", config=DAILY)
    await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(keeping)
    await cluster.seal(topic.streams[0])
    task = worker.start()
    swap = worker.store.hold("write", "/offset-index/")
    await swap.reached()
    worker.runtime.kill()
    await asyncio.wait([task])
    assert len(await lake.tables.current_files(table_of(topic)) or ()) == 1
    await cluster.delete(topic)
    summary = await cluster.worker(keeping).once()
    assert (summary.troubles, summary.finished) == ([], 1)
    assert await lake.tables.current_files(table_of(topic)) == set()
