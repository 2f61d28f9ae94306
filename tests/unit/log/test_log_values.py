"""The values that the log stores: round trips, format 1 kept as fixtures, newer and damaged ones refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.stored_values import (
    CARRIED_ENTRY,
    COMPACTING,
    DAY_MS,
    ENTRY,
    FIXTURES,
    PARQUET_ENTRY,
    PARQUET_ID,
    PATH,
    WAL_ID,
)

from dray.log import wal_keys
from dray.log.entries import (
    BatchReference,
    EntryKind,
    HighWatermark,
    IndexEntry,
    decode_start,
    pack_batches,
)
from dray.log.jobs.cleaned import Cleaned, CleanPoint
from dray.log.jobs.machine import FileWritten, Job, JobState, advance, put_start
from dray.log.jobs.values import WrittenFile
from dray.log.life import counters
from dray.log.life.lifecycle import note_closed
from dray.log.parquet.statistics import ColumnSizes, RowGroup
from dray.log.producer_state import ProducerEntry, ProducerSnapshot, ProducerStates, RememberedBatch
from dray.metadata import keys
from dray.metadata.values import FormatTooNew, UnreadableValue


def _snapshot() -> ProducerSnapshot:
    states = ProducerStates(DAY_MS)
    states._own[7] = ProducerEntry(
        3, 1_790_000_000_000, (RememberedBatch(0, 4, 990, -1), RememberedBatch(5, 9, 995, 1_790_000_000_000))
    )
    states._own[2**40] = ProducerEntry(0, 1_789_000_000_000, (RememberedBatch(2**31 - 1, 1, 3, -1),))
    return ProducerSnapshot(1000, states)


def _snapshot_fields(snapshot: ProducerSnapshot) -> Any:
    return snapshot.upto, dict(snapshot.states.items())


def _same(value: Any) -> Any:
    return value


# name, the value, how it is stored, how it is read, and what of it is compared
STORED: list[tuple[str, Any, Callable[[Any], bytes], Callable[[bytes], Any], Callable[[Any], Any]]] = [
    ("log-index-entry", ENTRY, IndexEntry.encode, IndexEntry.decode, _same),
    ("log-high-watermark", HighWatermark.at(ENTRY), HighWatermark.encode, HighWatermark.decode, _same),
    (
        "log-high-watermark-closed",
        HighWatermark.at(ENTRY).sealed(closed=True),
        HighWatermark.encode,
        HighWatermark.decode,
        _same,
    ),
    (
        "log-cleaned",
        Cleaned((CleanPoint(1000, 1_789_000_000_000), CleanPoint(2**40, 1_790_000_000_000))),
        Cleaned.encode,
        Cleaned.decode,
        _same,
    ),
    (
        "log-producer-snapshot",
        _snapshot(),
        ProducerSnapshot.encode,
        lambda value: ProducerSnapshot.decode(value, DAY_MS),
        _snapshot_fields,
    ),
    (
        "log-staging-mark",
        wal_keys.Staging(PATH, (1, 2**40, 3)),
        wal_keys.Staging.encode,
        wal_keys.Staging.decode,
        _same,
    ),
    ("log-object-key", PATH, wal_keys.encode_object, wal_keys.decode_object, _same),
    ("log-start", 1000, lambda start: put_start(1, start, 5).value, decode_start, _same),
    ("log-counter", 65_000, counters.encode, counters.decode, _same),
    ("log-job", Job(12, JobState.RAISED, 1000, 993), Job.encode, Job.decode, _same),
]
NAMES = [stored[0] for stored in STORED]


@pytest.mark.parametrize(("name", "value", "encode", "decode", "compared"), STORED, ids=NAMES)
def test_format_1_is_still_read(
    name: str,
    value: Any,
    encode: Callable[[Any], bytes],
    decode: Callable[[bytes], Any],
    compared: Callable[[Any], Any],
) -> None:
    kept = (FIXTURES / f"{name}.v1.bin").read_bytes()
    assert kept[0] == 1
    assert compared(decode(kept)) == compared(value)


@pytest.mark.parametrize(("name", "value", "encode", "decode", "compared"), STORED, ids=NAMES)
def test_what_is_written_is_what_is_kept_as_format_1(
    name: str, value: Any, encode: Callable[[Any], bytes], decode: Any, compared: Any
) -> None:
    """A change of what is written needs a new format number, and a fixture of its own."""
    assert encode(value) == (FIXTURES / f"{name}.v1.bin").read_bytes()


@pytest.mark.parametrize(("name", "value", "encode", "decode", "compared"), STORED, ids=NAMES)
def test_a_newer_format_is_refused_with_a_clear_line(
    name: str, value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], compared: Any
) -> None:
    newest = {
        "log-index-entry": 6,
        "log-high-watermark": 3,
        "log-high-watermark-closed": 3,
        "log-job": 4,
        "log-staging-mark": 3,
    }.get(name, 1)
    with pytest.raises(
        FormatTooNew,
        match=f"is stored in format {newest + 1}, and this build reads formats up to {newest}: upgrade",
    ):
        decode(bytes([newest + 1]) + encode(value)[1:])


@pytest.mark.parametrize(("name", "value", "encode", "decode", "compared"), STORED, ids=NAMES)
def test_a_value_cut_short_is_refused(
    name: str, value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], compared: Any
) -> None:
    whole = encode(value)
    if name == "log-object-key":  # a path of any length is a path
        lengths = range(1)
    else:
        lengths = range(len(whole))
    for length in lengths:
        with pytest.raises(UnreadableValue):
            decode(whole[:length])


# --- jobs that compact are format 2


def test_a_job_that_compacts_is_kept_as_format_2() -> None:
    kept = (FIXTURES / "log-job.v2.bin").read_bytes()
    assert kept[0] == 2
    assert Job.decode(kept) == COMPACTING
    assert COMPACTING.encode() == kept
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            Job.decode(kept[:length])


FILE = WrittenFile(
    stream=5,
    job=13,
    path=f"compaction/v1/topic=orders/partition=3/job-13-{PARQUET_ID.hex}.parquet",
    parquet_id=PARQUET_ID,
    start=990,
    end=1007,
    file_size=5_000_000_000,
    footer_length=2048,
    record_count=17,
    row_groups=(
        RowGroup(4, 800, 10, 990, 900, 1_789_999_999_000, 1_790_000_000_500, 999),
        RowGroup(4_999_000_000, 700, 7, 1000, 300, -1, 1_790_000_000_100, 1006),
    ),
    columns=(ColumnSizes(1, 30, 17, 0), ColumnSizes(13, 1 << 40, 17, 17)),
    min_timestamp=-1,
    max_timestamp=1_790_000_000_500,
    split_offsets=(4, 4_999_000_000),
)
WRITTEN = advance(5, replace(COMPACTING, state=JobState.CREATED), FileWritten(FILE)).following


def test_a_job_with_its_file_is_kept_as_format_2() -> None:
    """As every build has stored it."""
    assert WRITTEN is not None
    kept = (FIXTURES / "log-job-written.v2.bin").read_bytes()
    assert kept[0] == 2
    assert Job.decode(kept) == WRITTEN
    assert Job.decode(kept).compacted.file == FILE
    assert WRITTEN.encode() == kept


def test_a_job_that_is_done_forgets_what_it_compacted() -> None:
    done = COMPACTING.moved(JobState.DONE)
    assert done == Job(13, JobState.DONE)
    assert done.encode()[0] == 1
    with pytest.raises(ValueError, match=r"job 13 \(DONE\) compacts nothing"):
        _ = done.compacted


def test_a_compaction_must_say_what_it_compacts() -> None:
    for body in (
        b'{"number":1,"state":"CREATED","threshold":0,"need":0}',
        COMPACTING.encode()[1:].replace(b'"inputs":[[', b'"inputs":[],"gone":[['),
        COMPACTING.encode()[1:].replace(b'"written":{', b'"written":1,"gone":{'),
    ):
        for version in (b"\1", b"\2"):
            if version == b"\1" and b"compaction" in body:
                continue
            with pytest.raises(UnreadableValue):
                Job.decode(version + body)


# --- entries of Parquet files are format 2, those with holes format 4

SPARSE_ENTRY = IndexEntry.parquet(
    [ENTRY],
    PARQUET_ID,
    f"compaction/v1/topic=orders/partition=3/job-7-{PARQUET_ID.hex}.parquet",
    file_size=5_000_000_000,
    footer_length=2048,
    row_groups=[
        RowGroup(4, 800, 2, 1001, 900, 1_789_999_999_000, 1_790_000_000_500, 1003),
        RowGroup(4_999_000_000, 700, 1, 1005, 300, 1_790_000_000_100, 1_790_000_000_100, 1005),
    ],
)


def test_an_entry_with_holes_is_kept_as_format_4() -> None:
    kept = (FIXTURES / "log-index-entry.v4.bin").read_bytes()
    assert kept[:2] == b"\4\1"
    assert IndexEntry.decode(kept) == SPARSE_ENTRY
    assert SPARSE_ENTRY.encode() == kept
    assert (SPARSE_ENTRY.sparse, SPARSE_ENTRY.record_count, SPARSE_ENTRY.last_record) == (True, 3, 1005)
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            IndexEntry.decode(kept[:length])


GAP_ID = UUID("5c1f0c3e-2f0b-4c57-9a53-3b3b63ff8a10")
GAP_ENTRY = IndexEntry.parquet([ENTRY], GAP_ID, f"gaps/{GAP_ID.hex}", 0, 0, [])


def test_a_gap_is_kept_as_format_6() -> None:
    kept = (FIXTURES / "log-index-entry.v6.bin").read_bytes()
    assert kept[:2] == b"\6\1"
    assert IndexEntry.decode(kept) == GAP_ENTRY
    assert GAP_ENTRY.encode() == kept
    assert (GAP_ENTRY.is_gap, GAP_ENTRY.record_count, GAP_ENTRY.last_record) == (True, 0, 999)
    assert not SPARSE_ENTRY.is_gap
    for changed in (
        b"\4" + kept[1:],
        b"\6" + SPARSE_ENTRY.encode()[1:],
        *(kept[:n] for n in range(len(kept))),
    ):
        with pytest.raises(UnreadableValue):
            IndexEntry.decode(changed)


@pytest.mark.parametrize(
    "groups",
    [
        [(5, 1000, 1004), (2, 1005, 1006)],  # none is missing
        [(4, 1001, 1004), (2, 1005, 1006)],  # the first
        [(5, 1000, 1004), (1, 1005, 1005)],  # the last
        [(4, 1000, 1003), (2, 1005, 1006)],  # one between row groups
        [(4, 1000, 1004), (2, 1005, 1006)],  # one inside
    ],
)
def test_only_an_entry_with_holes_is_of_the_newer_format(groups: list[tuple[int, int, int]]) -> None:
    """Files of other topics stay readable by older builds."""
    rows = [RowGroup(4, 1, count, first, 1, 0, 0, last) for count, first, last in groups]
    entry = IndexEntry.parquet([ENTRY], PARQUET_ID, "path", 10, 5, rows)
    dense = sum(count for count, _, _ in groups) == 7
    assert entry.encode()[0] == (2 if dense else 4)
    assert IndexEntry.decode(entry.encode()).row_groups() == rows


def test_a_format_between_is_refused() -> None:
    with pytest.raises(UnreadableValue):
        IndexEntry.decode(b"\3" + SPARSE_ENTRY.encode()[1:])


def test_a_file_with_holes_survives_its_job() -> None:
    holes = replace(FILE, row_groups=(FILE.row_groups[0], FILE.row_groups[1]._replace(record_count=6)))
    assert WrittenFile.from_json(holes.to_json()) == holes
    assert len(holes.to_json()["row_groups"][0]) == 8
    assert len(FILE.to_json()["row_groups"][0]) == 7, "as older builds know it"


# --- entries of Parquet files are format 2


def test_an_entry_of_a_parquet_file_is_kept_as_format_2() -> None:
    kept = (FIXTURES / "log-index-entry.v2.bin").read_bytes()
    assert kept[:2] == b"\2\1"
    assert IndexEntry.decode(kept) == PARQUET_ENTRY
    assert PARQUET_ENTRY.encode() == kept
    for length in range(len(kept)):
        with pytest.raises(UnreadableValue):
            IndexEntry.decode(kept[:length])


def test_format_and_kind_belong_together() -> None:
    for entry in (ENTRY, PARQUET_ENTRY, CARRIED_ENTRY):
        stored = entry.encode()
        for number in {1, 2, 3} - {stored[0]}:
            with pytest.raises(UnreadableValue):
                IndexEntry.decode(bytes([number]) + stored[1:])


def test_a_parquet_entry_stands_for_all_its_inputs() -> None:
    later = IndexEntry(1007, 1010, 124_000, 1_790_000_001_000, 5, 9, 10, 43, WAL_ID, PATH, b"")
    merged = IndexEntry.parquet([ENTRY, later], PARQUET_ID, "a", 100, 20, [])
    assert (merged.start, merged.end, merged.cumulative_size) == (1000, 1010, 124_000)
    assert (merged.min_timestamp, merged.max_timestamp) == (5, ENTRY.max_timestamp)
    assert (merged.running_max_timestamp, merged.running_max_offset) == (10, 43)
    assert (merged.created_ms, merged.object_id) == (later.created_ms, PARQUET_ID)
    assert (merged.file_size, merged.footer_length, merged.row_groups()) == (100, 20, [])
    assert (merged.kind, merged.is_parquet, ENTRY.is_parquet) == (EntryKind.PARQUET, True, False)


def test_what_belongs_to_the_other_kind_is_refused() -> None:
    for wrong in (PARQUET_ENTRY.batches, lambda: PARQUET_ENTRY.batch_count):
        with pytest.raises(ValueError, match="is a PARQUET object, and has no batches"):
            wrong()
    for missing in (ENTRY.row_groups, lambda: ENTRY.file_size, lambda: ENTRY.footer_length):
        with pytest.raises(ValueError, match="is a WAL object, not a PARQUET one"):
            missing()


def test_a_reference_has_a_format_too() -> None:
    [_, _, reference] = wal_keys.stage(WAL_ID, wal_keys.Staging(PATH, (1,)))
    assert reference.value == (FIXTURES / "log-reference.v1.bin").read_bytes()  # type: ignore[union-attr]


# --- round trips

int64 = st.integers(-(2**63), 2**63 - 1)
offsets = st.integers(0, 2**62)
references = st.builds(
    BatchReference,
    position=st.integers(0, 2**32 - 1),
    length=st.integers(0, 2**32 - 1),
    record_count=st.integers(0, 2**32 - 1),
    attributes=st.integers(-(2**15), 2**15 - 1),
    min_timestamp=int64,
    max_timestamp=int64,
    producer_id=int64,
    producer_epoch=st.integers(-(2**15), 2**15 - 1),
    base_sequence=st.integers(-(2**31), 2**31 - 1),
)
entries = st.builds(
    IndexEntry,
    start=offsets,
    end=offsets,
    cumulative_size=offsets,
    created_ms=int64,
    min_timestamp=int64,
    max_timestamp=int64,
    running_max_timestamp=int64,
    running_max_offset=int64,
    object_id=st.uuids(),
    path=st.text(max_size=40),
    table=st.lists(references, max_size=4).map(pack_batches),
)


@given(entries)
def test_index_entries_round_trip(entry: IndexEntry) -> None:
    assert IndexEntry.decode(entry.encode()) == entry


@given(st.builds(HighWatermark, offsets, offsets, int64, int64, st.none() | entries, st.booleans()))
def test_high_watermarks_round_trip(high_watermark: HighWatermark) -> None:
    assert HighWatermark.decode(high_watermark.encode()) == high_watermark


@given(st.lists(references, max_size=6), offsets)
def test_an_entry_gives_its_batches_their_offsets(batches: list[BatchReference], start: int) -> None:
    entry = IndexEntry(start, start, 0, 0, 0, 0, 0, 0, WAL_ID, PATH, pack_batches(batches))
    expected = []
    for batch in batches:
        expected.append((start, batch))
        start += batch.record_count
    assert list(entry.batches()) == expected
    assert entry.batch_count == len(batches)


@given(st.binary(max_size=200), st.sampled_from(STORED))
def test_garbage_is_unreadable_and_nothing_worse(garbage: bytes, stored: Any) -> None:
    _, _, _, decode, _ = stored
    try:
        decode(b"\1" + garbage)
    except UnreadableValue:
        return


def test_a_sealed_high_watermark_keeps_what_counts() -> None:
    sealed = HighWatermark.at(ENTRY).sealed()
    assert sealed == HighWatermark(1007, 123_456, 1_790_000_000_900, 42, None, False)
    assert sealed.sealed(closed=True).sealed().closed  # once closed, always


def test_only_a_stamped_batch_has_an_append_time() -> None:
    [(_, created), (_, stamped)] = ENTRY.batches()
    assert (created.append_time_ms, stamped.append_time_ms) == (-1, 1_790_000_000_100)


def test_the_note_of_a_closed_stream_is_what_is_kept_as_format_1() -> None:
    note = note_closed(7, 20_000 * DAY_MS + 5)
    assert note.key == "/dray/v1/closed-streams/00000000000000020000/00000000000000000007"
    assert keys.stream_of_closed(note.key) == 7
    assert keys.stream_of_closed(keys.high_watermark(7)) is None
    assert note.value == (FIXTURES / "log-closed-note.v1.bin").read_bytes()
