"""A topic over segments that Kafka wrote: compacted into its table, retained, deleted, adopted, copied."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import rows_in
from tests.unit.log.harness import batch_bytes
from tests.unit.migration.entries.foreign_harness import STORE, Source, aiven, kafka, written
from tests.unit.migration.formats.fixture_files import AIVEN
from tests.unit.tables.compaction.foreign_attached import Attached

from dray.log.jobs.values import WrittenFile
from dray.log.life.retention import Retention
from dray.log.outside_table import AbortedRange
from dray.metadata import keys
from dray.migration.entries.ownership import paths_of
from dray.migration.entries.rows import ForeignAddresses
from dray.migration.entries.segments import ForeignAddress
from dray.tables.compaction.model import Unit, UnitFailed
from dray.tables.compaction.paths import unit_prefix
from dray.tables.compaction.spark.worker import StoreAddress, write_units
from dray_simulation.kernel.runtime import SimulatedRuntime

assert compaction_cluster  # its name puts this module on virtual time


SOURCES: dict[str, Callable[[], Source]] = {
    "kafka, cut": lambda: kafka(0, 100_000),
    "aiven": lambda: aiven(0),
}


@pytest.mark.parametrize("name", SOURCES)
async def test_history_becomes_the_table_and_the_source_stays_as_it_was(name: str) -> None:
    world = await Attached(SOURCES[name]()).start()
    before = world.foreign_bytes()
    history = world.committed()
    assert len(history) < world.source.end, "there are markers, and an aborted transaction"
    assert await world.read() == history
    end = world.source.end
    await world.cluster.append(world.stream, b"first here", b"second here")
    expected = [*history, (end, b"first here"), (end + 1, b"second here")]
    assert await world.read() == expected
    summary = await world.cluster.worker().once()
    assert summary.troubles == []
    kinds = {line.split()[0] for line in await world.cluster.entries(world.stream)}
    assert kinds == {"parquet"}
    assert await world.read() == expected, "the log, from the files"
    assert world.topic is not None
    assert (await world.cluster.table_rows(world.topic))[0] == expected
    await world.collect()
    assert world.foreign_bytes() == before, "nothing of the source was touched"
    mark = await world.cluster.streams.high_watermark(world.stream)
    assert mark is not None
    assert mark.value.origin is not None
    assert mark.value.origin.boundary == end


async def test_damage_stops_compaction_of_its_stream_and_is_named() -> None:
    source = kafka(0)
    path = source.segments[1][0].path
    data = bytearray(source.bucket.objects[path].data)
    data[len(data) // 2] ^= 1
    source.bucket.put(path, bytes(data), 0)
    world = await Attached(source).start()
    summary = await world.cluster.worker().once()
    [trouble] = summary.troubles
    assert path in str(trouble)
    assert [line.split()[0] for line in await world.cluster.entries(world.stream)] == ["outside"] * 2


async def test_retention_by_size_counts_what_the_source_wrote() -> None:
    source = kafka(0)
    second = len(source.contents[1])
    world = await Attached(source, {"retention.bytes": str(second)}).start()
    retention = Retention(world.cluster.streams, world.cluster.runtime, world.cluster.settings)
    assert not await retention.keep(world.stream, -1, second + len(source.contents[0]) + 1)
    assert await retention.keep(world.stream, -1, second)
    assert (await world.cluster.new_log().bounds(world.stream)).start == source.segments[0][0].end
    await world.collect()
    assert world.foreign_bytes(), "borrowed objects stay"
    assert source.segments[0][0].path in world.source.bucket.objects


async def test_retention_by_age_goes_by_the_times_of_the_source() -> None:
    now = SimulatedRuntime(1).wall_ms()
    batches = [(base, batch_bytes([b"x"] * 2, timestamps=[now - 60_000] * 2)) for base in (0, 2)]
    world = await Attached(written(batches, 4)).start()
    retention = Retention(world.cluster.streams, world.cluster.runtime, world.cluster.settings)
    assert not await retention.keep(world.stream, 120_000, -1)
    assert await retention.keep(world.stream, 30_000, -1)
    assert (await world.cluster.new_log().bounds(world.stream)).start == 4


@pytest.mark.parametrize("compacted", [False, True])
async def test_records_are_deleted_within_a_foreign_segment_and_behind_it(compacted: bool) -> None:
    world = await Attached(kafka(0, 100_000)).start()
    await world.cluster.append(world.stream, b"first here", b"second here")
    everything = await world.read()
    middle = everything[len(everything) // 3][0] + 1
    await world.cluster.log.delete_records(world.stream, middle)
    if compacted:
        await world.cluster.worker().once()
    expected = [record for record in everything if record[0] >= middle]
    assert await world.read() == expected
    if compacted:
        assert world.topic is not None
        assert (await world.cluster.table_rows(world.topic))[0] == expected
    await world.cluster.log.delete_records(world.stream, world.source.end + 1)
    assert await world.read() == [(world.source.end + 1, b"second here")]


async def test_a_deleted_topic_leaves_what_is_borrowed() -> None:
    world = await Attached(kafka(0)).start()
    before = world.foreign_bytes()
    assert world.topic is not None
    await world.cluster.delete(world.topic)
    await world.collect()
    assert world.foreign_bytes() == before
    assert world.cluster.keys(keys.offset_index(world.stream)) == []


async def test_a_gap_of_nothing_but_aborted_records_is_no_row() -> None:
    batches = [(0, batch_bytes([b"a", b"b"])), (2, batch_bytes([b"c"], producer=(5, 0, 0)))]
    source = written(batches, 10, aborted=[AbortedRange(5, 2, 9)])
    world = await Attached(source).start()
    await world.cluster.worker().once()
    assert await world.read() == [(0, b"a"), (1, b"b"), (2, b"c")], "it is not transactional"


# --- whose they are


async def test_adopted_segments_go_once_nothing_needs_them_and_not_before() -> None:
    world = await Attached(kafka(0, 100_000)).start()
    assert await world.ownership().adopt(world.stream) == 2
    assert await world.ownership().adopt(world.stream) == 0, "they are ours already"
    await world.collect()
    expected = world.committed()
    assert await world.read() == expected, "every entry has its reference"
    first = world.source.segments[0][0]
    [entry] = [one for one in world.source.entries() if one.object_id == first.segment_id][:1]
    await world.cluster.log.delete_records(world.stream, entry.end)
    await world.collect()
    assert first.path in world.source.bucket.objects, "another entry names the same segment"
    await world.cluster.worker().once()
    await world.collect()
    assert world.foreign_bytes() == {}, "segments, indexes and snapshots"
    assert await world.read() == [record for record in expected if record[0] >= entry.end]
    assert world.cluster.keys(keys.REFERENCES) == []
    assert world.cluster.keys(keys.OBJECTS) == []


async def test_a_deleted_topic_takes_what_was_adopted_with_it() -> None:
    world = await Attached(aiven(0)).start()
    await world.ownership().adopt(world.stream)
    assert world.topic is not None
    await world.cluster.delete(world.topic)
    await world.collect()
    assert world.foreign_bytes() == {}


async def test_an_adopted_segment_stays_where_its_store_is_not_known() -> None:
    world = await Attached(kafka(0)).start()
    await world.ownership().adopt(world.stream)
    before = world.foreign_bytes()
    assert world.topic is not None
    await world.cluster.delete(world.topic)
    world.cluster.foreign.clear()
    await world.collect()
    assert world.foreign_bytes() == before
    assert world.cluster.keys(keys.OBJECTS), "it is still known"


@pytest.mark.parametrize("name", SOURCES)
async def test_a_copied_segment_is_read_from_our_store(name: str) -> None:
    world = await Attached(SOURCES[name]()).start()
    expected = world.committed()
    before = world.foreign_bytes()
    assert await world.ownership().copy(world.stream) == len(world.source.segments)
    assert world.foreign_bytes() == before
    assert await world.ownership().copy(world.stream) == 0
    world.source.bucket.objects.clear()
    await world.collect()
    assert await world.read() == expected, "the source is not needed any more"
    if name == "aiven":
        return
    await world.cluster.worker().once()
    await world.collect()
    assert await world.read() == expected
    assert not [path for path in world.cluster.bucket.objects if path.startswith("foreign/")]
    assert world.cluster.keys(keys.REFERENCES) == []


async def test_an_audit_says_what_is_gone_and_raises_the_start_over_the_oldest_only() -> None:
    world = await Attached(kafka(0)).start()
    first, second = [segment for segment, _ in world.source.segments]
    finding = await world.cluster.log.entries.audit(world.stream)
    assert (finding.segments, finding.borrowed, finding.is_complete) == (2, 2, True)
    kept = dict(world.source.bucket.objects)

    world.source.bucket.delete(second.path)
    finding = await world.cluster.log.entries.audit(world.stream)
    assert (finding.missing, finding.raised_to, finding.is_complete) == ([second.path], None, False)

    world.source.bucket.delete(first.path)
    finding = await world.cluster.log.entries.audit(world.stream)
    assert finding.raised_to is None, "all are gone: the store may be the wrong one"
    assert (await world.cluster.log.bounds(world.stream)).start == 0

    world.source.bucket.objects.update(kept)
    world.source.bucket.delete(first.path)
    finding = await world.cluster.log.entries.audit(world.stream)
    assert (finding.missing, finding.raised_to) == ([], first.end)
    assert (await world.cluster.log.bounds(world.stream)).start == first.end
    assert (await world.read())[0][0] == second.start


async def test_an_audit_notices_an_object_of_another_size() -> None:
    world = await Attached(kafka(0)).start()
    _, second = [segment for segment, _ in world.source.segments]
    world.source.bucket.put(second.path, b"other bytes", 0)
    finding = await world.cluster.log.entries.audit(world.stream)
    assert finding.missing == [second.path]


async def test_an_oldest_object_of_another_size_is_not_taken_for_expired() -> None:
    """The source's retention takes objects away. What is there and differs is a mistake, not an end."""
    world = await Attached(kafka(0)).start()
    first, _ = [segment for segment, _ in world.source.segments]
    world.source.bucket.put(first.path, b"other bytes", 0)
    finding = await world.cluster.log.entries.audit(world.stream)
    assert (finding.missing, finding.raised_to) == ([first.path], None)
    assert (await world.cluster.log.bounds(world.stream)).start == 0


