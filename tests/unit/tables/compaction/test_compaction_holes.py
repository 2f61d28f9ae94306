"""The table of a mirrored topic whose source deleted records before they were mirrored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL
from tests.unit.migration.entries.foreign_harness import EPOCH, Source
from tests.unit.migration.mirror.mirror_harness import Producer, SourceLog, mirror, mirror_all
from tests.unit.tables.compaction.foreign_attached import Attached

from dray.log.origins import CLASSIC
from dray.migration.entries.lay_down import AttachedStream
from dray.migration.formats.batches import ABORT, COMMIT
from dray.migration.mirror.mirrored_pieces import hole_before
from dray.tables.compaction.settings import CompactionSettings

assert compaction_cluster  # its name puts this module on virtual time
EACH_ALONE = replace(ALL, target_file_bytes=1)


class _NoTier(Source):
    def attached(self, **_: Any) -> AttachedStream:
        return AttachedStream([], 0, 0, EPOCH, boundary=CLASSIC)


class _Mirrored(Attached):
    def __init__(self) -> None:
        super().__init__(_NoTier())
        self.source_log = SourceLog()

    async def fill(self) -> None:
        source, log = self.source_log, self.cluster.log
        source.append([b"kept"] * 3)
        source.append([b"undone"], Producer(5, 0, 0), transactional=True)
        source.append([b"gone"] * 4)
        source.mark(Producer(5, 0), ABORT)
        source.append([b"done", b"done too"], Producer(5, 0, 1), transactional=True)
        source.mark(Producer(5, 0), COMMIT)
        source.append([b"gone", b"left", b"left too"])
        await mirror(log, self.stream, source, 2)
        await self._skip(9)
        await mirror(log, self.stream, source, 2)
        await self._skip(13)  # within the last batch
        await mirror_all(log, self.stream, source)

    async def _skip(self, start: int) -> None:
        mirror = self.cluster.log.mirror
        place = await mirror.place(self.stream)
        await mirror.commit(self.stream, memoryview(hole_before(start)), [], expected=place)


@pytest.mark.parametrize("raised", [None, 9, 13])
@pytest.mark.parametrize("settings", [ALL, EACH_ALONE], ids=["together", "each alone"])
async def test_holes_are_no_rows_and_hide_none(settings: CompactionSettings, raised: int | None) -> None:
    world = _Mirrored()
    await world.start()
    await world.fill()
    expected = [(0, b"kept"), (1, b"kept"), (2, b"kept"), (9, b"done"), (10, b"done too")]
    expected += [(13, b"left"), (14, b"left too")]
    assert await world.read() == expected
    if raised is not None:
        await world.cluster.log.mirror.raise_start(world.stream, raised)
        expected = [row for row in expected if row[0] >= raised]
        assert await world.read() == expected
    assert await world.cluster.log.mirror.decide(world.stream, 15)
    await world.cluster.append(world.stream, b"ours")
    await world.cluster.seal(world.stream)
    expected.append((15, b"ours"))
    summary = await world.cluster.worker(settings).once()
    assert summary.troubles == []
    assert {line.split()[0] for line in await world.cluster.entries(world.stream)} == {"parquet"}
    assert world.topic is not None
    assert (await world.cluster.table_rows(world.topic))[0] == expected
    assert await world.read() == expected
    bounds = await world.cluster.new_log().bounds(world.stream)
    assert (bounds.start, bounds.end) == (raised or 0, 16)
