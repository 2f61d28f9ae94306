"""Cleaning rounds: streams that are too large for one merge by key, compacted file by file."""

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
from tests.services.keyed_log import KeyedLog, read_keyed
from tests.simulation.cleaning_mutations import check_noticed, noticed_in
from tests.unit.tables.compaction.by_key import (
    ACTIONS,
    LAZY,
    RETENTION_MS,
    altered,
    cycle,
    history,
    keyed,
    offsets,
)
from tests.unit.tables.compaction.faults import Fault, count_calls

from dray.base.runtime import DAY_MS
from dray.log.jobs.cleaned import Cleaned, CleaningRound, CleanPoint
from dray.log.jobs.machine import Cleaning, Job
from dray.log.jobs.values import WrittenFile
from dray.log.life.deletions import nothing_may_go
from dray.log.life.lost_objects import LostObjects, StreamPlace, gap_file
from dray.log.life.retention import Retention
from dray.log.types import ObjectCorrupt
from dray.tables.compaction.model import WrittenKeys
from dray.tables.compaction.paths import keys_path, parse_file_path
from dray.tables.compaction.spark.worker import from_row, to_row
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.writing.cleaning import KeyCollection, KeyObject
from dray_simulation.kernel.loop import run

assert compaction_cluster  # its tests run on virtual time: see conftest

# Any stream is too large for one merge, and every file is written by a job of its own.
FILES = replace(LAZY, bottom_raw_bytes=0, target_file_bytes=1)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def files(log: KeyedLog, *batches: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """Each batch becomes a file, and nothing is compacted by key meanwhile."""
    policy = log.topic.config["cleanup.policy"]
    altered(log, cleanup_policy="delete")
    for batch in batches:
        await log.append(*batch)
        await cycle(log.cluster, FILES, 1)
    altered(log, cleanup_policy=policy)


async def cleaned(log: KeyedLog) -> Cleaned:
    return (await log.cluster.streams.cleaned(log.stream)).value


async def test_a_large_stream_is_cleaned_file_by_file(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await files(log, *[[(b"a", b"%d" % turn), (b"b%d" % turn, b"1")] for turn in range(4)])
    worker = cluster.worker(FILES)
    summary = await worker.compactor.run_cycle(everything=False)
    assert (summary.key_rounds, summary.units) == (1, 0)
    assert await offsets(log) == list(range(8)), "the keys alone change nothing"
    begun = (await cleaned(log)).round
    assert begun is not None
    assert (begun.end, begun.reached) == (8, 0)
    for reached in (2, 4, 6):
        await worker.compactor.run_cycle(everything=False)
        found = await cleaned(log)
        assert found.round is not None
        assert (found.round.reached, found.end) == (reached, 0), "no clean point before the last file"
        await log.check()
    await worker.compactor.run_cycle(everything=False)
    found = await cleaned(log)
    assert (found.round, found.end) == (None, 8)
    assert await offsets(log) == [1, 3, 5, 6, 7]
    assert await cluster.entries(log.stream) == [f"parquet {n}-{n + 2}" for n in (0, 2, 4, 6)]
    units = [unit for call in worker.writer.calls for unit in call if not unit.most_keys]
    assert [len(unit.entries) for unit in units] == [1, 1, 1, 1]
    await log.check()
    rows = await cluster.table_rows(log.topic)
    assert [row[0] for row in rows[0]] == [1, 3, 5, 6, 7], "the table shows the same"


async def test_the_table_says_so_with_the_last_file_of_a_round(cluster: Cluster) -> None:
    """Up to then a file may hold what a later one supersedes. `CheckedCatalog` looks at the keys."""
    log = await keyed(cluster)
    same = [(b"a", b"1"), (b"b", b"1")]
    await files(log, [*same, (b"c", b"1")], [*same, (b"d", b"1")], same, same, [*same, (b"e", b"1")])
    worker = cluster.worker(FILES)
    for _ in range(20):
        await worker.compactor.run_cycle(everything=False)
        found = await cleaned(log)
        point = cluster.catalog.points.get(("orders", 0))
        assert point == (found.end or None), "the log has a point, or the table, and not the other"
        if found.end:
            break
    assert point == len(log.rows)
    await log.append((b"a", b"9"))
    await cycle(cluster, FILES, 1)
    assert cluster.catalog.points == {("orders", 0): point}, "what comes above changes nothing"


async def test_the_table_says_nothing_of_a_round_that_it_missed(cluster: Cluster) -> None:
    """It still holds files that the round has replaced."""
    log = await keyed(cluster)
    await files(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"c", b"1")], [(b"a", b"3")])
    without = cluster.worker(FILES, tables=False)
    for _ in range(3):
        await without.compactor.run_cycle(everything=False)
    assert (begun := (await cleaned(log)).round) is not None
    assert begun.reached == 4, "two files were written again, and the table does not know"
    await cluster.worker(FILES).compactor.run_cycle(everything=False)
    assert (await cleaned(log)).end == 5
    assert cluster.catalog.points == {}


