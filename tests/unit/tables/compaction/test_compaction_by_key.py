"""Compaction by key: what goes, what stays, and when. Each hard rule of design/0110 has its test here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services import compaction_cluster
from tests.services.compaction_cluster import Cluster
from tests.services.keyed_log import append_keyed, read_keyed
from tests.simulation.cleaning_mutations import check_noticed, noticed_in
from tests.simulation.scripted import Fate
from tests.unit.tables.compaction.by_key import (
    ACTIONS,
    EAGER,
    LAZY,
    RETENTION_MS,
    altered,
    cycle,
    history,
    keyed,
    offsets,
    without_rows_from,
)
from tests.unit.tables.compaction.faults import Fault, count_calls

from dray.broker.topics import configs
from dray.kafka.records import decode
from dray.log.jobs.cleaned import Cleaned, CleanPoint
from dray.log.types import ReadRequest
from dray.metadata import keys
from dray_simulation.kernel.loop import run

assert compaction_cluster  # its tests run on virtual time: see conftest


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def test_the_last_record_of_each_key_is_left(cluster: Cluster) -> None:
    log = await keyed(cluster)
    for turn in range(4):
        await log.append((b"a", b"%d" % turn), (b"b", b"%d" % turn), (b"", b"%d" % turn))
    await log.append((b"c", b"only"))
    await cluster.worker().once()
    assert await offsets(log) == [9, 10, 11, 12]
    await log.check()
    view = await cluster.streams.view(log.stream)
    assert view is not None
    assert view.cleaned.end == 13
    assert [(entry.value.start, entry.value.end) for entry in view.split()[0]] == [(0, 13)], "the range stays"
    rows = await cluster.table_rows(log.topic)
    assert [row[0] for row in rows[0]] == [9, 10, 11, 12], "the table shows the same"


async def test_a_topic_that_is_not_compacted_keeps_all(cluster: Cluster) -> None:
    log = await keyed(cluster, "delete")
    for _ in range(3):
        await log.append((b"a", b"1"), (b"a", b"2"))
        await cluster.worker(EAGER).once()
    assert await offsets(log) == list(range(6))
    assert cluster.keys(keys.cleaned(log.stream)) == []
    for entry in await cluster.streams.entries_above(log.stream, -1):
        assert entry.value.encode()[0] == 2, "as an older build reads it"


async def test_rule_1_a_tombstone_goes_only_below_a_clean_point_that_is_old_enough(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await log.append((b"a", b"1"), (b"b", b"1"))
    await log.append((b"a", None), (b"b", b"2"))
    await cluster.worker().once()
    assert await offsets(log) == [2, 3], "the tombstone outlives what it deletes"
    await log.check()
    await asyncio.sleep(RETENTION_MS / 1000 - 10)
    await log.append((b"c", b"1"))
    await cluster.worker().once()
    assert 2 in await offsets(log)
    await log.check()
    await asyncio.sleep(11)
    await log.append((b"c", b"2"))
    await cluster.worker().once()
    await log.check()
    assert await offsets(log) == [3, 5]


async def test_rule_1_no_ordinary_merge_drops_a_tombstone(cluster: Cluster) -> None:
    """What it deletes lies further down, in a file that the merge does not read, and would live again."""
    log = await keyed(cluster, min_cleanable_dirty_ratio="1.0")
    merging = replace(LAZY, target_file_bytes=6000, parquet_max_files=1)
    noise = bytes(cluster.runtime.random.randrange(256) for _ in range(5000))
    await log.append((b"a", noise))
    await cycle(cluster, merging)
    await asyncio.sleep(RETENTION_MS / 100)
    for _ in range(3):
        await log.append((b"a", None), (b"c", b"1"))
        await cycle(cluster, LAZY, 1)
        await asyncio.sleep(RETENTION_MS / 100)
    await cycle(cluster, merging)
    assert await cluster.entries(log.stream) == ["parquet 0-1", "parquet 1-7"]
    assert await offsets(log) == [0, 5, 6], "the older value is there, and what deletes it"
    await log.check()


async def test_rule_2_the_clean_point_comes_after_the_swap_was_seen(cluster: Cluster) -> None:
    """Wherever a compactor dies (at every fourth of its calls): below it there is one record per key."""

    async def at_every_call(number: int) -> bool:
        mine = Cluster()
        log = await keyed(mine)
        await log.append((b"a", b"1"), (b"b", b"1"))
        await log.append((b"a", None), (b"b", b"2"))
        await asyncio.sleep(1)
        worker = mine.worker()
        fault = Fault(number, "crash")
        task = worker.runtime.spawn(worker.once(), "compactor")
        count_calls(worker, fault, worker.runtime.kill)
        await asyncio.wait([task], timeout=3600)
        await log.check()
        view = await mine.streams.view(log.stream)
        assert view is not None
        found = [row for row in (await read_keyed(mine, log.stream))[0] if row[0] < view.cleaned.end]
        assert len(found) == len({row[1] for row in found}), f"call {number}, {fault.hit}"
        await mine.worker().once()
        await log.check()
        assert await offsets(log) == [2, 3]
        assert (await mine.streams.cleaned(log.stream)).value.end == 4
        return bool(fault.hit)

    number = 0
    while await at_every_call(number):
        number += 4
    assert number > 20


async def test_rule_2_no_clean_point_before_the_swap(cluster: Cluster) -> None:
    """As long as the swap has not happened, readers have two records of a key."""
    log = await keyed(cluster, min_cleanable_dirty_ratio="1.0")
    for value in (b"1", b"2"):
        await log.append((b"a", value), (b"b", value))
        await cycle(cluster, LAZY, 1)
    worker = cluster.worker()
    trap = worker.store.trap(Fate.HOLD_BEFORE, "write", "/offset-index/")
    task = worker.start()
    await trap.reached()
    assert (await cluster.streams.cleaned(log.stream)).value == Cleaned()
    assert await offsets(log) == [0, 1, 2, 3]
    trap.release()
    await task
    assert (await cluster.streams.cleaned(log.stream)).value.end == 4
    assert await offsets(log) == [2, 3]


async def test_rule_2_a_file_that_another_build_wrote_moves_no_clean_point(cluster: Cluster) -> None:
    """An older build that takes a job over reads past how it is to be cleaned, and writes every row."""
    log = await keyed(cluster)
    await log.append((b"a", b"1"), (b"a", None), (b"b", b"1"))
    await cycle(cluster, LAZY, 1)
    await log.append((b"a", b"2"), (b"a", None), (b"b", b"1"))
    worker = cluster.worker(LAZY)
    inner = worker.writer._inner

    class OlderBuild:
        async def write(self, units: Sequence[Any], progress: Any = None, _: Any = None) -> Any:
            return await inner.write([replace(unit, cleaning=None) for unit in units], progress)

    worker.writer._inner = OlderBuild()
    for _ in range(3):
        await worker.compactor.run_cycle(everything=False)
    units = [unit for call in worker.writer.calls for unit in call]
    assert any(unit.cleaning is not None and unit.cleaning.from_start for unit in units)
    assert (await cluster.streams.cleaned(log.stream)).value == Cleaned()
    await log.check()


async def test_rule_3_the_offset_decides_and_not_the_time(cluster: Cluster) -> None:
    log = await keyed(cluster)
    now = cluster.runtime.wall_ms()
    await log.append((b"a", b"new by time"), at=now + 5000)
    await log.append((b"a", b"new by offset"), at=now - 5000)
    await cluster.worker().once()
    assert await offsets(log) == [1]
    await log.check()


async def test_rule_3_streams_are_apart(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2, {"cleanup.policy": "compact"})
    for stream in topic.streams:
        await append_keyed(cluster, stream, [(b"a", b"1")])
    await cluster.worker().once()
    for stream in topic.streams:
        assert len((await read_keyed(cluster, stream))[0]) == 1


async def test_rule_5_an_empty_key_is_a_key_and_none_is_not(cluster: Cluster) -> None:
    log = await keyed(cluster, "delete")
    await log.append((None, b"1"), (b"", b"1"), (None, b"2"), (b"", b"2"), (b"a", b"1"))
    await cycle(cluster, LAZY, 1)
    altered(log, cleanup_policy="compact")
    await log.append((b"b", b"1"))
    await cluster.worker().once()
    assert await offsets(log) == [3, 4, 5]
    await log.check()


async def test_rule_5_no_ordinary_merge_drops_rows_without_a_key(cluster: Cluster) -> None:
    log = await keyed(cluster, "delete")
    await log.append((None, b"1"), (b"a", b"1"))
    altered(log, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    await log.append((None, b"2"), (b"a", b"2"))
    await cycle(cluster)
    assert await offsets(log) == [0, 2, 3]


async def test_rule_6_the_last_row_of_a_file_stays_though_it_might_go(cluster: Cluster) -> None:
    """Otherwise there would be files without a row; the range is covered either way."""
    log = await keyed(cluster)
    await log.append((b"a", b"1"))
    await log.append((b"a", None))
    await cluster.worker().once()
    await log.check()
    for _ in range(2):
        await asyncio.sleep(RETENTION_MS / 1000 + 1)
        await log.append((b"b", None))
        await cluster.worker().once()
        await log.check()
    found = await offsets(log)
    assert found == [3], "an old tombstone at the very end is all that is left"
    assert (await read_keyed(cluster, log.stream, 1))[1] == 4


async def test_rule_6_a_file_of_which_every_row_might_go_keeps_its_last(cluster: Cluster) -> None:
    log = await keyed(cluster, "delete")
    await log.append((None, b"1"), (None, b"2"))
    await cycle(cluster, LAZY, 1)
    altered(log, cleanup_policy="compact")
    summary = await cluster.worker().once()
    assert (summary.troubles, await offsets(log)) == ([], [1])
    assert (await cluster.streams.cleaned(log.stream)).value.end == 2


async def test_rule_8_policies_may_change(cluster: Cluster) -> None:
    log = await keyed(cluster, "delete")
    for turn in range(3):
        await log.append((b"a", b"%d" % turn))
        await cycle(cluster, LAZY, 1)
    assert await offsets(log) == [0, 1, 2]
    altered(log, cleanup_policy="compact")
    await cycle(cluster)
    assert await offsets(log) == [2]
    altered(log, cleanup_policy="delete")
    for turn in range(3):
        await log.append((b"a", b"%d" % turn))
        await cycle(cluster, EAGER)
    assert await offsets(log) == [2, 3, 4, 5], "gaps stay, and no more come"
    altered(log, cleanup_policy="compact")
    await cycle(cluster)
    assert await offsets(log) == [5]
    await log.check()


async def test_rule_9_nothing_is_compacted_while_the_clock_is_doubted(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await log.append((b"a", b"1"), (b"a", b"2"))
    worker = cluster.worker()

    class Doubted:
        def now_ms(self) -> None:
            return None

        def likely_ms(self) -> int:
            return 0

    worker.compactor._planner._expiry = Doubted()
    await worker.once()
    assert await offsets(log) == [0, 1]


async def test_rule_10_a_reader_goes_on_in_the_new_file(cluster: Cluster) -> None:
    """Its index is old: the file that it names is gone, and in the new one the next records are far off."""
    log = await keyed(cluster)
    for turn in range(5):
        await log.append(*[(b"%d" % key, b"%d" % turn) for key in range(4)])
        await cycle(cluster, LAZY, 1)
    reader = cluster.new_log(compacted_cache_bytes=0, parquet_groups_ahead=0)
    assert await _fetched(reader, log.stream, 0) == list(range(20))
    await cluster.worker().once()
    await cluster.worker().once()
    assert len(cluster.files()) == 1
    for offset in (5, 13, 17):
        assert await _fetched(reader, log.stream, offset) == list(range(max(16, offset), 20))


async def _fetched(reader: Any, stream: int, offset: int) -> list[int]:
    [result] = await reader.fetch(
        [ReadRequest(stream, offset, 1 << 20)], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0
    )
    assert result.error is None
    return [
        record.offset
        for buffer in result.buffers
        for record in decode(buffer, sparse=True).records()
        if record.offset >= offset
    ]


def test_rule_11_the_configs_say_what_they_do() -> None:
    """What DescribeConfigs answers: none of them is there only for Kafka's tools."""
    cleaner = ("min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms")
    for name in (*cleaner, "delete.retention.ms", "cleanup.policy"):
        assert configs.CONFIGS[name].documentation != configs.NO_EFFECT, name


