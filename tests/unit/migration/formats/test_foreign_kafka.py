"""Kafka's segments and what lies beside them, as Kafka 4.2 wrote them, and damaged in every way."""

from __future__ import annotations

from struct import pack, pack_into

import pytest
from tests.unit.migration.formats.fixture_files import local_partition, segments_of

from dray.kafka.records import Record, crc32c, decode, twin
from dray.migration.formats import ForeignDamage, ForeignUnsupported, cut_torn_tail, walk_batches
from dray.migration.formats.kafka_files import (
    EpochStart,
    read_epochs,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from dray.migration.formats.remote_segments import parse_aiven, parse_local


def a_batch(base: int, count: int = 3) -> bytearray:
    batch = bytearray(twin.encode([Record(n, 1_000, b"k", b"v") for n in range(count)]))
    pack_into(">q", batch, 0, base)
    return batch


def sealed(batch: bytearray) -> bytearray:
    pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def test_every_batch_of_a_segment_is_found_with_its_offsets() -> None:
    first, second = segments_of(local_partition(0), "log")
    whole = first.read_bytes()
    batches = list(walk_batches(whole))
    assert batches[0].position == 0
    assert batches[-1].end == len(whole)
    assert [one.position for one in batches[1:]] == [one.end for one in batches[:-1]]
    assert batches[0].header.base_offset == 0
    assert batches[-1].last_offset == 20152  # the next segment begins after it
    control = [one for one in batches if one.is_control]
    assert len(control) == 3  # a marker for each transaction
    assert next(walk_batches(second.read_bytes())).header.base_offset == 20153


def test_the_records_are_those_that_were_produced() -> None:
    (first, _) = segments_of(local_partition(1), "log")
    whole = memoryview(first.read_bytes())
    values: list[bytes] = []
    for batch in walk_batches(whole):
        columns = decode(whole[batch.position : batch.end], max_decompressed_bytes=1 << 26)
        values += [record.value or b"" for record in columns.records()]
    assert len(values) == 20_000
    assert values[0].startswith(b"v1-")
    assert values[-1].startswith(b"v39999-")


def test_an_offset_index_names_where_batches_begin_and_their_last_offsets() -> None:
    checked = 0
    for number in (0, 1):
        for path in segments_of(local_partition(number), "index"):
            name = parse_local(str(path))
            assert name is not None
            rows = read_offset_index(path.read_bytes(), name.base_offset)
            starts = {
                one.position: one.last_offset for one in walk_batches(path.with_suffix(".log").read_bytes())
            }
            assert all(starts[row.position] == row.offset for row in rows)
            checked += len(rows)
    assert checked > 2


def test_a_time_index_names_offsets_and_times_of_its_segment() -> None:
    for path in segments_of(local_partition(0), "timeindex"):
        name = parse_local(str(path))
        assert name is not None
        newest = {
            one.last_offset: one.header.max_timestamp
            for one in walk_batches(path.with_suffix(".log").read_bytes())
        }
        rows = read_time_index(path.read_bytes(), name.base_offset)
        assert rows
        assert rows[-1].timestamp == max(newest.values())
        assert all(row.offset <= max(newest) for row in rows)


def test_the_aborted_transaction_and_the_producers_are_there() -> None:
    (path,) = segments_of(local_partition(0), "txnindex")
    (aborted,) = read_transaction_index(path.read_bytes())
    marked = [
        one
        for one in walk_batches(path.with_suffix(".log").read_bytes())
        if one.is_control and one.header.producer_id == aborted.producer_id
    ]
    assert aborted.last_offset in {one.last_offset for one in marked}
    assert aborted.last_offset - aborted.first_offset == 50  # its records, and the marker
    producers = read_producer_snapshot(path.with_suffix(".snapshot").read_bytes())
    assert {row.producer_id for row in producers} >= {aborted.producer_id}
    assert all(row.transaction_first_offset == -1 for row in producers)
    assert max(row.last_offset for row in producers) == 20151  # the last marker follows


def test_epochs_are_read() -> None:
    for path in segments_of(local_partition(0), "leader_epoch_checkpoint"):
        assert read_epochs(path.read_bytes())[0] == EpochStart(0, 0)
    assert read_epochs(b"0\n2\n0 0\n7 93\n") == [EpochStart(0, 0), EpochStart(7, 93)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "version"),
        (b"0\n", "count"),
        (b"0\n2\n0 0\n", "count"),
        (b"0\n1\n0 0 0\n", "line"),
        (b"0\n2\n5 10\n5 20\n", "above"),
        (b"0\n2\n5 10\n6 9\n", "above"),
        (b"0\n1\n-1 0\n", "number"),
        (b"0\n1\n1 99999999999999999999\n", "number"),
        (b"\xff", "text"),
    ],
)
def test_epochs_that_are_wrong_are_refused(text: bytes, problem: str) -> None:
    with pytest.raises(ForeignDamage, match=problem):
        read_epochs(text)


def test_unknown_versions_are_refused_by_name() -> None:
    with pytest.raises(ForeignUnsupported, match="version 1 of an epoch checkpoint"):
        read_epochs(b"1\n0\n")
    with pytest.raises(ForeignUnsupported, match="version 2 of a producer snapshot"):
        read_producer_snapshot(pack(">hIi", 2, 0, 0))
    with pytest.raises(ForeignUnsupported, match="version 1 of a transaction index"):
        read_transaction_index(pack(">hqqqq", 1, 1, 1, 1, 1))
    batch = a_batch(0)
    for magic, said in ((0, "format 0"), (1, "format 1"), (3, "format 3")):
        batch[16] = magic
        with pytest.raises(ForeignUnsupported, match=said):
            list(walk_batches(batch))


