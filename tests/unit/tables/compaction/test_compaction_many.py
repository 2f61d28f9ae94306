"""Many topics, and a catalog and a store that are far away: what is asked, and who waits for what."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.services import compaction_cluster, room_settings
from tests.services.compaction_cluster import ALL, Cluster
from tests.services.slow_lake import SlowLake, slow_files

from dray.log.jobs.values import WrittenFile
from dray.metadata.contract import StoredValue
from dray.tables.compaction.planning.shares import WHOLE, TopicShare
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.upkeep.file_collector import REST_SECONDS

assert compaction_cluster  # its tests run on virtual time: see conftest

AWAY = 0.03
TOPICS = 40
KEPT_MS = 600_000
PLAIN = room_settings.compaction(wal_max_age=0.0, snapshot_keep_ms=KEPT_MS)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[SlowLake]:
    made = SlowLake(tmp_path, 2, PLAIN, AWAY)
    with slow_files(made.requests):
        await made.topics(TOPICS, 2)
        yield made
        await made.close()


async def cycle(lake: SlowLake) -> tuple[list[CycleSummary], Counter[str], float]:
    lake.requests.take()
    began = now()
    done = await lake.cycle()
    assert [each.troubles for each in done] == [[], []]
    return done, lake.requests.take(), now() - began


async def collect(lake: SlowLake) -> tuple[CycleSummary, Counter[str], float]:
    lake.requests.take()
    began = now()
    done = await lake.collect()
    assert all(each.collected and not each.troubles for each in done)
    both = CycleSummary()
    for each in done:
        both.add_collection(each)
    return both, lake.requests.take(), now() - began


async def test_what_a_cycle_and_a_round_of_collection_ask(lake: SlowLake) -> None:
    """Goals for 1,000 topics and two compactors are 40 s for a cycle and 300 s for a round."""
    for _ in range(3):
        await lake.produce()
        done, asked, seconds = await cycle(lake)
        assert sum(each.commits for each in done) == TOPICS
    # a manifest, a list, and the commit on top of the table as it was loaded
    assert asked == {"load table": TOPICS, "write file": 2 * TOPICS, "commit table": TOPICS}
    assert seconds * 1000 / TOPICS < 20
    found, asked, seconds = await collect(lake)
    assert found.tables_kept == TOPICS
    assert asked["read file"] == 0, "all that was committed here is known"
    assert asked["commit table"] == 0
    assert asked["load table"] <= 9 * TOPICS
    assert seconds * 1000 / TOPICS < 60
    found, asked, seconds = await collect(lake)
    assert found.tables_kept == 0, "nobody committed to them since"
    assert asked == {"load table": 4 * TOPICS, "list tables": 2, "list objects": 2}
    assert seconds * 1000 / TOPICS < 20


async def test_what_was_written_for_a_job_is_read_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the table, for the swap, and to see that the swap is there: of tiny partitions that is work."""
    read: list[object] = []
    from_json = WrittenFile.from_json

    def counted(stored: Mapping[str, Any]) -> WrittenFile:
        read.append(stored)
        return from_json(stored)

    monkeypatch.setattr(WrittenFile, "from_json", counted)
    lake = SlowLake(tmp_path, 1, PLAIN, AWAY)
    with slow_files(lake.requests):
        await lake.topics(1, 5)
        await lake.produce()
        [done] = await lake.cycle()
        await lake.close()
    assert (done.finished, len(read)) == (5, 3 * 5)


async def test_a_round_looks_at_the_tables_that_were_committed_to(lake: SlowLake) -> None:
    for _ in range(2):
        await lake.produce()
        await cycle(lake)
    await collect(lake)
    await lake.produce(topics=3)
    await cycle(lake)
    assert (await collect(lake))[0].tables_kept == 3
    await collect(lake)
    # Snapshots come of age without a commit, and what only they named is collected then.
    await asyncio.sleep(KEPT_MS / 1000 + 60)
    found, _, _ = await collect(lake)
    assert (found.tables_kept, found.snapshots_expired) == (TOPICS, TOPICS + 3)
    await collect(lake)
    assert (await collect(lake))[0].tables_kept == 0
    await asyncio.sleep(REST_SECONDS)
    assert (await collect(lake))[0].tables_kept == TOPICS


async def test_a_file_of_a_resting_topic_is_garbage_once_the_last_snapshot_that_named_it_is_gone() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders")
    worker = cluster.worker(replace(ALL, snapshot_keep_ms=60_000, parquet_max_files=1))
    await cluster.fill(topic.streams[0], 3)
    await worker.once()
    await worker.once()
    await cluster.fill(topic.streams[0], 1, first=3)
    await worker.once()
    await worker.once()
    assert len(cluster.files()) > 1, "older snapshots name what was merged"
    for _ in range(2):
        await worker.compactor.upkeep.run(CycleSummary())
    assert len(cluster.files()) > 1
    await asyncio.sleep(61)
    for _ in range(2):
        await worker.compactor.upkeep.run(CycleSummary())
    assert len(cluster.files()) == 1
    await cluster.check_log()


