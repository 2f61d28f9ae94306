"""Schedules for logs that go on without their tables: commits that come late, and tables that catch up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tests.services.compaction_cluster import ALL, Cluster, Worker
from tests.simulation.scripted import ScriptedTables, Trap

from dray.tables.contract import TableChange
from dray_simulation.cluster.tables import Table

HASTY = replace(ALL, table_patience_seconds=0.0, wal_max_age=0.0)


async def _slow_commit(cluster: Cluster) -> tuple[Worker, Trap, asyncio.Task[object]]:
    """A compactor whose commit is on its way, and goes on being so."""
    slow = cluster.worker()
    task: asyncio.Task[object] = slow.runtime.spawn(slow.once(), "compactor")
    commit = slow.tables.hold("commit", "orders")
    await commit.reached()
    return slow, commit, task


class Shown:
    """What the table showed after each commit, and whether the files were there."""

    def __init__(self, cluster: Cluster) -> None:
        self.files: list[set[str]] = []
        self.missing: set[str] = set()
        kept = cluster.catalog.commit

        def commit(on: Table, changes: Sequence[TableChange], now_ms: int) -> bool:
            done = kept(on, changes, now_ms)
            self.files.append(set(cluster.catalog.tables["orders"].newest.files))
            self.missing |= self.files[-1] - cluster.files()
            return done

        cluster.catalog.commit = commit  # type: ignore[method-assign]


async def _pass(client: ScriptedTables, number: int) -> Trap:
    """Let that many loads of the table pass; the trap for the next."""
    held = client.hold("load", "orders")
    for _ in range(number):
        await held.reached()
        following = client.hold("load", "orders")
        held.release()
        held = following
    return held


async def _left() -> tuple[Cluster, int, Trap, asyncio.Task[object]]:
    """Another goes on without the table, which somebody holds."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await cluster.seal(stream)
    await asyncio.sleep(1)
    _, commit, task = await _slow_commit(cluster)
    cluster.catalog.held.add("orders")
    await cluster.worker(HASTY).once()
    assert await cluster.entries(stream) == ["parquet 0-4"]
    return cluster, stream, commit, task


async def a_commit_that_comes_after_its_table_caught_up() -> None:
    """Nothing of what it brings is in the log any more, and nothing was in the table."""
    cluster, stream, commit, task = await _left()
    await cluster.log.delete_records(stream, 4)
    cluster.catalog.held.clear()
    await cluster.worker(HASTY).once()
    shown = Shown(cluster)
    commit.release()
    await asyncio.wait([task])
    assert not any(shown.files), "deleted rows come back"
    await cluster.check_settled()


async def a_commit_that_comes_before_its_table_caught_up() -> None:
    """What it names is not in the log any more: it must be there all the same."""
    cluster, stream, commit, task = await _left()
    await cluster.log.delete_records(stream, 4)
    cluster.catalog.held.clear()
    collecting = cluster.worker(HASTY)
    await collecting.compactor.upkeep.files.run()
    await collecting.compactor.upkeep.files.run()
    shown = Shown(cluster)
    commit.release()
    await asyncio.wait([task])
    assert shown.missing == set(), "a query would fail"
    await cluster.check_settled()


async def a_table_that_another_brings_up_meanwhile() -> None:
    """The slower of two has looked at what the table lacks already."""
    cluster, _, commit, task = await _left()
    cluster.catalog.held.clear()
    slower = cluster.worker(HASTY)
    going = slower.start()
    bringing = await _pass(slower.tables, 3)
    await bringing.reached()
    await cluster.worker(HASTY).once()
    bringing.release()
    await going
    commit.release()
    await asyncio.wait([task])
    await cluster.check_settled()


async def records_deleted_while_a_table_catches_up() -> None:
    """They are not brought into it."""
    cluster, stream, commit, task = await _left()
    cluster.catalog.held.clear()
    worker = cluster.worker(HASTY)
    going = worker.start()
    bringing = await _pass(worker.tables, 3)
    await bringing.reached()
    await cluster.log.delete_records(stream, 4)
    shown = Shown(cluster)
    bringing.release()
    await going
    assert not any(shown.files), "deleted rows come into the table"
    commit.release()
    await asyncio.wait([task])
    await cluster.check_settled()


async def a_merge_that_went_on_without_its_table() -> None:
    """At no moment does a query miss a row that it has seen."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    for turn in range(3):
        await cluster.fill(stream, 1, first=turn)
        await cluster.worker().once()
    cluster.catalog.held.add("orders")
    await cluster.worker(replace(HASTY, parquet_max_files=1)).once()
    assert await cluster.entries(stream) == ["parquet 0-6"]
    cluster.catalog.held.clear()
    await cluster.worker(replace(HASTY, snapshot_keep_ms=1 << 40)).once()
    for snapshot in cluster.catalog.tables["orders"].snapshots[1:]:
        files = snapshot.files.values()
        assert sum(file.last_offset + 1 - file.first_offset for file in files) == 6, "rows are missing"
    await cluster.check_settled()


LEFT_TABLE_SCHEDULES = {
    a_commit_that_comes_after_its_table_caught_up: ["catch up without a commit where nothing differs"],
    a_commit_that_comes_before_its_table_caught_up: ["collect what a late commit may name"],
    a_table_that_another_brings_up_meanwhile: ["catch up whatever the table has become"],
    records_deleted_while_a_table_catches_up: ["catch up by an older look at the log"],
    a_merge_that_went_on_without_its_table: ["leave a table and say nothing of it"],
}
