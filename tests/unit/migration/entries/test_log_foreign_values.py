"""Stored values of streams that began elsewhere: foreign segments, mirrors, boundaries."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.log.stored_values import ENTRY, FIXTURES, PARQUET_ID, PATH, WAL_ID

from dray.log import wal_keys
from dray.log.entries import (
    EntryKind,
    HighWatermark,
    IndexEntry,
)
from dray.log.jobs.machine import Compaction, Input, Job, JobState, Packing
from dray.log.origins import CLASSIC, BoundaryStands, Origin
from dray.log.outside_table import AbortedRange, OutsideRow, OutsideTable
from dray.log.types import Versioned
from dray.metadata.contract import Delete, Operation
from dray.metadata.values import UnreadableValue
from dray.migration.entries.segments import ForeignLayout

SEGMENT_TABLE = OutsideTable(
    ForeignLayout.AIVEN,
    "old-kafka",
    "tiered/orders-id/3/00000000000000001000-segment.rsm-manifest",
    object_size=700_000_000,
    end_position=2**31 + 5,
    rows=(
        OutsideRow(1000, 0, -1),
        OutsideRow(1003, 4_200_000, 1_790_000_000_100),
        OutsideRow(1005, 2**31, 1_790_000_000_500),
    ),
    aborted=(AbortedRange(77, 990, 1002), AbortedRange(2**40, 1004, 2000)),
)
SEGMENT_ENTRY = replace(
    ENTRY,
    object_id=PARQUET_ID,
    path="tiered/orders-id/3/00000000000000001000-segment.log",
    table=SEGMENT_TABLE.encode(),
    kind=EntryKind.OUTSIDE,
)


def test_an_entry_of_a_foreign_segment_is_kept_as_format_5() -> None:
    kept = (FIXTURES / "log-index-entry.v5.bin").read_bytes()
    assert kept[:2] == b"\5\3"
    assert IndexEntry.decode(kept) == SEGMENT_ENTRY
    assert IndexEntry.decode(kept).outside() == SEGMENT_TABLE
    assert SEGMENT_ENTRY.encode() == kept
    assert SEGMENT_ENTRY.stored_bytes == 2**31 + 5
    assert not SEGMENT_ENTRY.is_referenced
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            IndexEntry.decode(kept[:length])


@pytest.mark.parametrize(
    "table",
    [
        replace(SEGMENT_TABLE, rows=()),
        replace(SEGMENT_TABLE, rows=SEGMENT_TABLE.rows[::-1]),
        replace(SEGMENT_TABLE, rows=(SEGMENT_TABLE.rows[0], SEGMENT_TABLE.rows[0])),
        replace(SEGMENT_TABLE, end_position=2**31),
    ],
    ids=["no rows", "they fall", "they stand", "the last is behind the end"],
)
def test_rows_of_a_foreign_segment_must_grow(table: OutsideTable) -> None:
    with pytest.raises(UnreadableValue):
        IndexEntry.decode(replace(SEGMENT_ENTRY, table=table.encode()).encode())


def test_a_count_of_aborted_transactions_is_held_against_the_bytes() -> None:
    table = bytearray(SEGMENT_TABLE.encode())
    table[20:24] = b"\xff\xff\xff\xff"
    with pytest.raises(UnreadableValue):
        IndexEntry.decode(SEGMENT_ENTRY.encode()[: -len(table)] + bytes(table))


def test_a_high_watermark_of_a_stream_that_began_elsewhere_is_format_2() -> None:
    kept = (FIXTURES / "log-high-watermark.v2.bin").read_bytes()
    mark = HighWatermark.at(ENTRY, Origin(boundary=900, tier_end=800, leader_epoch=65_541))
    assert kept[0] == 2
    assert HighWatermark.decode(kept) == mark
    assert mark.encode() == kept
    assert mark.sealed().origin == mark.origin, "B0 never changes"
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            HighWatermark.decode(kept[:length])


def test_a_high_watermark_of_a_stream_that_is_mirrored_is_format_3() -> None:
    """With the epoch of the last batch, as the source gave it."""
    kept = (FIXTURES / "log-high-watermark.v3.bin").read_bytes()
    mark = HighWatermark.at(SEGMENT_ENTRY, Origin(CLASSIC, 800, 65_541, source_epoch=5))
    assert kept[0] == 3
    assert HighWatermark.decode(kept) == mark
    assert mark.encode() == kept
    assert mark.sealed().origin == mark.origin
    assert mark.switched().origin == Origin(1007, 800, 65_541, 5)
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            HighWatermark.decode(kept[:length])


def test_the_mark_of_a_mirrored_object_is_format_3() -> None:
    """Its references have the ends of entries: an older collector would delete others."""
    kept = (FIXTURES / "log-staging-mark.v3.bin").read_bytes()
    mark = wal_keys.Staging(PATH, (1, 2**40), wal_keys.StagingKind.OUTSIDE, (1007, 2**41))
    assert kept[0] == 3
    assert wal_keys.Staging.decode(kept) == mark
    assert mark.encode() == kept
    held = [wal_keys.refer_to_entry(WAL_ID, 1, 1007), wal_keys.refer_to_entry(WAL_ID, 2**40, 2**41)]
    assert wal_keys.stage(WAL_ID, mark)[2:] == held
    deleted: list[Operation] = [Delete(put.key) for put in held]
    assert wal_keys.settle(WAL_ID, 7, mark.streams, mark)[:-1] == deleted
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            wal_keys.Staging.decode(kept[:length])


COMPACTING_SEGMENTS = Job(
    14,
    JobState.CREATED,
    compaction=Compaction(
        topic="orders",
        topic_id=UUID(int=9),
        partition=3,
        start=1000,
        end=1007,
        inputs=(Input.of(Versioned(SEGMENT_ENTRY, 42)),),
        table=True,
    ),
)
COPYING = Job(
    15,
    JobState.PACKED,
    packing=Packing.of([Versioned(SEGMENT_ENTRY, 42)], replace(SEGMENT_ENTRY, path="copy")),
)


@pytest.mark.parametrize(
    ("name", "job"), [("log-job-segments", COMPACTING_SEGMENTS), ("log-job-copied", COPYING)]
)
def test_a_job_over_foreign_segments_is_kept_as_format_4(name: str, job: Job) -> None:
    kept = (FIXTURES / f"{name}.v4.bin").read_bytes()
    assert kept[0] == 4
    assert Job.decode(kept) == job
    assert job.encode() == kept
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            Job.decode(kept[:length])


def test_the_object_key_of_a_segment_that_is_ours_is_format_2() -> None:
    kept = (FIXTURES / "log-object-key.v2.bin").read_bytes()
    assert kept[0] == 2
    owned = wal_keys.decode_owned(kept)
    assert owned == wal_keys.OwnedObject(("a/1.log", "a/1.index"), "old-kafka", is_outside=True)
    assert wal_keys.encode_owned(owned.store, owned.paths) == kept
    assert wal_keys.decode_owned(wal_keys.encode_object(PATH)) == wal_keys.OwnedObject((PATH,))
    whole = {length for length in range(len(kept)) if _is_whole(kept[:length])}
    assert whole == {len(kept) - 2 - len("a/1.index")}, "a value that ends behind a path is one with fewer"


def _is_whole(value: bytes) -> bool:
    try:
        wal_keys.decode_owned(value)
    except UnreadableValue:
        return False
    return True


def test_only_a_stream_that_its_source_owns_is_switched_and_only_once() -> None:
    classic = HighWatermark(1007, origin=Origin(CLASSIC, 800, 65_541))
    switched = classic.switched()
    assert switched == HighWatermark(1007, origin=Origin(1007, 800, 65_541))
    assert HighWatermark.decode(switched.encode()) == switched
    for other in (switched, HighWatermark.at(ENTRY)):
        with pytest.raises(BoundaryStands):
            other.switched()
