"""Batches of a segment: what the compiled walk finds is what a plain reading finds, and one says why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.kafka.records import HEADER_SIZE, Record, crc32c, filler, patch, read_header, sound_headers, twin
from dray.kafka.records.header import MAGIC, OPENING
from dray.migration.formats import walk_batches
from dray.migration.formats.batches import ForeignFault, SegmentBatch, marker_of

MANY = 600  # more than the compiled walk looks at in one go


def segment(counts: list[int], holes: list[int]) -> bytearray:
    found, offset = bytearray(), 0
    for count, hole in zip(counts, holes, strict=True):
        offset += hole
        batch = twin.encode([Record(number, 7, None, b"value", ()) for number in range(count)])
        patch(batch, 0, offset, 3)
        found += batch
        offset += count
    return found


def plainly(data: memoryview, position: int, from_offset: int, checksums: bool) -> list[SegmentBatch]:
    """As far as all is right."""
    found: list[SegmentBatch] = []
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        whole = data[position : position + header.size]
        if header.magic != MAGIC or not HEADER_SIZE <= header.size == len(whole):
            break
        last = header.base_offset + header.last_offset_delta
        if header.last_offset_delta < 0 or not max(0, from_offset) <= header.base_offset <= last < 2**63 - 1:
            break
        if not 0 <= header.record_count <= header.last_offset_delta + 1:
            break
        if checksums and crc32c(whole[OPENING.size :]) != header.checksum:
            break
        found.append(SegmentBatch(position, header))
        position, from_offset = position + header.size, last + 1
    return found


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    holes=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 80),
    from_offset=st.integers(-1, 4),
    checksums=st.booleans(),
)
def test_the_compiled_walk_finds_what_a_plain_reading_finds(
    counts: list[int],
    holes: list[int],
    changes: list[tuple[int, int]],
    cut: int,
    from_offset: int,
    checksums: bool,
) -> None:
    data = segment(counts, holes[: len(counts)])
    for place, value in changes:
        data[place % len(data)] = value
    view = memoryview(data)[: len(data) - cut]
    expected = plainly(view, 0, from_offset, checksums)
    assert sound_headers(view, 0, from_offset, checksums) == [tuple(batch) for batch in expected]
    found: list[SegmentBatch] = []
    faults: list[int] = []
    try:
        for batch in walk_batches(view, from_offset=from_offset, checksums=checksums):
            found.append(batch)
    except ForeignFault as fault:
        faults.append(fault.position)
    assert found == expected
    end = found[-1].end if found else 0
    assert faults == ([] if end == len(view) else [end])


@pytest.mark.parametrize("base_offset", [2**63 - 1, 2**63 - 2, -1])
def test_offsets_without_a_next_one_are_damage(base_offset: int) -> None:
    """Also where another batch comes behind them: it would begin at an offset that no number holds."""
    data = segment([2, 1], [0, 0])
    patch(data, 0, base_offset, 0)
    with pytest.raises(ForeignFault, match="offset"):
        list(walk_batches(data))


def test_the_largest_offsets_are_walked() -> None:
    data = segment([2], [0])
    patch(data, 0, 2**63 - 3, 0)
    assert [batch.last_offset for batch in walk_batches(data)] == [2**63 - 2]


def test_any_number_of_batches_is_walked_in_order() -> None:
    data = segment([1] * MANY, [0] * MANY)
    walked = list(walk_batches(data))
    assert [batch.header.base_offset for batch in walked] == list(range(MANY))
    assert [batch.end for batch in walked[:-1]] == [batch.position for batch in walked[1:]]
    data[walked[-1].end - 1] ^= 1
    with pytest.raises(ForeignFault, match=f"checksum of the batch at offset {MANY - 1} is wrong"):
        list(walk_batches(data))
    assert len(list(walk_batches(data, checksums=False))) == MANY


def test_a_marker_that_compaction_removed_says_nothing() -> None:
    """Kafka keeps the empty batch of a marker, for its producer's epoch."""
    empty = filler(8, 3)
    [batch] = walk_batches(empty)
    assert batch.is_control
    assert marker_of(empty, batch) is None


def test_a_walk_may_begin_at_any_batch_and_nowhere_before_the_first() -> None:
    data = segment([1, 2, 1], [0, 0, 0])
    second = list(walk_batches(data))[1]
    assert [batch.header.base_offset for batch in walk_batches(data, second.position)] == [1, 3]
    assert sound_headers(data, len(data), 0, True) == []
    with pytest.raises(ValueError, match="no batch at byte -1"):
        sound_headers(data, -1, 0, True)