async def test_small_files_of_a_round_become_one(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await files(log, *[[(b"a", b"%d" % turn)] for turn in range(4)])
    await cycle(cluster, replace(LAZY, bottom_raw_bytes=0))
    assert await cluster.entries(log.stream) == ["parquet 0-4"]
    assert await offsets(log) == [3]
    await log.check()


async def test_a_round_ends_where_its_keys_are_full(cluster: Cluster) -> None:
    """Memory is bounded: the next round goes on from there."""
    log = await keyed(cluster, min_cleanable_dirty_ratio="0.0")
    await files(log, *[[(b"%d" % turn, b"1"), (b"a", b"%d" % turn)] for turn in range(5)])
    few = replace(FILES, round_keys=3)
    ends: list[int] = []
    for _ in range(40):
        await cycle(cluster, few, 1)
        found = await cleaned(log)
        if found.round is not None and (not ends or ends[-1] != found.round.end):
            ends.append(found.round.end)
        await log.check()
        if found.end == 10:
            break
    assert ends == [4, 8, 10]
    assert await offsets(log) == [0, 2, 4, 6, 8, 9]


async def test_a_file_of_which_nothing_is_left_goes_with_the_next(cluster: Cluster) -> None:
    """No file is empty; but a dead row that stays would make the clean point untrue."""
    log = await keyed(cluster)
    same = [(b"a", b"1"), (b"b", b"1")]
    await files(log, same, same, same, [*same, (b"c", b"1")])
    worker = cluster.worker(FILES)
    await worker.compactor.run_cycle(everything=False)
    await worker.compactor.run_cycle(everything=False)
    found = await cleaned(log)
    assert found.round is not None
    assert (found.round.reached, found.round.emptied) == (0, True)
    assert await offsets(log) == list(range(1, 9)), "one row stands for the file"
    for _ in range(8):
        await worker.compactor.run_cycle(everything=False)
        await log.check()
    assert await offsets(log) == [6, 7, 8]
    assert await cluster.entries(log.stream) == ["parquet 0-9"]
    assert (await cleaned(log)).end == 9


async def test_tombstones_go_by_the_clean_points_in_a_round_too(cluster: Cluster) -> None:
    log = await keyed(cluster, min_cleanable_dirty_ratio="0.0")
    await files(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", None), (b"d", b"1")], [(b"c", b"1")])
    await cycle(cluster, FILES, 4)
    assert await offsets(log) == [1, 2, 3, 4], "the tombstone outlives what it deletes"
    await log.check()
    await files(log, [(b"c", b"2")])
    await cycle(cluster, FILES, 8)
    assert 2 in await offsets(log), "it is too young"
    await log.check()
    await asyncio.sleep(RETENTION_MS / 1000 + 1)
    await files(log, [(b"c", b"3")])
    await cycle(cluster, FILES, 8)
    await log.check()
    assert await offsets(log) == [1, 3, 6]


async def test_rows_without_a_key_go(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await files(log, [(None, b"1"), (b"", b"1")], [(None, b"2"), (b"", b"2"), (b"a", b"1")])
    await cycle(cluster, FILES, 5)
    assert await offsets(log) == [3, 4]
    assert (await cleaned(log)).end == 5
    await log.check()


async def test_rule_2_a_file_that_another_build_wrote_brings_no_round_further(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await files(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"b", b"2")])
    await cycle(cluster, FILES, 1)
    worker = cluster.worker(FILES)
    inner = worker.writer._inner

    class OlderBuild:
        async def write(self, units: Sequence[Any], progress: Any = None, _: Any = None) -> Any:
            return await inner.write([replace(unit, cleaning=None) for unit in units], progress)

    worker.writer._inner = OlderBuild()
    for _ in range(3):
        await worker.compactor.run_cycle(everything=False)
    found = await cleaned(log)
    assert found.round is not None
    assert (found.round.reached, found.end) == (0, 0)
    await cycle(cluster, FILES, 6)
    assert await offsets(log) == [2, 3]
    await log.check()


async def test_rule_2_wherever_a_compactor_dies_the_clean_point_is_true() -> None:
    """At every fourth of its calls, in the middle of a round."""

    async def at_every_call(number: int) -> bool:
        mine = Cluster()
        log = await keyed(mine)
        await files(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", None), (b"b", b"2")], [(b"b", b"3")])
        worker = mine.worker(FILES)
        fault = Fault(number, "crash")
        task = worker.runtime.spawn(worker.once(), "compactor")
        count_calls(worker, fault, worker.runtime.kill)
        await asyncio.wait([task], timeout=3600)
        await log.check()
        end = (await cleaned(log)).end
        found = [row for row in (await read_keyed(mine, log.stream))[0] if row[0] < end]
        assert len(found) == len({row[1] for row in found}), f"call {number}, {fault.hit}"
        await mine.worker(FILES).once()
        await log.check()
        assert await offsets(log) == [2, 4]
        assert (await cleaned(log)).end == 5
        return bool(fault.hit)

    number = 0
    while await at_every_call(number):
        number += 4
    assert number > 30


async def test_the_keys_of_a_round_are_kept_as_long_as_it_lasts(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await files(log, [(b"a", b"1")], [(b"a", b"2")])
    await cycle(cluster, FILES, 1)
    begun = (await cleaned(log)).round
    assert begun is not None
    await cluster.worker(FILES).compactor.upkeep.run(CycleSummary())
    assert begun.keys in cluster.bucket.objects
    await cycle(cluster, FILES, 4)
    await cluster.worker(FILES).once()
    assert begun.keys not in cluster.bucket.objects


@pytest.mark.parametrize("damage", ["gone", "cut off", "changed"])
async def test_without_its_keys_a_round_begins_again(cluster: Cluster, damage: str) -> None:
    log = await keyed(cluster)
    await files(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")])
    eager = replace(FILES, failed_pause_seconds=0.0)
    await cycle(cluster, eager, 1)
    begun = (await cleaned(log)).round
    assert begun is not None
    stored = cluster.bucket.objects.pop(begun.keys)
    if damage != "gone":
        data = bytes(await _bytes_of(stored))
        data = data[:-8] if damage == "cut off" else data[:-1] + bytes([data[-1] ^ 1])
        await cluster.objects.put(begun.keys, [data])
    worker = cluster.worker(eager)
    summary = await worker.compactor.run_cycle(everything=False)
    assert begun.keys in summary.troubles[0].reason
    assert (await cleaned(log)).round is None
    await cycle(cluster, eager, 6)
    assert await offsets(log) == [1, 2]
    await log.check()


async def _bytes_of(stored: Any) -> bytes:
    return bytes(getattr(stored, "data", stored))


async def test_records_that_expire_meanwhile_do_not_hold_a_round_up(cluster: Cluster) -> None:
    log = await keyed(cluster, "compact,delete", retention_ms="50000")
    await files(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"b", b"2")])
    await cycle(cluster, FILES, 1)
    begun = (await cleaned(log)).round
    assert begun is not None
    await asyncio.sleep(60)
    for value in (b"1", b"2"):
        await log.append((b"c", value))
        await cycle(cluster, FILES, 1)
    assert (await cluster.log.bounds(log.stream)).start == 4, "all that the round is about is gone"
    for _ in range(12):
        await cycle(cluster, FILES, 1)
    found = await cleaned(log)
    assert (found.round, found.end) == (None, 6), "and the next one begins at the start"
    assert await offsets(log) == [5]


async def test_new_files_come_before_the_steps_of_a_round(cluster: Cluster) -> None:
    log = await keyed(cluster)
    await files(log, *[[(b"a", b"%d" % turn), (b"b%d" % turn, b"1")] for turn in range(3)])
    await cycle(cluster, FILES, 1)
    await log.append((b"a", b"new"))
    await cycle(cluster, FILES, 1)
    assert (await cluster.entries(log.stream))[-1] == "parquet 6-7"
    begun = (await cleaned(log)).round
    assert begun is not None
    assert (begun.end, begun.reached) == (6, 0)


async def test_a_topic_that_is_compacted_no_more_forgets_its_round(cluster: Cluster) -> None:
    """Its keys would lie there for ever."""
    log = await keyed(cluster)
    await files(log, [(b"a", b"1")], [(b"a", b"2")])
    await cycle(cluster, FILES, 1)
    assert (await cleaned(log)).round is not None
    altered(log, cleanup_policy="delete")
    await cycle(cluster, FILES, 1)
    assert (await cleaned(log)).round is None
    assert await offsets(log) == [0, 1]
    await cluster.worker(FILES).once()
    assert not [path for path in cluster.files() if path.endswith(".keys")]


# --- tables that are partitioned by day


async def by_day(cluster: Cluster) -> KeyedLog:
    config = {"dray_iceberg_partition_by_day": "true", "message_timestamp_type": "LogAppendTime"}
    return await keyed(cluster, **config)


async def days(log: KeyedLog, *batches: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """A day and a file for each."""
    first = log.cluster.runtime.wall_ms()
    policy = log.topic.config["cleanup.policy"]
    altered(log, cleanup_policy="delete", retention_ms="-1")
    for day, batch in enumerate(batches):
        await log.append(*batch, at=first + day * DAY_MS)
        await cycle(log.cluster, LAZY, 1)
    altered(log, cleanup_policy=policy)


async def test_a_table_by_day_is_cleaned_over_days(cluster: Cluster) -> None:
    log = await by_day(cluster)
    await days(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"c", b"1")], [(b"a", None)])
    await cycle(cluster, LAZY, 8)
    assert await offsets(log) == [1, 3, 4]
    assert await cluster.entries(log.stream) == ["parquet 0-2", "parquet 2-4", "parquet 4-5"]
    assert (await cleaned(log)).end == cluster.catalog.points["orders", 0] == 5
    await log.check()


async def test_a_day_of_which_nothing_is_left_leaves_the_table(cluster: Cluster) -> None:
    log = await by_day(cluster)
    await days(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"b", b"2")], [(b"d", b"1")])
    await cycle(cluster, LAZY, 8)
    assert await offsets(log) == [2, 3, 4]
    assert await cluster.entries(log.stream) == ["parquet 0-4", "parquet 4-5"]
    assert (await cleaned(log)).end == 5
    await log.check()


