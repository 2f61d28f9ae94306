"""What the metadata store says of a topic: where every offset lies."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest

from dray.base.runtime import SystemRuntime
from dray.inspection.records.passport import place_in
from dray.inspection.storage.stored import (
    MOST_PIECES,
    EntryOf,
    MapPiece,
    ReadOnly,
    ReadOnlyMetadataStore,
    StoredCluster,
    map_of,
    merged,
)
from dray.log.entries import BatchReference, HighWatermark, IndexEntry, pack_batches
from dray.log.jobs.machine import Compaction, Job, JobState
from dray.log.parquet.statistics import RowGroup
from dray.log.read.time_lookup import time_in
from dray.log.stream_store import StreamView, Versioned
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore


def wal(start: int, end: int, number: int = 1) -> IndexEntry:
    batch = BatchReference(100, 50, end - start, 0, 1000 + start, 1000 + end, -1, -1, -1)
    return IndexEntry(
        start,
        end,
        end,
        7,
        1000 + start,
        1000 + end,
        1000 + end,
        end - 1,
        UUID(int=number),
        f"wal/{number}",
        pack_batches([batch]),
    )


def parquet(start: int, end: int) -> IndexEntry:
    middle = (start + end) // 2
    groups = [
        RowGroup(4, 500, middle - start, start, 1, 1000 + start, 1000 + middle, middle - 1),
        RowGroup(504, 400, end - middle, middle, 1, 1000 + middle, 1000 + end, end - 1),
    ]
    return IndexEntry.parquet([wal(start, end)], UUID(int=9), "files/9", 1000, 96, groups)


def view_of(start: int, *entries: IndexEntry, head: IndexEntry | None) -> StreamView:
    end = head.end if head is not None else entries[-1].end
    mark = HighWatermark(end, end, -1, -1, head)
    return StreamView(Versioned(mark, 1), start, [Versioned(entry, 1) for entry in entries])


def test_a_map_shows_what_lies_where() -> None:
    view = view_of(4, parquet(0, 10), wal(10, 15), head=wal(15, 20, 2))
    found = map_of(0, 3, view, None)
    assert [(piece.kind, piece.start, piece.end, piece.size) for piece in found.pieces] == [
        ("parquet", 4, 10, 1000),
        ("wal", 10, 15, 50),
        ("newest", 15, 20, 50),
    ]
    assert (found.start, found.end, found.table_end) == (4, 20, 10)
    assert (found.wal_bytes, found.wal_objects, found.parquet_bytes, found.parquet_files) == (100, 2, 1000, 1)


def test_entries_that_do_not_count_are_not_drawn() -> None:
    view = view_of(6, wal(0, 6), wal(6, 8), parquet(6, 10), head=None)
    assert [(piece.start, piece.end) for piece in map_of(0, 3, view, None).pieces] == [(6, 10)]
    assert map_of(0, 3, None, None).pieces == []


def test_a_job_under_way_is_drawn_and_a_done_one_is_not() -> None:
    compaction = Compaction("t", UUID(int=1), 0, 10, 15, (), True)
    view = view_of(0, wal(0, 20), head=None)
    running = map_of(0, 3, view, Job(1, JobState.CREATED, compaction=compaction)).job
    assert running is not None
    assert (running.start, running.end, running.state) == (10, 15, "CREATED")
    assert map_of(0, 3, view, Job(1, JobState.DONE)).job is None
    assert map_of(0, 3, view, Job(1, JobState.RETAIN, threshold=5)).job is None


def test_a_long_index_is_drawn_with_few_pieces_and_none_of_it_is_lost() -> None:
    pieces = [MapPiece("wal" if n % 1000 else "parquet", n, n + 1, 10, 1, f"{n}", n) for n in range(100_000)]
    drawn = merged(pieces, 100_000)
    assert len(drawn) <= 2 * MOST_PIECES + 2 * 100
    assert (drawn[0].start, drawn[-1].end) == (0, 100_000)
    assert all(one.end == next_one.start for one, next_one in pairwise(drawn))
    assert sum(piece.size for piece in drawn) == 1_000_000
    assert sum(piece.objects for piece in drawn) == 100_000
    assert sum(piece.end - piece.start for piece in drawn if piece.kind == "parquet") == 100


def test_the_place_and_the_time_of_a_record_between_holes() -> None:
    """Its row group is the one that reaches to it; in which row it is, only the rows say."""
    groups = [RowGroup(4, 500, 2, 2, 1, 100, 200, 4), RowGroup(504, 400, 2, 7, 1, 300, 400, 8)]
    entry = IndexEntry.parquet([wal(0, 20)], UUID(int=9), "files/9", 1000, 96, groups)
    assert entry.sparse
    inside = place_in(EntryOf(entry, False), 3)
    assert (inside.position, inside.row_group, inside.row) == (4, 0, None)
    dense = place_in(EntryOf(entry, False), 8)
    assert (dense.position, dense.row_group, dense.row) == (504, 1, 1)
    assert place_in(EntryOf(entry, False), 5).row_group is None, "between the groups"
    assert [time_in(entry, offset) for offset in (0, 2, 4, 5, 8, 9, 19)] == [
        100,
        100,
        100,
        300,
        300,
        400,
        400,
    ]


def test_the_place_of_a_record() -> None:
    place = place_in(EntryOf(parquet(0, 10), False), 7)
    assert (place.kind, place.position, place.length, place.row_group, place.row) == (
        "parquet",
        504,
        400,
        1,
        2,
    )
    place = place_in(EntryOf(wal(10, 15), True), 12, wal_max_age_ms=100)
    assert (place.kind, place.position, place.length, place.row, place.is_head) == (
        "wal",
        100,
        50,
        None,
        True,
    )
    assert place.due_ms == 107


async def test_the_stores_are_never_written() -> None:
    store = ReadOnlyMetadataStore(MemoryStore(SystemRuntime()))
    with pytest.raises(ReadOnly):
        await store.write(0, [Put(keys.CLUSTER, b"x")])
    with pytest.raises(ReadOnly):
        await store.session(0, 10.0)
    assert await store.get(0, keys.CLUSTER) is None


async def test_values_of_a_newer_build_are_left_out_and_no_failure() -> None:
    memory = MemoryStore(SystemRuntime())
    unreadable = b"\xff???"
    await memory.write(
        0,
        [
            Put(keys.broker(3), unreadable),
            Put(keys.topic("t"), unreadable),
            Put(keys.job(0), unreadable),
        ],
    )
    stored = StoredCluster(memory, 1, {}, 1000)
    assert await stored.registrations() == []
    assert await stored.topic("t") is None
    assert await stored.job(0) is None
    assert await stored.time_of("t", 0, 5) is None
