"""What of a compacted topic is clean, dirty and gone, as people and metrics are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster
from tests.services.keyed_log import KeyedLog

from dray.log.jobs.clean_shares import CleanShares, Share

assert compaction_cluster  # its tests run on virtual time: see conftest

# Old entries become files, and files are merged by key only when the ratio asks for it.
LAZY = replace(ALL, wal_max_age=0.0, parquet_max_files=1000)


@pytest.fixture
async def log() -> KeyedLog:
    cluster = Cluster()
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    return KeyedLog(cluster, await cluster.topic("orders", config=config), 86_400_000)


async def shares(log: KeyedLog) -> CleanShares:
    view = await log.cluster.streams.view(log.stream)
    assert view is not None
    return CleanShares.of(view)


async def test_records_go_from_waiting_to_dirty_to_clean(log: KeyedLog) -> None:
    for _ in range(4):
        await log.append((b"a", b"1"), (b"b", b"1"))
    found = await shares(log)
    assert (found.offsets, found.waiting.records, found.records, found.removed) == (8, 8, 8, 0)
    assert found.waiting.size > 0
    assert (found.clean, found.dirty, found.clean_end, found.live_share) == (Share(), Share(), None, None)

    before = log.cluster.runtime.wall_ms()
    await log.cluster.worker().once()
    found = await shares(log)
    [entry] = [each.value for each in await log.cluster.streams.entries_above(log.stream, -1)]
    assert found.clean == Share(2, entry.file_size)
    assert (found.dirty, found.waiting) == (Share(), Share())
    assert (found.clean_end, found.removed, found.dirty_ratio, found.live_share) == (8, 6, 0.0, 1.0)
    assert found.cleaned_ms is not None
    assert found.cleaned_ms >= before

    await log.append((b"a", b"2"), (b"c", b"1"), (b"d", b"1"))
    await log.cluster.seal(log.stream)
    await log.cluster.worker(LAZY).compactor.run_cycle(everything=False)
    await log.append((b"a", b"3"))
    found = await shares(log)
    assert [found.clean.records, found.dirty.records, found.waiting.records] == [2, 3, 1]
    assert (found.clean_end, found.removed, found.offsets) == (8, 6, 12)
    assert found.live_share == pytest.approx(2 / 5)
    assert found.dirty_ratio == pytest.approx(found.dirty.size / (found.clean.size + found.dirty.size))


async def test_what_was_deleted_is_not_counted(log: KeyedLog) -> None:
    await log.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    await log.cluster.log.delete_records(log.stream, 2)
    found = await shares(log)
    assert (found.offsets, found.waiting.records, found.removed) == (1, 1, 0)


async def test_a_cycle_tells_what_it_removed_and_what_it_saw(log: KeyedLog) -> None:
    plain = await log.cluster.topic("plain")
    await log.cluster.fill(plain.streams[0], 1)
    for _ in range(3):
        await log.append((b"a", b"1"), (b"b", b"1"))
    summary = await log.cluster.worker().once()
    assert summary.removed_by_key == 4
    assert list(summary.clean_shares) == ["orders"], "a topic that is not compacted by key has none"
    assert summary.clean_shares["orders"].waiting.records == 6, "as it was before the work of the cycle"
    later = await log.cluster.worker().once()
    assert later.removed_by_key == 0
    assert later.clean_shares["orders"].clean.records == 2


def test_streams_add_up() -> None:
    first = CleanShares(10, Share(1, 2), Share(3, 4), Share(5, 6), 7, 8)
    second = CleanShares(20, Share(10, 20), Share(30, 40), Share(50, 60), 70, None)
    total = first + second
    assert total == CleanShares(30, Share(11, 22), Share(33, 44), Share(55, 66), None, 8)