async def given_up(log: KeyedLog, place: int) -> None:
    """The file at that place of the index is lost, and its offsets are a gap."""
    cluster = log.cluster
    entry = (await cluster.streams.entries_above(log.stream, -1))[place].value
    cluster.bucket.delete(entry.path)
    own = {"": cluster.objects}
    lost = LostObjects(cluster.streams, own.__getitem__, nothing_may_go, cluster.runtime)

    async def write(job: Job, _: object) -> WrittenFile:
        return await gap_file(cluster.runtime, log.stream, job)

    of = StreamPlace("orders", log.topic.topic_id, 0, log.stream)
    retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
    assert await lost.replace(of, {entry.object_id}, write, retention) == entry.end - entry.start
    await cluster.worker(FILES).compactor.upkeep.follow([log.topic], CycleSummary())


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("apart", ["by file", "by day"])
async def test_a_round_goes_over_a_gap(cluster: Cluster, place: int, apart: str) -> None:
    """Nothing would be written of a gap alone: the round would stand there, and the table name no file."""
    log = await keyed(cluster) if apart == "by file" else await by_day(cluster)
    make = files if apart == "by file" else days
    await make(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2"), (b"b", b"2")], [(b"a", b"3"), (b"c", b"1")])
    await given_up(log, place)
    await cycle(cluster, FILES, 8)
    found = await cleaned(log)
    assert (found.end, found.round) == (6, None)
    assert await offsets(log) == {0: [3, 4, 5], 1: [1, 4, 5], 2: [2, 3]}[place]
    rows = await cluster.table_rows(log.topic)
    assert [row[0] for row in rows[0]] == await offsets(log), "every file of the table is there"


async def test_a_gap_without_a_file_beside_it_is_left_alone(cluster: Cluster) -> None:
    log = await keyed(cluster, max_compaction_lag_ms="1000")
    await files(log, [(b"a", b"1")])
    await given_up(log, 0)
    await asyncio.sleep(10)
    worker = cluster.worker(LAZY)
    await worker.compactor.run_cycle(everything=False)
    assert worker.writer.calls == []
    assert await cluster.table_rows(log.topic) == {0: []}


# --- the parts


def rows(*keys: bytes | None, start: int = 0, values: Sequence[bytes | None] | None = None) -> Any:
    import pyarrow as pa

    count = len(keys)
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(start, start + count), pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values or [b"v"] * count, pa.binary()),
        }
    )


