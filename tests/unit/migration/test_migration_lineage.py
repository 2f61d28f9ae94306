"""Which segments make a partition."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.unit.migration.sources import a_segment

from dray.migration.attach.found import FoundSegment, PartitionRefused
from dray.migration.attach.lineage import PartitionLineage, choose


def pieces(lineage: PartitionLineage) -> list[tuple[int, int, str]]:
    return [(each.start, each.end, each.segment.path) for each in lineage.chosen]


def test_segments_that_adjoin_make_a_partition_in_whatever_order_they_were_found() -> None:
    found = [a_segment(0, 10), a_segment(10, 25), a_segment(25, 26)]
    for order in permutations(found):
        lineage = choose(0, order)
        assert pieces(lineage) == [(each.start, each.end, each.path) for each in found]
        assert (lineage.start, lineage.end, lineage.epoch, lineage.left_out) == (0, 26, 0, ())


def test_the_longest_is_taken_first_and_what_overlaps_is_trimmed() -> None:
    found = [a_segment(0, 10), a_segment(0, 20, number=1), a_segment(15, 40, number=2)]
    lineage = choose(0, found)
    assert pieces(lineage) == [(0, 20, found[1].path), (20, 40, found[2].path)]
    assert lineage.left_out == (found[0].path,)


def test_what_a_deposed_leader_copied_does_not_count() -> None:
    """Its epoch went on to offset 20 in its own log; the next leader began at 12."""
    stale = a_segment(5, 20, [(0, 0), (1, 5)], number=1)
    first = a_segment(0, 5)
    newest = a_segment(12, 30, [(0, 0), (1, 5), (2, 12)], number=2)
    lineage = choose(0, [stale, first, newest])
    assert pieces(lineage) == [(0, 5, first.path), (5, 12, stale.path), (12, 30, newest.path)]
    assert lineage.epoch == 2


def test_a_segment_of_an_epoch_that_the_newest_leader_never_had_is_left_out() -> None:
    first = a_segment(0, 10)
    stale = a_segment(10, 99, [(0, 0), (1, 10)], number=1)
    newest = a_segment(10, 20, [(0, 0), (2, 10)], number=2)
    lineage = choose(0, [first, stale, newest])
    assert pieces(lineage) == [(0, 10, first.path), (10, 20, newest.path)]
    assert lineage.left_out == (stale.path,)


def test_what_lies_below_the_newest_leaders_start_has_expired() -> None:
    expired = a_segment(0, 10, [(0, 0)])
    across = a_segment(10, 20, [(0, 0), (1, 12)], number=1)
    newest = a_segment(20, 30, [(1, 15)], number=2)
    lineage = choose(0, [expired, across, newest])
    assert pieces(lineage) == [(15, 20, across.path), (20, 30, newest.path)]
    assert lineage.start == 15


def test_a_gap_is_refused_with_its_offsets_and_the_objects_beside_it() -> None:
    found = [a_segment(0, 10), a_segment(12, 20)]
    with pytest.raises(PartitionRefused, match=r"partition 3: offsets 10 to 11 are in no segment") as refusal:
        choose(3, found)
    assert found[0].path in str(refusal.value)
    assert found[1].path in str(refusal.value)


@pytest.mark.parametrize(
    "found",
    [
        [a_segment(0, 10), a_segment(0, 10, number=1, size=77)],
        [a_segment(0, 20), a_segment(20, 30), a_segment(20, 30, number=1, size=77)],
        [a_segment(0, 10, []), a_segment(5, 20, [], number=1)],
        [a_segment(0, 10, []), a_segment(0, 20, [], number=1)],
        [a_segment(0, 20, []), a_segment(5, 10, [], number=1)],
        [a_segment(0, 10, []), a_segment(0, 10, [], number=1)],
    ],
)
def test_what_two_segments_say_differently_is_refused(found: list[FoundSegment]) -> None:
    with pytest.raises(PartitionRefused, match="nothing says which of them counts"):
        choose(0, found)


def test_two_copies_of_one_segment_are_one() -> None:
    found = [a_segment(0, 10), a_segment(0, 10, number=1)]
    assert pieces(choose(0, found)) == [(0, 10, found[0].path)]
    assert choose(0, found[::-1]) == choose(0, found)


def test_a_segment_without_epochs_among_others_is_refused() -> None:
    with pytest.raises(PartitionRefused, match="nothing says of which leader's epoch"):
        choose(0, [a_segment(0, 10), a_segment(10, 20, [])])


def test_aborted_transactions_reach_every_piece_that_they_overlap() -> None:
    """Kafka lists them where they end."""
    first = a_segment(0, 10)
    second = a_segment(10, 20, number=1)
    third = a_segment(20, 30, number=2, aborted=[(7, 5, 22), (8, 25, 26)])
    lineage = choose(0, [first, second, third])
    listed = [[row.producer_id for row in each.aborted] for each in lineage.chosen]
    assert listed == [[7], [7], [7, 8]]


def test_a_transaction_that_was_aborted_in_a_part_that_does_not_count_is_not_listed() -> None:
    stale = a_segment(0, 20, [(0, 0), (1, 5)], aborted=[(7, 6, 15)])
    newest = a_segment(12, 30, [(0, 0), (1, 5), (2, 12)], number=2)
    lineage = choose(0, [stale, newest])
    assert [each.aborted for each in lineage.chosen] == [(), ()]