def test_indexes_that_do_not_grow_or_end_in_half_a_row_are_refused() -> None:
    for rows in ([(5, 10), (5, 20)], [(5, 10), (6, 10)], [(-1, 0)], [(0, -1)]):
        with pytest.raises(ForeignDamage):
            read_offset_index(b"".join(pack(">ii", *row) for row in rows), 0)
    for times in ([(5, 1), (4, 2)], [(5, 2), (6, 1)], [(5, -1)]):
        with pytest.raises(ForeignDamage):
            read_time_index(b"".join(pack(">qi", *row) for row in times), 0)
    for reader in (read_offset_index, read_time_index):
        with pytest.raises(ForeignDamage, match="7 of them"):
            reader(bytes(7), 0)
    with pytest.raises(ForeignDamage):
        read_transaction_index(pack(">hqqqq", 0, 1, 9, 8, 0))


def test_a_snapshot_is_held_to_its_checksum_and_its_count() -> None:
    path = segments_of(local_partition(0), "snapshot")[0]
    good = path.read_bytes()
    for position in range(2, len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x40
        with pytest.raises(ForeignDamage):
            read_producer_snapshot(damaged)
    for size in range(2, len(good)):
        with pytest.raises(ForeignDamage):
            read_producer_snapshot(good[:size])
    with pytest.raises(ForeignDamage, match="2147483647 producers"):
        read_producer_snapshot(pack(">hIi", 1, 0, 2**31 - 1))


def test_damage_names_the_byte() -> None:
    segment = bytes(a_batch(0) + a_batch(3))
    second = len(a_batch(0))
    for position in range(second + 21, len(segment)):
        damaged = bytearray(segment)
        damaged[position] ^= 1
        with pytest.raises(ForeignDamage) as caught:
            list(walk_batches(damaged))
        assert caught.value.position == second


def test_offsets_must_be_above_those_before_and_may_have_holes() -> None:
    assert [one.header.base_offset for one in walk_batches(a_batch(0) + a_batch(90))] == [0, 90]
    with pytest.raises(ForeignDamage, match="begins at offset 2, and 3 is the least"):
        list(walk_batches(a_batch(0) + a_batch(2)))
    with pytest.raises(ForeignDamage, match="offset 5, and 6"):
        list(walk_batches(a_batch(5), from_offset=6))


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [(0, ">q", -1), (0, ">q", 2**63 - 1), (8, ">i", -5), (8, ">i", 2**31 - 1), (8, ">i", 10), (23, ">i", -1)],
)
def test_lengths_and_offsets_that_no_batch_has(place: int, form: str, value: int) -> None:
    batch = a_batch(0)
    pack_into(form, batch, place, value)
    with pytest.raises(ForeignDamage):
        list(walk_batches(sealed(batch) if place > 20 else batch))


def test_more_records_than_offsets_are_refused_and_fewer_are_not() -> None:
    batch = a_batch(0)
    pack_into(">i", batch, 57, 4)
    with pytest.raises(ForeignDamage, match="4 records in 3 offsets"):
        list(walk_batches(sealed(batch)))
    pack_into(">i", batch, 57, 2)  # compaction took one away
    assert len(list(walk_batches(sealed(batch)))) == 1


def test_a_torn_tail_is_cut_wherever_the_writer_was_killed() -> None:
    whole = bytes(a_batch(0) + a_batch(3))
    first = len(a_batch(0))
    assert cut_torn_tail(whole) == len(whole)
    for size in range(first, len(whole)):
        assert cut_torn_tail(whole[:size]) == first
    unwritten = bytearray(whole)
    unwritten[-4:] = bytes(4)  # the file was made longer before its bytes were there
    assert cut_torn_tail(unwritten) == first
    assert cut_torn_tail(whole[:first] + bytes(4096)) == first
    assert cut_torn_tail(b"") == 0


def test_damage_in_the_middle_is_no_torn_tail() -> None:
    segment = bytearray(a_batch(0) + a_batch(3) + a_batch(6))
    segment[len(a_batch(0)) + 40] ^= 1
    with pytest.raises(ForeignDamage, match="batches behind it"):
        cut_torn_tail(segment)
    old = a_batch(0)
    old[16] = 1
    with pytest.raises(ForeignUnsupported):
        cut_torn_tail(old)


def test_names_of_both_layouts() -> None:
    seen = 0
    for path in local_partition(0).iterdir():
        name = parse_local(f"{path.parent.name}/{path.name}")
        assert name is not None
        assert (name.topic, name.partition, name.suffix) == ("orders", 0, path.suffix[1:])
        assert name.base_offset in {0, 20153}
        seen += 1
    assert seen == 11
    path_of_aiven = "pre/a-b.c-cHX8s8L1RC2T8kFXFiMZaA/12/00000000000000020153-ivShAM1BRci34zoT59ecBg.indexes"
    found = parse_aiven(path_of_aiven)
    assert found is not None
    assert (found.topic, found.partition, found.base_offset) == ("a-b.c", 12, 20153)
    glued = parse_aiven("tier_" + path_of_aiven.removeprefix("pre/"), "tier_")
    assert glued is not None
    assert glued.topic == "a-b.c"
    for other in ("", "x", path_of_aiven + ".tmp", path_of_aiven.replace("indexes", "log2")):
        assert parse_aiven(other) is None
        assert parse_local(other) is None
    assert parse_aiven(path_of_aiven.replace("00000000000000020153", "99999999999999999999")) is None
