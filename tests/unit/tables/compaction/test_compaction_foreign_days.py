"""History of several days becomes a table by day, where each entry is of one."""

from __future__ import annotations

from tests.services import compaction_cluster
from tests.unit.log.harness import batch_bytes
from tests.unit.migration.entries.foreign_harness import Source, written
from tests.unit.tables.compaction.foreign_attached import PRODUCER, Attached, aborted

from dray.log.outside_table import AbortedRange
from dray.migration.entries.lay_down import SegmentCut
from dray.migration.formats import walk_batches

assert compaction_cluster  # its name puts this module on virtual time
DAY = 24 * 3_600_000
FIRST = 20_000 * DAY
BY_DAY = {"dray.iceberg.partition.by.day": "true", "message.timestamp.type": "LogAppendTime"}


def kept(base: int, time: int) -> tuple[int, bytearray]:
    return base, batch_bytes([b"%d" % base, b"%d" % (base + 1)], timestamps=[time, time])


def of_days(cuts: dict[int, int], *batches: tuple[int, bytearray]) -> Source:
    """`cuts`: by the base offset of its first batch, the midnight where an entry begins."""
    end = batches[-1][0] + 2
    source = written(batches, end, aborted=[AbortedRange(PRODUCER, 0, end - 1)])
    [(segment, _)] = source.segments
    places = {one.header.base_offset: one.position for one in walk_batches(source.contents[0])}
    source.segments = [(segment, [SegmentCut(places[base], base, time) for base, time in cuts.items()])]
    return source


async def file_days(world: Attached) -> list[tuple[int, int]]:
    """Of each file in the table: its first offset, and its day."""
    assert world.topic is not None
    files = world.cluster.catalog.tables[world.topic.name].newest.files.values()
    found = []
    for file in files:
        assert file.written.min_timestamp // DAY == file.written.max_timestamp // DAY
        found.append((file.written.row_groups[0].first_offset, file.written.min_timestamp // DAY))
    return sorted(found)


async def test_history_of_several_days_becomes_a_table_by_day() -> None:
    source = of_days(
        {4: FIRST + DAY, 8: FIRST + 4 * DAY},
        kept(0, FIRST),
        kept(2, FIRST + 5),
        kept(4, FIRST + DAY),
        kept(6, FIRST + 2 * DAY - 1),
        kept(8, FIRST + 4 * DAY),
    )
    world = await Attached(source, BY_DAY).start()
    expected = world.committed()
    assert (await world.cluster.worker().once()).troubles == []
    assert world.topic is not None
    assert (await world.cluster.table_rows(world.topic))[0] == expected
    assert await file_days(world) == [(0, 20_000), (4, 20_001), (8, 20_004)]
    assert await world.read() == expected


async def test_a_day_without_a_record_goes_with_the_next() -> None:
    """Whatever the times of what was aborted: no row of it is left."""
    source = of_days({2: FIRST + DAY}, aborted(0), kept(2, FIRST + DAY))
    world = await Attached(source, BY_DAY).start()
    assert (await world.cluster.worker().once()).troubles == []
    assert await file_days(world) == [(2, 20_001)]


async def test_an_entry_that_is_not_of_the_day_that_it_says_is_refused_before_its_table_hears_of_it() -> None:
    """As clocks of two leaders leave it: a batch of the day before, behind midnight."""
    source = of_days(
        {4: FIRST + DAY}, kept(0, FIRST), kept(2, FIRST + 1), kept(4, FIRST + DAY), kept(6, FIRST + DAY - 1)
    )
    world = await Attached(source, BY_DAY).start()
    summary = await world.cluster.worker().once()
    [trouble] = summary.troubles
    assert "its records from offset 4 on are of two days" in str(trouble)
    assert source.segments[0][0].path in str(trouble)
    assert await world.read() == world.committed(), "the log is not touched"
    job = await world.cluster.streams.job(world.stream)
    assert job.value.state.name == "DONE", "retention can go on"
