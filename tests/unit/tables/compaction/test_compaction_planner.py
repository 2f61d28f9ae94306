"""What the planner makes of a stream: by age, size and number, by day, and from small files to large ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.services import room_settings

from dray.base.runtime import DAY_MS
from dray.broker.topics.model import TopicSettings
from dray.log.entries import BatchReference, HighWatermark, IndexEntry, pack_batches
from dray.log.jobs.cleaned import NOTHING_CLEANED
from dray.log.parquet.statistics import RowGroup
from dray.log.stream_store import StreamView, Versioned
from dray.tables.compaction.planning.clean_plan import CleaningRules
from dray.tables.compaction.planning.plan import plan_stream, settled
from dray.tables.compaction.settings import CompactionSettings

NOW = 1_800_000_000_000
SETTINGS = room_settings.compaction(
    wal_max_age=60.0,
    wal_max_bytes=1000,
    wal_max_entries=10,
    parquet_max_files=3,
    target_file_bytes=2000,
    max_inputs=20,
)


def wal(start: int, end: int, size: int = 10, *, age: int = 0, at: int = NOW) -> IndexEntry:
    batch = BatchReference(0, size, end - start, 0, at, at, -1, -1, -1)
    return IndexEntry(
        start, end, end, NOW - age, at, at, at, start, UUID(int=end), "w", pack_batches([batch])
    )


def parquet(start: int, end: int, size: int = 100, *, at: int = NOW) -> IndexEntry:
    group = RowGroup(4, size, end - start, start, size, at, at, end - 1)
    return IndexEntry.parquet([wal(start, end, at=at)], UUID(int=end), f"p{end}", size, 20, [group])


def view(*entries: IndexEntry, head: IndexEntry | None = None, start: int = 0) -> StreamView:
    end = head.end if head is not None else entries[-1].end
    value = HighWatermark(end, end, head=head)
    versioned = [Versioned(entry, 100 + place) for place, entry in enumerate(entries)]
    return StreamView(Versioned(value, 1), start, versioned)


def planned(
    view: StreamView, settings: CompactionSettings = SETTINGS, **options: Any
) -> list[tuple[int, int]]:
    plan = plan_stream(view, NOW, settings, **options)
    return [(entry.value.start, entry.value.end) for entry in plan.inputs]


def test_young_and_small_is_left_alone() -> None:
    stream = view(wal(0, 10), wal(10, 20), head=wal(20, 30))
    plan = plan_stream(stream, NOW, SETTINGS)
    assert (plan.inputs, plan.seal, plan.more, plan.refused) == ([], False, False, None)


def test_age_brings_the_whole_run() -> None:
    assert planned(view(wal(0, 10, age=60_000), wal(10, 20), head=wal(20, 30))) == [(0, 10), (10, 20)]


def test_size_and_number_bring_it_too() -> None:
    assert planned(view(wal(0, 10, 600), wal(10, 20, 400), head=wal(20, 30))) == [(0, 10), (10, 20)]
    many = [wal(place, place + 1) for place in range(10)]
    assert planned(view(*many, head=wal(10, 11))) == [(place, place + 1) for place in range(10)]
    assert planned(view(*many[:9], head=wal(9, 10))) == []


def test_the_head_is_never_an_input_but_sealed_when_it_is_old() -> None:
    assert plan_stream(view(head=wal(0, 10, age=59_999)), NOW, SETTINGS).seal is False
    plan = plan_stream(view(head=wal(0, 10, age=60_000)), NOW, SETTINGS)
    assert (plan.seal, plan.inputs) == (True, [])


def test_everything_is_everything() -> None:
    plan = plan_stream(view(wal(0, 10), head=wal(10, 20)), NOW, SETTINGS, everything=True)
    assert (plan.seal, len(plan.inputs), plan.more) == (True, 1, True)


def test_a_file_has_a_target_and_one_entry_in_any_case() -> None:
    stream = view(wal(0, 10, 900), wal(10, 20, 900), wal(20, 30, 900), wal(30, 40, 9000))
    assert planned(stream) == [(0, 10), (10, 20)]
    plan = plan_stream(stream, NOW, SETTINGS)
    assert plan.more, "the rest is due as well"
    assert planned(view(wal(0, 10, 9000), wal(10, 20))) == [(0, 10)]


def test_the_engine_limits_the_inputs() -> None:
    many = [wal(place, place + 1) for place in range(30)]
    assert len(planned(view(*many))) == 20
    plan = plan_stream(view(*many), NOW, SETTINGS, most_inputs=4)
    assert len(plan.inputs) == 4


def test_what_is_covered_or_expired_is_dead_and_no_input() -> None:
    stream = view(wal(0, 10, age=99_999), wal(10, 12), wal(12, 15), parquet(10, 20), start=10)
    plan = plan_stream(stream, NOW, SETTINGS)
    assert [(entry.value.start, entry.value.end) for entry in plan.dead] == [(12, 15), (10, 12), (0, 10)]
    # What reaches above the start is live, though part of it has expired.
    assert planned(view(wal(0, 10, age=99_999), wal(10, 20), start=5)) == [(0, 10), (10, 20)]


def test_a_file_from_the_start_on_covers_what_it_replaced() -> None:
    """A late write may bring the entry back that reached below the start: the file has none of that part."""
    plan = plan_stream(view(wal(4, 12, age=99_999), parquet(10, 20), start=10), NOW, SETTINGS)
    assert [(entry.value.start, entry.value.end) for entry in plan.dead] == [(4, 12)]
    assert plan.inputs == []
    # Without the file it counts: nothing else has what lies above the start.
    assert planned(view(wal(4, 12, age=99_999), parquet(12, 20), start=10)) == [(4, 12)]


def test_a_file_that_reaches_below_the_start_is_trimmed_first() -> None:
    files = [parquet(0, 10, 5000), *[parquet(place, place + 10) for place in range(10, 90, 10)]]
    stream = view(*files, wal(90, 95, age=99_999), start=5)
    plan = plan_stream(stream, NOW, SETTINGS, trim=True)
    assert ([entry.value.path for entry in plan.inputs], plan.trims, plan.more) == (["p10"], True, True)
    assert not plan_stream(stream, NOW, SETTINGS).trims, "there is no table that shows it"
    whole = view(parquet(0, 10, 5000), parquet(10, 20, 5000), start=10)
    assert plan_stream(whole, NOW, SETTINGS, trim=True).inputs == [], "what lies above stays as it is"


def test_records_that_were_never_compacted_are_not_trimmed_first() -> None:
    """They begin at the start when their turn comes."""
    assert plan_stream(view(wal(0, 10), wal(10, 20), start=5), NOW, SETTINGS, trim=True).inputs == []


def test_kinds_are_not_mixed() -> None:
    stream = view(parquet(0, 10), wal(10, 20, age=60_000), parquet(20, 30), wal(30, 40, age=70_000))
    assert planned(stream) == [(10, 20)]


def test_too_many_small_files_are_merged() -> None:
    files = [parquet(place * 10, place * 10 + 10) for place in range(4)]
    assert planned(view(*files[:3])) == []
    assert planned(view(*files)) == [(0, 10), (10, 20), (20, 30), (30, 40)]


def test_large_files_stay_as_they_are() -> None:
    files = [parquet(0, 10), parquet(10, 20, 5000), parquet(20, 30), parquet(30, 40), parquet(40, 50, 1500)]
    assert planned(view(*files)) == [(20, 30), (30, 40)]
    assert planned(view(*[parquet(place, place + 1, 1000) for place in range(8)])) == []


def test_records_come_before_merging_unless_files_pile_up() -> None:
    files = [parquet(place * 10, place * 10 + 10) for place in range(4)]
    assert planned(view(*files, wal(40, 50, age=60_000))) == [(40, 50)]
    files = [parquet(place * 10, place * 10 + 10) for place in range(7)]
    assert len(planned(view(*files, wal(70, 80, age=60_000)))) == 7


def test_by_day_a_unit_ends_at_midnight() -> None:
    midnight = NOW // DAY_MS * DAY_MS
    stream = view(
        wal(0, 10, at=midnight - 9, age=60_000),
        wal(10, 20, at=midnight - 1),
        wal(20, 30, at=midnight, age=60_000),
    )
    assert planned(stream, by_day=True) == [(0, 10), (10, 20)]
    assert plan_stream(stream, NOW, SETTINGS, by_day=True).refused is None
    assert planned(stream) == [(0, 10), (10, 20), (20, 30)]
    files = [parquet(place, place + 1, at=midnight - 2 + place) for place in range(4)]
    assert planned(view(*files), by_day=True) == [(0, 1), (1, 2)]


def test_by_day_an_entry_of_two_days_is_refused_by_name() -> None:
    midnight = NOW // DAY_MS * DAY_MS
    spanning = replace(wal(0, 10, at=midnight - 1, age=60_000), max_timestamp=midnight)
    plan = plan_stream(view(spanning), NOW, SETTINGS, by_day=True)
    assert plan.inputs == []
    assert plan.refused is not None
    assert "offset 0" in plan.refused
    assert "two days" in plan.refused


@st.composite
def streams(draw: st.DrawFn) -> StreamView:
    entries: list[IndexEntry] = []
    offset = 0
    for _ in range(draw(st.integers(1, 25))):
        end = offset + draw(st.integers(1, 5))
        at = NOW - draw(st.integers(0, 3)) * DAY_MS
        if draw(st.booleans()):
            entries.append(parquet(offset, end, draw(st.integers(1, 3000)), at=at))
        else:
            entries.append(
                wal(offset, end, draw(st.integers(1, 3000)), age=draw(st.integers(0, 99_999)), at=at)
            )
        offset = end
    return view(*entries, head=wal(offset, offset + 1) if draw(st.booleans()) else None)


@given(streams(), st.booleans(), st.booleans())
def test_a_unit_is_always_adjoining_of_one_kind_and_below_the_head(
    stream: StreamView, everything: bool, by_day: bool
) -> None:
    plan = plan_stream(stream, NOW, SETTINGS, everything=everything, by_day=by_day, most_inputs=6)
    assert plan.dead == []
    inputs = [entry.value for entry in plan.inputs]
    assert len(inputs) <= 6
    assert len({entry.kind for entry in inputs}) <= 1
    for before, after in pairwise(inputs):
        assert before.end == after.start
    if by_day:
        assert len({entry.min_timestamp // DAY_MS for entry in inputs}) <= 1
    if inputs and inputs[0].is_parquet:
        assert len(inputs) > 1
        assert sum(entry.file_size for entry in inputs) <= SETTINGS.target_file_bytes
    if everything:
        wal_entries = [entry for entry in stream.entries if not entry.value.is_parquet]
        assert bool(inputs) or not wal_entries


@given(streams(), st.booleans())
def test_a_plan_for_the_end_of_the_index_is_the_plan_for_all_of_it(stream: StreamView, by_day: bool) -> None:
    live = stream.split()[0]
    below = settled(live, SETTINGS, by_day=by_day)
    assert live[: len(below)] == below
    end = replace(stream, entries=stream.entries[len(below) :])
    plan = plan_stream(end, NOW, SETTINGS, by_day=by_day, settled_files=len(below))
    assert plan == plan_stream(stream, NOW, SETTINGS, by_day=by_day)


def test_files_settle_when_none_beside_them_is_small() -> None:
    large, small = SETTINGS.target_file_bytes, SETTINGS.target_file_bytes // 4
    sizes = [large, small, large, small, small, large]
    stream = view(*[parquet(place, place + 1, size) for place, size in enumerate(sizes)])
    assert len(settled(stream.split()[0], SETTINGS, by_day=False)) == 3, "two small ones could be one"
    stream = view(*[parquet(place, place + 1, size) for place, size in enumerate(sizes[:4])])
    assert len(settled(stream.split()[0], SETTINGS, by_day=False)) == 3, "another small one may follow"


def test_cleaning_stops_at_a_gap_between_files() -> None:
    """As attached topics have: a unit over it would be refused, and the topic never cleaned."""
    settings = TopicSettings.of({"cleanup.policy": "compact"}, {})
    rules = CleaningRules(settings, NOTHING_CLEANED, NOW, 1 << 30)
    files = [parquet(0, 10), parquet(10, 20), parquet(25, 30)]
    live = [Versioned(entry, 1) for entry in files]
    step = rules.next_step(live, 20, 1 << 30, everything=True)
    assert [(entry.value.start, entry.value.end) for entry in step.inputs] == [(0, 10), (10, 20)]