async def test_a_stray_file_of_a_resting_topic_is_collected() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders")
    worker = cluster.worker()
    await cluster.fill(topic.streams[0], 1)
    for _ in range(3):
        await worker.once()
    [path] = cluster.files()
    stray = path[: -len(".parquet")][:-32] + "0" * 32 + ".parquet"
    cluster.bucket.put(stray, b"of an attempt that lost", 0)
    await worker.compactor.upkeep.run(CycleSummary())
    assert cluster.files() == {path}


async def test_a_table_that_was_dropped_is_made_again_though_its_topic_rests() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders")
    worker = cluster.worker()
    await cluster.fill(topic.streams[0], 1)
    for _ in range(3):
        await worker.once()
    del cluster.catalog.tables["orders"]
    summary = CycleSummary()
    await worker.compactor.upkeep.run(summary)
    assert summary.table_files_restored == 1


async def test_compaction_goes_on_while_a_round_of_collection_stands() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders")
    worker = cluster.worker(replace(ALL, wal_max_age=0.0, interval=1.0, collect_seconds=5.0))
    asked = worker.tables.hold("topics", "")
    stop = asyncio.Event()
    running = worker.runtime.spawn(worker.compactor.run(stop), "compactor")
    await asked.reached()
    await cluster.fill(topic.streams[0], 2)
    await asyncio.sleep(60)
    assert len(await cluster.table_rows(topic)) == 1
    assert await cluster.table_rows(topic) == {0: await cluster.read(topic.streams[0])}
    asked.release()
    again = worker.tables.hold("topics", "")
    await again.reached()  # it has a schedule of its own
    again.release()
    stop.set()
    await running
    assert worker.runtime.failures == []


async def test_collection_that_fails_is_told_and_tried_again() -> None:
    cluster = Cluster()
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 1)
    worker = cluster.worker(replace(ALL, collect_seconds=5.0))
    await worker.once()
    worker.tables.down = True
    await worker.compactor.collection.run_once()
    summary = CycleSummary()
    worker.compactor.collection.tell(summary)
    assert {trouble.topic for trouble in summary.troubles} == {"tables of deleted topics", "orders"}
    worker.tables.down = False
    await worker.compactor.collection.run_once()
    again = CycleSummary()
    worker.compactor.collection.tell(again)
    assert (again.troubles, again.collected) == ([], True)


def test_each_topic_falls_to_one_and_stays_there() -> None:
    names = ["a", "b", "c"]
    shares = {name: TopicShare(name, [each for each in names if each != name]) for name in names}
    topics = [UUID(int=number) for number in range(900)]
    owners = {topic: [name for name, share in shares.items() if share.has(topic)] for topic in topics}
    assert all(len(owner) == 1 for owner in owners.values())
    counts = Counter(owner[0] for owner in owners.values())
    assert min(counts.values()) > 200
    without = {name: TopicShare(name, [each for each in "ab" if each != name]) for name in "ab"}
    for topic, [owner] in owners.items():
        if owner != "c":
            assert without[owner].has(topic), "only those of the one that went move"
    assert all(WHOLE.has(topic) for topic in topics)


async def test_another_compactors_topics_are_left_to_it_unless_it_stands_still() -> None:
    cluster = Cluster()
    topics = [await cluster.topic(f"topic-{number}") for number in range(12)]
    settings = replace(ALL, wal_max_age=0.0, takeover_seconds=120.0, collect_seconds=1e9)
    mine = TopicShare("one", ["two"])
    worker = cluster.worker(settings, share=lambda: mine)
    for topic in topics:
        await cluster.fill(topic.streams[0], 1)

    def compacted() -> set[str]:
        return {name for name, table in cluster.catalog.tables.items() if table.newest.files}

    await worker.compactor.run_cycle(everything=False)
    share = {topic.name for topic in topics if mine.has(topic.topic_id)}
    assert 0 < len(share) < len(topics)
    assert compacted() == share
    await asyncio.sleep(119)
    await worker.compactor.run_cycle(everything=False)
    assert compacted() == share
    await asyncio.sleep(2)
    await worker.compactor.run_cycle(everything=False)
    assert compacted() == {topic.name for topic in topics}
    await cluster.check_log()


async def test_what_a_partition_asks_of_the_metadata_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many partitions each request is processor time: what a reply has shown is not looked for again."""
    cluster = Cluster()
    topic = await cluster.topic("orders", 20)
    worker = cluster.worker(replace(ALL, wal_max_age=0.0, collect_seconds=1e9))
    store, read = worker.store, 0
    get = store.get

    async def counted(domain: int, key: str) -> StoredValue | None:
        nonlocal read
        read += 1
        return await get(domain, key)

    monkeypatch.setattr(store, "get", counted)
    for cycle_number in range(2):
        read = 0  # the first cycle makes the table, and holds it against the log
        store.writes.clear()
        store.barriers.clear()
        for stream in topic.streams:
            await cluster.fill(stream, 1, first=cycle_number)
        summary = await worker.compactor.run_cycle(everything=False)
        assert summary.finished == 20
    assert len(store.writes) == 20 * 9
    assert read <= 20 * 9
    assert len(store.barriers) <= 20 + 2, "one for each job that is held against the table"
    await cluster.check_log()