# --- when


async def test_a_stream_is_cleaned_once_enough_of_it_is_dirty(cluster: Cluster) -> None:
    log = await keyed(cluster, min_cleanable_dirty_ratio="0.6")
    value = b"v" * 500
    await log.append(*[(b"%d" % key, value) for key in range(20)])
    await cycle(cluster)
    assert (await cluster.streams.cleaned(log.stream)).value.end == 20, "all was dirty"
    await log.append((b"0", b"x"))
    await cycle(cluster)
    assert (await cluster.streams.cleaned(log.stream)).value.end == 20
    assert len(await offsets(log)) == 21, "too little"
    for _ in range(3):
        await log.append(*[(b"%d" % key, value) for key in range(20)])
    await cycle(cluster)
    assert (await cluster.streams.cleaned(log.stream)).value.end == 81
    assert len(await offsets(log)) == 20


async def test_nothing_goes_before_the_least_lag_and_all_before_the_most(cluster: Cluster) -> None:
    log = await keyed(
        cluster,
        min_cleanable_dirty_ratio="1.0",
        min_compaction_lag_ms="60000",
        max_compaction_lag_ms="120000",
    )
    worker = cluster.worker(LAZY)
    await log.append((b"a", b"1"), (b"a", b"2"))

    async def look() -> list[int]:
        for _ in range(3):
            await worker.compactor.run_cycle(everything=False)
        return await offsets(log)

    assert await look() == [0, 1]
    await asyncio.sleep(61)
    assert await look() == [0, 1], "it may, but it need not"
    await asyncio.sleep(61)
    assert await look() == [1], "time alone makes it due"
    await log.append((b"a", b"3"))
    assert await look() == [1, 2], "the third is too young to count"
    await log.check()


