"""A log whose times its broker stamped is cut where a day begins."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack_into

import pytest
from tests.unit.migration.attach_harness import Cluster

from dray.log.entries import IndexEntry
from dray.migration import found
from dray.migration.inventory import SourceLayout
from dray.records import Record, twin
from dray.records.header import LOG_APPEND_TIME

DAY = 24 * 3_600_000
NOON = 20_000 * DAY + DAY // 2


def batch(base: int, time: int, attributes: int) -> bytes:
    """Two records, as a broker stamped them: what the producer said stands beside it, years before."""
    records = [Record(base + place, time - 1_000 * DAY, b"k", b"value") for place in range(2)]
    records[1] = records[1]._replace(timestamp=time)
    made = twin.encode(records, attributes=attributes)
    pack_into(">q", made, 0, base)
    return bytes(made)


def log_dir(times: Sequence[int], attributes: int = LOG_APPEND_TIME) -> dict[str, bytes]:
    data = b"".join([batch(2 * place, time, attributes) for place, time in enumerate(times)])
    return {"orders-0/00000000000000000000.log": data}


async def attached(files: dict[str, bytes]) -> list[IndexEntry]:
    cluster = Cluster(SourceLayout.LOG_DIR, files)
    record = await cluster.process().attach(await cluster.source(), await cluster.order())
    view = await cluster.streams.view(record.streams[0])
    assert view is not None
    return [entry.value for entry in view.entries]


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["a row for each batch", "one row"])
async def test_each_day_is_an_entry(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "ROW_STEP", step)
    hours = 3_600_000
    times = [NOON, NOON + hours, NOON + 13 * hours, NOON + 14 * hours, NOON + 90 * hours, NOON + 91 * hours]
    entries = await attached(log_dir(times))
    assert [(each.start, each.end) for each in entries] == [(0, 4), (4, 8), (8, 12)]
    assert [{each.min_timestamp // DAY, each.max_timestamp // DAY} for each in entries] == [
        {20_000},
        {20_001},
        {20_004},
    ]
    for each, first in zip(entries, (0, 2, 4), strict=True):
        assert each.min_timestamp <= times[first] <= times[first + 1] <= each.max_timestamp


@pytest.mark.parametrize("crossing", range(1, 6))
async def test_a_midnight_is_found_wherever_it_lies(crossing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "ROW_STEP", 1)
    times = [NOON + place if place < crossing else NOON + DAY + place for place in range(6)]
    entries = await attached(log_dir(times))
    assert [(each.start, each.end) for each in entries] == [(0, 2 * crossing), (2 * crossing, 12)]


async def test_times_of_producers_are_no_reason_to_cut() -> None:
    entries = await attached(log_dir([NOON, NOON + DAY, NOON, NOON + 2 * DAY], attributes=0))
    assert [(each.start, each.end) for each in entries] == [(0, 8)]
    assert entries[0].min_timestamp // DAY < entries[0].max_timestamp // DAY
