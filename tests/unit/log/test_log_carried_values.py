"""Stored values of what is carried in its index entry, and of packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.stored_values import CARRIED_ENTRY, COMPACTING, FIXTURES, MERGED, PARQUET_ID, PATH, WAL_ID

from dray.log import wal_keys
from dray.log.append.carried_hints import check_hint, encode_hint
from dray.log.entries import (
    BatchReference,
    EntryKind,
    HighWatermark,
    IndexEntry,
    pack_batches,
)
from dray.log.jobs.machine import Input, Job, JobState, Packing
from dray.log.stream_store import StreamStore
from dray.log.types import Versioned
from dray.metadata import keys
from dray.metadata.values import UnreadableValue

PACKING = Job(14, JobState.PACKED, packing=Packing.of([Versioned(CARRIED_ENTRY, 43)], MERGED))
COMPACTING_CARRIED = replace(
    COMPACTING, compaction=replace(COMPACTING.compacted, inputs=(Input.of(Versioned(CARRIED_ENTRY, 44)),))
)
PACK_MARK = wal_keys.Staging(PATH, (1, 2**40, 3), wal_keys.StagingKind.PACK)

# the name of the fixture, the value, and how it is read
CARRIED: list[tuple[str, Any, Callable[[bytes], Any]]] = [
    ("log-index-entry.v3", CARRIED_ENTRY, IndexEntry.decode),
    ("log-job-packed.v3", PACKING, Job.decode),
    ("log-job-carried.v3", COMPACTING_CARRIED, Job.decode),
    ("log-staging-mark.v2", PACK_MARK, wal_keys.Staging.decode),
]


@pytest.mark.parametrize(("name", "value", "decode"), CARRIED, ids=[name for name, _, _ in CARRIED])
def test_what_carries_has_formats_of_its_own(name: str, value: Any, decode: Callable[[bytes], Any]) -> None:
    """An older build refuses them by name: it would not find the records, or fence the wrong key."""
    kept = (FIXTURES / f"{name}.bin").read_bytes()
    assert kept[0] == int(name[-1])
    assert decode(kept) == value
    assert value.encode() == kept
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            decode(kept[:length])
    with pytest.raises(UnreadableValue):
        decode(bytes([kept[0] - 1]) + kept[1:])


def test_a_hint_is_what_is_kept_as_format_1() -> None:
    kept = (FIXTURES / "log-carried-hint.v1.bin").read_bytes()
    assert encode_hint(1_790_000_000_000) == kept
    check_hint(kept)
    for unreadable in (*(kept[:length] for length in range(len(kept))), b"\2" + kept[1:], kept + b"\0"):
        with pytest.raises(UnreadableValue):
            check_hint(unreadable)
    assert keys.stream_of_carried_hint(keys.carried_hint(7)) == 7
    assert keys.stream_of_carried_hint(keys.staging(WAL_ID)) is None


def test_a_carried_entry_goes_whole_through_seal_file_and_close() -> None:
    """The risk is code that encodes an entry again without what it carries."""
    high_watermark = HighWatermark.at(CARRIED_ENTRY)
    assert HighWatermark.decode(high_watermark.encode()).head == CARRIED_ENTRY
    for following in (high_watermark.sealed(), high_watermark.sealed(closed=True)):
        moved, filed = StreamStore.advance(1, Versioned(high_watermark, 5), following)
        assert HighWatermark.decode(moved.value) == following
        assert IndexEntry.decode(filed.value) == CARRIED_ENTRY


def test_a_merged_entry_says_what_its_inputs_said() -> None:
    assert (MERGED.kind, MERGED.data, MERGED.path, MERGED.object_id) == (EntryKind.WAL, b"", PATH, PARQUET_ID)
    for name in ("start", "end", "cumulative_size", "created_ms", "running_max_offset", "max_timestamp"):
        assert getattr(MERGED, name) == getattr(CARRIED_ENTRY, name)
    merged, carried = [
        [reference[1:] for _, reference in entry.batches()] for entry in (MERGED, CARRIED_ENTRY)
    ]
    assert merged == carried
    assert PACKING.packed.merged == MERGED


def test_a_carried_entry_must_describe_exactly_what_it_carries() -> None:
    stored = CARRIED_ENTRY.encode()
    first = BatchReference(0, 80, 5, 0, 0, 0, -1, -1, -1)
    tables = [
        [],
        [first],
        [first, first._replace(position=79, length=70)],
        [first, first._replace(position=80, length=71)],
        [first._replace(length=140), first._replace(position=140, length=10)],  # no batch is that small
    ]
    for references in tables:
        with pytest.raises(UnreadableValue):
            IndexEntry.decode(replace(CARRIED_ENTRY, table=pack_batches(references)).encode())
    for other in (replace(CARRIED_ENTRY, path=PATH), replace(CARRIED_ENTRY, data=b"")):
        with pytest.raises(UnreadableValue):
            IndexEntry.decode(other.encode())
    with pytest.raises(UnreadableValue):
        IndexEntry.decode(stored + b"\0")


@given(st.data())
def test_a_damaged_carried_entry_is_unreadable_or_whole(data: st.DataObject) -> None:
    """Any bytes changed, anywhere: the decoder refuses, or gives an entry whose batches lie in its data."""
    damaged = bytearray(CARRIED_ENTRY.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        entry = IndexEntry.decode(bytes(damaged))
    except UnreadableValue:
        return
    assert entry.is_carried
    assert sum(reference.length for _, reference in entry.batches()) == len(entry.data)
    assert bytes(damaged).endswith(entry.data)


@given(st.binary(max_size=300))
def test_garbage_of_the_carried_formats_is_unreadable_and_nothing_worse(garbage: bytes) -> None:
    for number, decode in ((3, IndexEntry.decode), (3, Job.decode), (2, wal_keys.Staging.decode)):
        try:
            decode(bytes([number]) + garbage)
        except UnreadableValue:
            continue