async def test_what_lies_behind_a_young_record_is_not_cleaned(cluster: Cluster) -> None:
    log = await keyed(cluster, min_compaction_lag_ms="60000")
    now = cluster.runtime.wall_ms()
    await log.append((b"a", b"1"), at=now - 100_000)
    await log.append((b"b", b"1"), at=now)
    await log.append((b"a", b"2"), at=now - 100_000)
    await cycle(cluster, replace(LAZY, wal_max_entries=1, wal_max_bytes=1, target_file_bytes=1))
    assert await offsets(log) == [0, 1, 2]


async def test_once_cleans_whatever_is_dirty(cluster: Cluster) -> None:
    log = await keyed(cluster, min_cleanable_dirty_ratio="1.0")
    await log.append((b"a", b"1"), (b"b", b"1"))
    await cluster.worker().once()
    await log.append((b"a", b"2"))
    await cluster.worker().once()
    assert await offsets(log) == [1, 2]
    before = cluster.files()
    await cluster.worker().once()
    assert cluster.files() == before, "what is clean is not written again"


# --- compact,delete


async def test_retention_by_size_counts_what_is_there(cluster: Cluster) -> None:
    """What was compacted away is no reason for the rest to expire."""
    log = await keyed(cluster, "compact,delete", retention_bytes="30000", min_cleanable_dirty_ratio="1.0")
    await log.append((b"x", b"1"), (b"y", b"1"))
    await cycle(cluster)
    noise = bytes(range(256)) * 4
    for turn in range(40):
        await log.append((b"a", b"%d" % turn + noise), (b"b", b"%d" % turn + noise))
    await cycle(cluster)
    assert await cluster.entries(log.stream) == ["parquet 0-2", "parquet 2-82"]
    assert await offsets(log) == [0, 1, 80, 81], "appended were 80 KiB, and 2 are there"
    await log.check()


