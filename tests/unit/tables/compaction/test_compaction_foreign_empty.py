"""Stretches of a foreign log without a committed record: they become part of a file beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL
from tests.unit.log.harness import batch_bytes
from tests.unit.migration.entries.foreign_harness import Source, written
from tests.unit.tables.compaction.foreign_attached import PRODUCER, Attached, aborted, transactional

from dray.kafka.records import read_header
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.log.outside_table import AbortedRange
from dray.migration.entries.lay_down import SegmentCut
from dray.migration.formats import walk_batches
from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.spark.worker import from_row, to_row

assert compaction_cluster  # its name puts this module on virtual time
EACH_ALONE = replace(ALL, target_file_bytes=1)


def marker(base: int) -> tuple[int, bytearray]:
    return base, transactional([b"\0\0\0\0\0\0"], TRANSACTIONAL | CONTROL)


def kept(base: int) -> tuple[int, bytearray]:
    return base, batch_bytes([b"kept %d" % base, b"kept %d" % (base + 1)])


def history(*batches: tuple[int, bytearray]) -> Source:
    """A segment of these, each an entry of its own. What its producer wrote was aborted."""
    last = batches[-1][0] + read_header(batches[-1][1]).last_offset_delta + 1
    source = written(batches, last, aborted=[AbortedRange(PRODUCER, 0, last - 1)])
    [(segment, _)] = source.segments
    cuts = [
        SegmentCut(batch.position, batch.header.base_offset) for batch in walk_batches(source.contents[0])
    ]
    source.segments = [(segment, cuts[1:])]
    return source


HISTORIES = {
    "in front": history(aborted(0), aborted(2), aborted(4), marker(6), kept(7)),
    "between": history(kept(0), aborted(2), aborted(4), marker(6), kept(7), kept(9)),
    "at the end": history(kept(0), kept(2), aborted(4), aborted(6), marker(8)),
    "markers only": history(kept(0), marker(2), kept(3), marker(5), marker(6)),
}


@pytest.mark.parametrize("settings", [ALL, EACH_ALONE], ids=["together", "each alone"])
@pytest.mark.parametrize("name", HISTORIES)
async def test_what_is_left_becomes_the_table(name: str, settings: CompactionSettings) -> None:
    world = await Attached(HISTORIES[name]).start()
    expected = world.committed()
    summary = await world.cluster.worker(settings).once()
    assert summary.troubles == []
    assert {line.split()[0] for line in await world.cluster.entries(world.stream)} == {"parquet"}
    assert world.topic is not None
    assert (await world.cluster.table_rows(world.topic))[0] == expected
    assert await world.read() == expected
    bounds = await world.cluster.new_log().bounds(world.stream)
    assert (bounds.start, bounds.end) == (0, world.source.end)


async def test_where_nothing_is_left_at_all_it_waits_for_the_first_record() -> None:
    world = await Attached(history(aborted(0), marker(2))).start()
    worker = world.cluster.worker(EACH_ALONE)
    assert (await worker.once()).troubles == []
    assert {line.split()[0] for line in await world.cluster.entries(world.stream)} == {"outside"}
    await world.cluster.append(world.stream, b"first here")
    assert (await worker.once()).troubles == []
    assert await world.cluster.entries(world.stream) == ["parquet 0-4"]
    assert world.topic is not None
    assert (await world.cluster.table_rows(world.topic))[0] == [(3, b"first here")]
    assert await world.read() == [(3, b"first here")]


async def test_an_adopted_stretch_leaves_no_reference() -> None:
    world = await Attached(HISTORIES["between"]).start()
    await world.ownership().adopt(world.stream)
    await world.cluster.worker(EACH_ALONE).once()
    await world.collect()
    assert world.foreign_bytes() == {}


async def test_a_stretch_of_more_segments_than_a_job_can_name_is_refused_by_name() -> None:
    world = await Attached(history(aborted(0), aborted(2), aborted(4), kept(6))).start()
    summary = await world.cluster.worker(replace(EACH_ALONE, max_inputs=2)).once()
    [trouble] = summary.troubles
    assert "no record is left in 2 segments from offset 0 on" in str(trouble)


def test_an_empty_unit_is_known_as_such_when_spark_found_it() -> None:
    answer = UnitFailed(3, 4, "no record is left", retriable=False, empty=True)
    assert from_row(to_row(answer)) == answer
