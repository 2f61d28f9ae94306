"""Values of the log as its tests of stored formats have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from dray.log.entries import (
    BatchReference,
    EntryKind,
    IndexEntry,
    pack_batches,
)
from dray.log.jobs.machine import Compaction, Input, Job, JobState
from dray.log.parquet.statistics import RowGroup
from dray.log.types import Versioned

FIXTURES = Path(__file__).parents[2] / "fixtures" / "values"
DAY_MS = 24 * 3_600_000
WAL_ID = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
PATH = f"wal/v1/zone=local/domain=1/date=2026/11/15/{WAL_ID}.wo"

ENTRY = IndexEntry(
    start=1000,
    end=1007,
    cumulative_size=123_456,
    created_ms=1_790_000_000_000,
    min_timestamp=1_789_999_999_000,
    max_timestamp=1_790_000_000_500,
    running_max_timestamp=1_790_000_000_900,
    running_max_offset=42,
    object_id=WAL_ID,
    path=PATH,
    table=pack_batches(
        [
            BatchReference(97, 210, 5, 0x02, 1_789_999_999_000, 1_790_000_000_500, 7, 3, 2**31 - 2),
            BatchReference(311, 80, 2, 0x08, 1_790_000_000_100, 1_790_000_000_100, -1, -1, -1),
        ]
    ),
)

PARQUET_ID = UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
PARQUET_ENTRY = IndexEntry.parquet(
    [ENTRY],
    PARQUET_ID,
    f"compaction/v1/topic=orders/partition=3/job-7-{PARQUET_ID.hex}.parquet",
    file_size=5_000_000_000,
    footer_length=2048,
    row_groups=[
        RowGroup(4, 800, 5, 1000, 900, 1_789_999_999_000, 1_790_000_000_500, 1004),
        RowGroup(4_999_000_000, 700, 2, 1005, 300, 1_790_000_000_100, 1_790_000_000_100, 1006),
    ],
)

COMPACTING = Job(
    13,
    JobState.PARQUET_WRITTEN,
    compaction=Compaction(
        topic="orders",
        topic_id=UUID(int=9),
        partition=3,
        start=990,
        end=1007,
        inputs=(
            Input(1000, 100_000, 41, PARQUET_ID, EntryKind.PARQUET, PARQUET_ENTRY.path),
            Input.of(Versioned(ENTRY, 42)),
        ),
        table=True,
        owner="somebody",
        written={"path": "a", "parquet_id": PARQUET_ID.hex, "row_groups": [[1, 2, 3]]},
    ),
)

FIRST_BATCH = bytes(range(100, 180))
CARRIED_ENTRY = replace(
    ENTRY,
    path="",
    table=pack_batches(
        [
            BatchReference(0, 80, 5, 0x02, 1_789_999_999_000, 1_790_000_000_500, 7, 3, 2**31 - 2),
            BatchReference(80, 70, 2, 0x08, 1_790_000_000_100, 1_790_000_000_100, -1, -1, -1),
        ]
    ),
    kind=EntryKind.CARRIED,
    data=FIRST_BATCH + bytes(70),
)
MERGED = IndexEntry.packed(
    [CARRIED_ENTRY],
    PARQUET_ID,
    PATH,
    [reference._replace(position=97 + reference.position) for _, reference in CARRIED_ENTRY.batches()],
)