async def test_retention_by_size_still_deletes_what_is_too_much(cluster: Cluster) -> None:
    log = await keyed(cluster, "compact,delete", retention_bytes="5000", min_cleanable_dirty_ratio="1.0")
    for turn in range(12):
        random = bytes(cluster.runtime.random.randrange(256) for _ in range(2000))
        await log.append((b"%d" % (turn // 2), random), (b"%d" % turn, random))
        await cycle(cluster, LAZY, 1)
    bounds = await cluster.log.bounds(log.stream)
    assert 0 < bounds.start < bounds.end


async def test_retention_by_time_deletes_from_a_compacted_topic(cluster: Cluster) -> None:
    log = await keyed(cluster, "compact,delete", retention_ms="50000")
    await log.append((b"a", b"1"), (b"b", b"1"))
    await cycle(cluster)
    await asyncio.sleep(60)
    await log.append((b"c", b"1"))
    await cycle(cluster)
    assert await offsets(log) == [2]


async def test_deleted_records_leave_the_table_though_offsets_behind_them_stay(cluster: Cluster) -> None:
    """Of a file only offsets without a record lie above the start: there is nothing left to show."""
    log = await keyed(cluster, "delete")
    await log.append(*[(b"%d" % key, b"1") for key in range(10)])
    await cluster.worker().once()
    await without_rows_from(log, 5)
    await cluster.worker().once()
    assert [row[0] for row in (await cluster.table_rows(log.topic))[0]] == [0, 1, 2, 3, 4]
    await cluster.log.delete_records(log.stream, 7)
    summary = await cluster.worker().once()
    assert ((await cluster.table_rows(log.topic))[0], summary.troubles) == ([], [])
    assert await read_keyed(cluster, log.stream) == ([], 10)
    await log.append((b"a", b"2"))
    await cluster.worker(EAGER).once()
    assert [row[0] for row in (await cluster.table_rows(log.topic))[0]] == [10]
    assert await cluster.entries(log.stream) == ["parquet 7-11"], "trimmed together with what follows"


async def test_the_end_of_an_emptied_tail_is_reached(cluster: Cluster) -> None:
    """No merge of ours leaves one behind; a log that began elsewhere may."""
    log = await keyed(cluster, "delete")
    await log.append(*[(b"%d" % key, b"1") for key in range(10)])
    await cluster.worker().once()
    await without_rows_from(log, 5)
    request = ReadRequest(log.stream, 5, 1 << 20)
    [result] = await cluster.new_log().fetch([request], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0)
    assert sum(map(len, result.buffers)), "a consumer stays where it is, below the end"


async def test_a_deleted_topic_leaves_no_clean_points(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await log.append((b"a", b"1"), (b"a", b"2"))
    await cluster.worker().once()
    assert cluster.keys(keys.cleaned(log.stream))
    await cluster.delete(log.topic)
    assert cluster.keys(keys.cleaned(log.stream)) == []


# --- clean points


def test_clean_points_are_few_and_none_is_lost_for_ever() -> None:
    """However often a stream is cleaned: a tombstone waits a little longer than it must, and no more."""
    retention, cleaned = 3_200_000, Cleaned()
    for turn in range(1, 5000):
        now = turn * 10_000
        cleaned = cleaned.moved(turn, now, retention)
        assert len(cleaned.points) < 40
        below = cleaned.tombstones_below(now, retention)
        old = (now - retention) // 10_000
        assert below <= max(old, 0), "never too early"
        assert below >= old - 40, "and not much too late"
    assert list(cleaned.points) == sorted(cleaned.points)
    assert Cleaned.decode(cleaned.encode()) == cleaned


def test_a_clock_that_went_back_makes_no_tombstone_old() -> None:
    cleaned = Cleaned((CleanPoint(5, 1_000_000),)).moved(9, 500, 100)
    assert cleaned.points[-1] == (9, 1_000_000)
    assert cleaned.tombstones_below(600, 100) == 0
    assert cleaned.moved(9, 2_000_000, 100) == cleaned, "the earlier time holds"


# --- whatever happens


@settings(max_examples=12, deadline=None)
@given(st.lists(ACTIONS, min_size=4, max_size=14), st.sampled_from(["0.0", "0.5", "1.0"]))
def test_histories(actions: list[tuple[str, Any]], ratio: str) -> None:
    """The properties of the design, over histories, units and kills."""
    run(history(actions, ratio))


# --- every rule, taken away


@pytest.mark.parametrize("name", noticed_in("by key"))
def test_without_its_rule_the_test_fails(name: str) -> None:
    check_noticed(name, globals())
