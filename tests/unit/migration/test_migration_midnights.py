"""A log whose times its broker stamped is cut where a day begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack_into

import pytest
from tests.unit.migration.aiven_made import aiven_segment
from tests.unit.migration.attach_harness import Cluster

from dray.kafka.records import BatchHeader, Record, twin
from dray.kafka.records.header import LOG_APPEND_TIME
from dray.log.entries import IndexEntry
from dray.migration.attach import found
from dray.migration.attach import steps as attach
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import SourceLayout
from dray.migration.attach.midnights import UnpackedSegment

DAY = 24 * 3_600_000
NOON = 20_000 * DAY + DAY // 2


def batch(base: int, time: int, attributes: int) -> bytes:
    """Two records, as a broker stamped them: what the producer said stands beside it, years before."""
    records = [Record(base + place, time - 1_000 * DAY, b"k", b"value") for place in range(2)]
    records[1] = records[1]._replace(timestamp=time)
    made = twin.encode(records, attributes=attributes)
    pack_into(">q", made, 0, base)
    return bytes(made)


def segment(times: Sequence[int], attributes: int = LOG_APPEND_TIME) -> bytes:
    return b"".join([batch(2 * place, time, attributes) for place, time in enumerate(times)])


def log_dir(data: bytes) -> tuple[SourceLayout, dict[str, bytes]]:
    return SourceLayout.LOG_DIR, {"orders-0/00000000000000000000.log": data}


def aiven(data: bytes) -> tuple[SourceLayout, dict[str, bytes]]:
    """In chunks that end within batches."""
    return SourceLayout.AIVEN, aiven_segment(data, 2 * len(data) // 7)


LAYOUTS = pytest.mark.parametrize("laid", [log_dir, aiven])
Laid = Callable[[bytes], tuple[SourceLayout, dict[str, bytes]]]


async def attached(source: tuple[SourceLayout, dict[str, bytes]]) -> list[IndexEntry]:
    cluster = Cluster(*source)
    record = await cluster.process().attach(await cluster.source(), await cluster.order())
    view = await cluster.streams.view(record.streams[0])
    assert view is not None
    return [entry.value for entry in view.entries]


@LAYOUTS
@pytest.mark.parametrize("step", [1, 1 << 20], ids=["a row for each batch", "one row"])
async def test_each_day_is_an_entry(laid: Laid, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "ROW_STEP", step)
    hours = 3_600_000
    times = [NOON, NOON + hours, NOON + 13 * hours, NOON + 14 * hours, NOON + 90 * hours, NOON + 91 * hours]
    entries = await attached(laid(segment(times)))
    assert [(each.start, each.end) for each in entries] == [(0, 4), (4, 8), (8, 12)]
    assert [{each.min_timestamp // DAY, each.max_timestamp // DAY} for each in entries] == [
        {20_000},
        {20_001},
        {20_004},
    ]
    for each, first in zip(entries, (0, 2, 4), strict=True):
        assert each.min_timestamp <= times[first] <= times[first + 1] <= each.max_timestamp


@LAYOUTS
@pytest.mark.parametrize("crossing", range(1, 6))
async def test_a_midnight_is_found_wherever_it_lies(
    laid: Laid, crossing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "ROW_STEP", 1)
    times = [NOON + place if place < crossing else NOON + DAY + place for place in range(6)]
    entries = await attached(laid(segment(times)))
    assert [(each.start, each.end) for each in entries] == [(0, 2 * crossing), (2 * crossing, 12)]


@LAYOUTS
async def test_times_of_producers_are_no_reason_to_cut(laid: Laid) -> None:
    entries = await attached(laid(segment([NOON, NOON + DAY, NOON, NOON + 2 * DAY], attributes=0)))
    assert [(each.start, each.end) for each in entries] == [(0, 8)]
    assert entries[0].min_timestamp // DAY < entries[0].max_timestamp // DAY


async def test_a_first_record_of_the_day_before_is_seen() -> None:
    """The time index of a segment begins behind it."""
    times = [NOON, NOON + DAY, NOON + DAY + 1]
    entries = await attached((SourceLayout.AIVEN, aiven_segment(segment(times), 100, rows_from=2)))
    assert [(each.start, each.end) for each in entries] == [(0, 2), (2, 6)]


@LAYOUTS
async def test_a_large_segment_becomes_several_entries(laid: Laid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "ROW_STEP", 1)
    data = segment([NOON] * 40)
    monkeypatch.setattr(attach, "ENTRY_BYTES", len(data) // 4)
    entries = await attached(laid(data))
    assert [(each.start, each.end) for each in entries] == [(0, 20), (20, 40), (40, 60), (60, 80)]
    assert [each.outside().rows[0].position for each in entries] == [
        0,
        *[len(data) // 4 * at for at in (1, 2, 3)],
    ]


async def test_a_midnight_takes_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unpacks a chunk. Where the time index has a row for every batch, it says where to look."""
    monkeypatch.setattr(found, "ROW_STEP", 1)
    looked: list[int] = []
    header = UnpackedSegment.header

    async def counted(self: UnpackedSegment, position: int) -> BatchHeader:
        looked.append(position)
        return await header(self, position)

    monkeypatch.setattr(UnpackedSegment, "header", counted)
    times = [NOON + place for place in range(130)] + [NOON + DAY + place for place in range(70)]
    entries = await attached(aiven(segment(times)))
    assert [(each.start, each.end) for each in entries] == [(0, 260), (260, 400)]
    assert len(looked) <= 5


async def test_a_chunk_that_is_damaged_where_it_is_cut_refuses_the_attach() -> None:
    files = aiven_segment(segment([NOON, NOON + DAY, NOON + 2 * DAY]), 100)
    [log] = [path for path in files if path.endswith(".log")]
    damaged = bytearray(files[log])
    damaged[20] ^= 1
    files[log] = bytes(damaged)
    with pytest.raises(MigrationRefused, match="does not decrypt"):
        await attached((SourceLayout.AIVEN, files))