def test_all_that_there_is_of_a_segment_is_adopted() -> None:
    for source in (kafka(0), aiven(0)):
        named = {path for entry in source.entries() for path in paths_of(entry)}
        assert set(source.bucket.objects) <= named


# --- on Spark's workers


def test_a_worker_reads_foreign_segments_by_itself(tmp_path: Path) -> None:
    """What travels to a worker is enough: the unit, and how to open the stores."""
    source = aiven(0)
    unit = Unit(
        "orders",
        UUID(int=77),
        0,
        5,
        1,
        tuple(entry.encode() for entry in source.entries()),
        0,
        source.end,
        unit_prefix("orders", UUID(int=77), 0, 5),
    )
    address = StoreAddress(
        f"file:{tmp_path}",
        outside=ForeignAddresses({STORE: ForeignAddress(f"file:{AIVEN}", keys=source.keys)}),
    )
    shipped = pickle.loads(pickle.dumps(address))
    [written] = write_units([unit], shipped)
    assert isinstance(written, WrittenFile), written
    expected = Attached(source).committed()
    assert rows_in((tmp_path / written.path).read_bytes()) == expected
    assert written.record_count == len(expected)
    [refused] = write_units([unit], replace(shipped, outside=ForeignAddresses({})))
    assert isinstance(refused, UnitFailed)
    assert "foreign.stores" in refused.reason
    [unread] = write_units([unit], replace(shipped, outside=None))
    assert isinstance(unread, UnitFailed)
    assert not unread.retriable
