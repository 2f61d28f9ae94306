"""How far a mirror is behind, as a migrator that looks every second sees it."""

from __future__ import annotations

from dray.migration.live.mirror_lag import MOST_SEEN, LagClock, MirrorLag
from dray.migration.live.topic_mirror import MirrorProgress


def progress(end: int, source_end: int | None, heard: float | None = 0.0, **more: object) -> MirrorProgress:
    return MirrorProgress(end, source_end, heard, **more)  # type: ignore[arg-type]


def test_the_age_is_that_of_the_oldest_record_that_is_not_here() -> None:
    clock = LagClock()
    assert clock.look(0, {0: progress(10, 10, 0)}) == MirrorLag(0, 0, 0)
    assert clock.look(10, {0: progress(10, 15, 10)}) == MirrorLag(5, 0, 0)
    assert clock.look(20, {0: progress(10, 25, 20)}) == MirrorLag(15, 10, 0)
    # What was seen first is here; the next was seen at 20.
    assert clock.look(30, {0: progress(15, 35, 30)}) == MirrorLag(20, 10, 0)
    assert clock.look(40, {0: progress(35, 35, 40)}) == MirrorLag(0, 0, 0)


def test_a_mirror_that_keeps_up_is_not_behind_though_it_never_has_all() -> None:
    clock = LagClock()
    for second in range(1, 1000):
        found = clock.look(second, {0: progress(100 * second - 50, 100 * second, second)})
        assert (found.records, found.seconds) == (50, 0)


def test_what_is_remembered_is_bounded_and_the_age_nearly_right() -> None:
    clock = LagClock()
    for second in range(10_000):
        found = clock.look(second, {0: progress(0, 100 + 100 * second, second)})
        assert found.seconds == second
    assert len(clock._seen[0].ends) <= MOST_SEEN
    # It has caught up half: what is left came from 5,000 s on. It is at least so old, and never said older.
    found = clock.look(10_000, {0: progress(500_000, 1_000_000, 10_000)})
    assert 3000 <= found.seconds <= 5_000


def test_partitions_count_alone_and_one_that_is_ours_no_more() -> None:
    clock = LagClock()
    clock.look(0, {0: progress(0, 5), 1: progress(0, 7)})
    assert clock.look(9, {0: progress(0, 5, 9), 1: progress(7, 7, 9)}) == MirrorLag(5, 9, 0)
    assert clock.look(10, {0: progress(0, 5, 9, is_ours=True), 1: progress(7, 7, 10)}) == MirrorLag(0, 0, 0)


def test_a_silent_source_is_seen_though_nothing_is_known_to_be_missing() -> None:
    clock = LagClock()
    assert clock.look(100, {0: progress(7, None, None)}).silent_seconds == 0
    assert clock.look(130, {0: progress(7, None, None)}).silent_seconds == 30
    assert clock.look(140, {0: progress(7, 7, 135), 1: progress(7, 7, 139)}).silent_seconds == 5
    # One that is stopped asks nothing.
    stopped = progress(7, 9, 135, stopped="gone")
    assert clock.look(200, {0: stopped, 1: progress(7, 7, 200)}) == MirrorLag(2, 0, 0)
    assert clock.look(260, {0: stopped, 1: progress(7, 7, 260)}) == MirrorLag(2, 60, 0)


def test_skipped_offsets_count_on_when_a_mirror_begins_anew() -> None:
    clock = LagClock()
    found = [
        clock.look(0, {0: progress(9, 9, skipped=skipped), 1: progress(9, 9)}).skipped
        for skipped in (0, 4, 4, 6, 0, 1)
    ]
    assert found == [0, 4, 4, 6, 6, 7]