def test_keys_are_digests_of_a_secret() -> None:
    """The same keys are other bytes in another object: no producer can choose two that look the same."""
    made = []
    for secret in (b"s" * 32, b"t" * 32):
        collection = KeyCollection(secret, 10, 0)
        collection.add(rows(b"account", b"", None, b"account"))
        assert collection.end_file(4)
        parts, count = collection.encode()
        assert count == 2
        made.append(b"".join(parts))
        assert b"account" not in made[-1]
        left = KeyObject("x", made[-1]).filtered(
            rows(b"account", b"", None, b"account", b"other"), Cleaning(keys="x", after=0)
        )
        assert left.column("offset").to_pylist() == [1, 3, 4]
    assert len(made[0]) == len(made[1])
    assert made[0][13 + 56 :] != made[1][13 + 56 :]


def test_a_first_file_of_too_many_keys_is_taken_all_the_same() -> None:
    collection = KeyCollection(b"s" * 32, 1, 0)
    collection.add(rows(b"a", b"b", b"c"))
    assert collection.end_file(3)
    collection.add(rows(b"a", start=3))
    assert not collection.end_file(4), "but no other"
    assert (collection.end, collection.encode()[1]) == (3, 3)


def test_an_object_of_keys_in_a_newer_format_is_named() -> None:
    collection = KeyCollection(b"s" * 32, 1, 0)
    data = b"".join(collection.encode()[0])
    with pytest.raises(ObjectCorrupt, match="x is in format 2, and this build reads format 1"):
        KeyObject("x", data[:8] + b"\x02" + data[9:])
    for size in (0, 5, 40, len(data) - 1):
        with pytest.raises(ObjectCorrupt, match="x: "):
            KeyObject("x", data[:size])


def test_changed_keys_are_not_believed() -> None:
    """An offset that a broken disk made greater would erase the last record of its key."""
    collection = KeyCollection(b"s" * 32, 1, 0)
    collection.add(rows(b"a"))
    assert collection.end_file(1)
    data = b"".join(collection.encode()[0])
    with pytest.raises(ObjectCorrupt, match="its checksum does not fit"):
        KeyObject("x", data[:-1] + b"\x01")


def test_only_a_file_that_follows_brings_a_round_further() -> None:
    begun = Cleaned((CleanPoint(2, 5),), CleaningRound("k", 10, reached=4))
    ahead: dict[str, Any] = {"now_ms": 100, "retention_ms": 1000, "emptied": False}
    assert begun.advanced("k", 4, 7, **ahead).round == CleaningRound("k", 10, reached=7)
    assert begun.advanced("k", 5, 7, **ahead) == begun, "something lies between"
    assert begun.advanced("k", 0, 4, **ahead) == begun, "it was there before"
    assert begun.advanced("other", 4, 7, **ahead) == begun
    assert begun.advanced("k", 4, 7, **{**ahead, "emptied": True}).round == CleaningRound("k", 10, 4, True)
    assert begun.advanced("k", 4, 12, **ahead) == Cleaned((CleanPoint(2, 5), CleanPoint(10, 100)))
    assert begun.advanced("k", 4, 12, **{**ahead, "now_ms": None}) == begun, "the clock is doubted"
    assert Cleaned.decode(begun.encode()) == begun
    assert begun.moved(12, 100, 1000).round is None, "a bottom merge went further"
    assert begun.completed_to("k", 4, 12, emptied=False) == 10
    assert begun.completed_to("k", 4, 9, emptied=False) is None, "more is to come"
    assert begun.completed_to("k", 4, 12, emptied=True) is None, "one row of it is superseded"
    assert begun.completed_to("k", 5, 12, emptied=False) is None, "something lies between"
    assert begun.completed_to("other", 4, 12, emptied=False) is None
    assert begun.moved(8, 100, 1000).round == begun.round


def test_the_path_of_keys_says_whose_they_are() -> None:
    cluster = Cluster()
    prefix = f"compaction/v1/topic=orders/id={'0' * 32}/partition=0/stream=7"
    attempt = cluster.runtime.uuid()
    found = parse_file_path(keys_path(prefix, 12, attempt))
    assert found is not None
    assert (found.stream, found.job, found.parquet_id) == (7, 12, attempt)


def test_keys_travel_through_spark() -> None:
    answer = WrittenKeys(7, 12, "compaction/v1/x.keys", 100, 3)
    assert from_row(to_row(answer)) == answer


# --- whatever happens


@settings(max_examples=12, deadline=None)
@given(
    st.lists(ACTIONS, min_size=4, max_size=14),
    st.sampled_from(["0.0", "0.5", "1.0"]),
    st.sampled_from([1, 2, 100]),
    st.sampled_from([1, 1 << 30]),
)
def test_histories(actions: list[tuple[str, Any]], ratio: str, most_keys: int, target: int) -> None:
    """The properties of the design, over histories, rounds and kills."""
    run(history(actions, ratio, bottom_raw_bytes=0, round_keys=most_keys, target_file_bytes=target))


# --- every rule, taken away


@pytest.mark.parametrize("name", noticed_in("rounds"))
def test_without_its_rule_the_test_fails(name: str) -> None:
    check_noticed(name, globals())
