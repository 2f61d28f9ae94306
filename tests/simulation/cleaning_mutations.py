"""Rules of compaction by key, each taken out of the code (`docs/design/0110`, `0111`).

Beside each stands what notices it: a test of `tests/unit/tables/compaction` that is a schedule for just that,
or the seed from which runs about compaction by key find it, or both.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow
import pyarrow.compute as pc
import pytest
from tests.services.compaction_cluster import Cluster
from tests.simulation.noticing import check_schedule_notices

from dray.broker.topics import configs
from dray.kafka.records import read_header
from dray.log.jobs.cleaned import Cleaned, CleaningRound
from dray.log.jobs.swap import Swap
from dray.log.jobs.values import Compaction
from dray.log.life import retention
from dray.log.read import parquet_reader
from dray.log.read.reader import StreamReader
from dray.log.types import ObjectCorrupt
from dray.tables.compaction import saga
from dray.tables.compaction.planning import clean_plan, stream_planner
from dray.tables.compaction.planning.clean_plan import CleaningRules
from dray.tables.compaction.planning.stream_planner import StreamPlanner
from dray.tables.compaction.writing import cleaning, executor
from dray.tables.compaction.writing.cleaning import KeyObject, LastOffsets, Survivors
from dray.tables.compaction.writing.executor import UnitRows
from dray_simulation.kernel.loop import run

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Noticed:
    mutation: Patch
    module: str = ""  # of `tests/unit/tables/compaction`: "by key" or "rounds"
    schedule: str = ""  # a test there, on a small cluster
    seed: int | None = None  # from which on a run about compaction by key finds it


# --- 1: tombstones


def tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """In any merge, though what they delete lies further down."""
    patch.setattr(Cleaned, "tombstones_below", lambda *_: 1 << 62)


def tombstones_go_below_any_clean_point(patch: pytest.MonkeyPatch) -> None:
    """Before `delete.retention.ms` has passed."""
    patch.setattr(Cleaned, "tombstones_below", lambda self, *_: self.end)


# --- 2: clean points


def the_clean_point_comes_before_the_swap(patch: pytest.MonkeyPatch) -> None:
    kept = Swap._swap

    async def swap(self: Swap, stream: int, job: Any) -> Any:
        if job.value.compaction is not None:
            await self._note_cleaned(stream, job.value.compaction)
        return await kept(self, stream, job)

    patch.setattr(Swap, "_swap", swap)


def every_merge_makes_a_clean_point(patch: pytest.MonkeyPatch) -> None:
    """Also one that began above the start."""
    kept = Compaction.cleaned_to.fget  # type: ignore[attr-defined]

    def cleaned_to(self: Compaction) -> int | None:
        found: int | None = kept(self)
        return self.end if found is None and self.cleaning is not None else found

    patch.setattr(Compaction, "cleaned_to", property(cleaned_to))


def what_was_planned_is_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    """An older build may have written every row."""

    def cleaned_to(self: Compaction) -> int | None:
        return self.end if self.cleaning is not None and self.cleaning.from_start else None

    patch.setattr(Compaction, "cleaned_to", property(cleaned_to))


def what_was_planned_against_keys_is_taken_for_written(patch: pytest.MonkeyPatch) -> None:
    def cleaned_with(self: Compaction) -> str | None:
        return None if self.cleaning is None else self.cleaning.keys

    patch.setattr(Compaction, "cleaned_with", property(cleaned_with))


# --- 3: the later one


class _ByTime(LastOffsets):
    """Of two records of a key, the one with the later time stays."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._pieces: list[pyarrow.Table] = []

    def add(self, rows: Any) -> None:
        if len(rows):
            self._last_row = max(self._last_row, rows.column("offset")[-1].as_py())
            self._pieces.append(
                pyarrow.table({name: rows.column(name) for name in ("key", "offset", "timestamp")})
            )

    def survivors(self) -> Survivors:
        table = pyarrow.concat_tables(self._pieces).sort_by("timestamp")
        last = table.group_by("key", use_threads=False).aggregate([("offset", "last")])
        return Survivors(last.column("offset_last").combine_chunks().sort(), self._last_row)


def the_time_decides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executor, "LastOffsets", _ByTime)
    patch.setattr(executor, "COLUMNS", (*cleaning.COLUMNS, "timestamp"))


def the_first_of_a_round_decides(patch: pytest.MonkeyPatch) -> None:
    """Of a key that several files have, the first of them counts: what the others supersede stays."""

    def fold(pieces: list[Any]) -> Any:
        folded = pyarrow.concat_tables(pieces).group_by(["high", "low"]).aggregate([("offset", "min")])
        return folded.rename_columns({"offset_min": "offset"}).select(["high", "low", "offset"])

    patch.setattr(cleaning, "_fold", fold)


# --- 5: keys


def an_empty_key_is_none(patch: pytest.MonkeyPatch) -> None:
    kept = Survivors.filtered

    def filtered(self: Survivors, rows: Any, how: Any) -> Any:
        left = kept(self, rows, how)
        return left.filter(pc.fill_null(pc.greater(pc.binary_length(left.column("key")), 0), True))

    patch.setattr(Survivors, "filtered", filtered)


# --- 6: no file is empty


def no_row_stands_for_an_emptied_file(patch: pytest.MonkeyPatch) -> None:
    """The dead row that stays is not spoken of: the round goes on as if it had gone."""
    patch.setattr(UnitRows, "emptied", property(lambda _: False, lambda *_: None), raising=False)


# --- 8: policies


def a_topic_is_compacted_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Once it was, whatever its policy says later."""
    kept = StreamPlanner._rules
    once: set[Any] = set()

    def rules(self: StreamPlanner, topic: Any, view: Any) -> Any:
        if topic.settings.compacts:
            once.add(topic.topic_id)
        compacts = topic.topic_id in once
        return kept(self, replace(topic, settings=replace(topic.settings, compacts=compacts)), view)

    patch.setattr(StreamPlanner, "_rules", rules)


def what_was_there_before_is_never_compacted(patch: pytest.MonkeyPatch) -> None:
    """`compact` later: only files that have holes already count."""
    kept = CleaningRules._parts

    def parts(self: CleaningRules, live: Any) -> Any:
        return kept(self, [entry for entry in live if entry.value.sparse])

    patch.setattr(CleaningRules, "_parts", parts)


# --- 9: clocks


def a_doubted_clock_is_believed(patch: pytest.MonkeyPatch) -> None:
    kept = StreamPlanner._rules

    def rules(self: StreamPlanner, topic: Any, view: Any) -> Any:
        doubted = self._expiry

        class Believed:
            def now_ms(_) -> int:  # noqa: N805
                found = doubted.now_ms()
                return self._runtime.wall_ms() if found is None else found

            def likely_ms(_) -> int:  # noqa: N805
                return doubted.likely_ms()

        self._expiry = Believed()
        try:
            return kept(self, topic, view)
        finally:
            self._expiry = doubted

    patch.setattr(StreamPlanner, "_rules", rules)


# --- 10: readers


def a_reader_of_a_replaced_file_is_refused(patch: pytest.MonkeyPatch) -> None:
    async def nowhere(_: StreamReader, request: Any, gone: Any) -> Any:
        raise ObjectCorrupt(f"{gone.path} is gone, and with it offset {request.offset}")

    patch.setattr(StreamReader, "read_elsewhere", nowhere)


def a_reader_finds_only_what_has_a_row(patch: pytest.MonkeyPatch) -> None:
    """In the new file, a position inside of a hole is not found."""
    kept = StreamReader.read_elsewhere

    async def exactly(self: StreamReader, request: Any, gone: Any) -> Any:
        views = await kept(self, request, gone)
        return views if views and read_header(views[0]).base_offset <= request.offset else []

    patch.setattr(StreamReader, "read_elsewhere", exactly)


def no_filler(patch: pytest.MonkeyPatch) -> None:
    """The end of an entry whose last records are gone is not reached."""
    patch.setattr(parquet_reader, "filler", lambda *_: b"")


# --- 11: what is said of the configs


def the_configs_have_no_effect(patch: pytest.MonkeyPatch) -> None:
    changed = {
        name: replace(config, documentation=configs.NO_EFFECT) for name, config in configs.CONFIGS.items()
    }
    patch.setattr(configs, "CONFIGS", changed)


# --- sizes


def retention_counts_what_was_appended(patch: pytest.MonkeyPatch) -> None:
    async def nothing_was_removed(self: retention.Retention, *_: object) -> None:
        return None

    patch.setattr(retention.Retention, "_stored_bytes", nothing_was_removed)


# --- rounds


def a_round_is_over_after_its_first_file(patch: pytest.MonkeyPatch) -> None:
    kept = Cleaned.advanced

    def advanced(self: Cleaned, keys: str, after: int, end: int, *given: Any, **rest: Any) -> Cleaned:
        return kept(self, keys, after, max(end, 1 << 60), *given, **rest)

    patch.setattr(Cleaned, "advanced", advanced)


def a_round_skips_files(patch: pytest.MonkeyPatch) -> None:
    """Every second of its files is left as it is."""
    kept = CleaningRules._next_of_round

    def following(self: CleaningRules, live: Any, found: CleaningRound, *given: Any) -> Any:
        first = kept(self, live, found, *given)
        later = [entry for entry in live if first and entry.value.start >= first[-1].value.end]
        return kept(self, later, found, *given) or first

    patch.setattr(CleaningRules, "_next_of_round", following)


def keys_begin_above_the_clean_point(patch: pytest.MonkeyPatch) -> None:
    """The first of the dirty files is left out of the keys."""
    kept = saga.keys_unit

    def keys_unit(topic: Any, partition: int, job: Any, inputs: Any, start: int, most: int) -> Any:
        return kept(topic, partition, job, inputs[1:] or inputs, start, most)

    patch.setattr(stream_planner, "keys_unit", keys_unit)


def the_keys_are_a_bare_hash(patch: pytest.MonkeyPatch) -> None:
    kept = cleaning._digests
    patch.setattr(cleaning, "_digests", lambda keys, _secret: kept(keys, b"known to all"))


def damaged_keys_are_believed(patch: pytest.MonkeyPatch) -> None:
    kept = cleaning.KeyObject.__init__

    def init(self: KeyObject, path: str, data: Any) -> None:
        patch.setattr(cleaning, "crc32", lambda *_: int.from_bytes(bytes(data)[9:13], "little"))
        kept(self, path, data)

    patch.setattr(KeyObject, "__init__", init)


def two_days_in_one_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clean_plan, "_day", lambda _: 0)


def a_table_hears_nothing_of_rounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cleaned, "completed_to", lambda *_, **__: None)


def a_table_takes_any_file_of_a_round_for_the_last(patch: pytest.MonkeyPatch) -> None:
    def completed_to(self: Cleaned, keys: str, after: int, end: int, *, emptied: bool) -> int | None:
        found = self._round_of(keys, after, end)
        return None if found is None else found.end

    patch.setattr(Cleaned, "completed_to", completed_to)


MUTATIONS: Final[dict[str, Noticed]] = {
    "tombstones go at once": Noticed(
        tombstones_go_at_once, "by key", "test_rule_1_no_ordinary_merge_drops_a_tombstone", seed=0
    ),
    "tombstones go below any clean point": Noticed(
        tombstones_go_below_any_clean_point,
        "by key",
        "test_rule_1_a_tombstone_goes_only_below_a_clean_point_that_is_old_enough",
        seed=3,
    ),
    "the clean point comes before the swap": Noticed(
        the_clean_point_comes_before_the_swap, "by key", "test_rule_2_no_clean_point_before_the_swap", seed=0
    ),
    "every merge makes a clean point": Noticed(every_merge_makes_a_clean_point, seed=0),
    "what was planned is taken for written": Noticed(
        what_was_planned_is_taken_for_written,
        "by key",
        "test_rule_2_a_file_that_another_build_wrote_moves_no_clean_point",
    ),
    "what was planned against keys is taken for written": Noticed(
        what_was_planned_against_keys_is_taken_for_written,
        "rounds",
        "test_rule_2_a_file_that_another_build_wrote_brings_no_round_further",
    ),
    "the time decides": Noticed(
        the_time_decides, "by key", "test_rule_3_the_offset_decides_and_not_the_time"
    ),
    "the first of a round decides": Noticed(
        the_first_of_a_round_decides, "rounds", "test_a_large_stream_is_cleaned_file_by_file"
    ),
    "an empty key is none": Noticed(
        an_empty_key_is_none, "by key", "test_rule_5_an_empty_key_is_a_key_and_none_is_not"
    ),
    "no row stands for an emptied file": Noticed(
        no_row_stands_for_an_emptied_file,
        "rounds",
        "test_a_file_of_which_nothing_is_left_goes_with_the_next",
    ),
    "a topic is compacted for ever": Noticed(
        a_topic_is_compacted_for_ever, "by key", "test_rule_8_policies_may_change"
    ),
    "what was there before is never compacted": Noticed(
        what_was_there_before_is_never_compacted, "by key", "test_rule_8_policies_may_change"
    ),
    "a doubted clock is believed": Noticed(
        a_doubted_clock_is_believed,
        "by key",
        "test_rule_9_nothing_is_compacted_while_the_clock_is_doubted",
    ),
    "a reader of a replaced file is refused": Noticed(
        a_reader_of_a_replaced_file_is_refused, "by key", "test_rule_10_a_reader_goes_on_in_the_new_file"
    ),
    "a reader finds only what has a row": Noticed(
        a_reader_finds_only_what_has_a_row, "by key", "test_rule_10_a_reader_goes_on_in_the_new_file", seed=2
    ),
    "no filler": Noticed(no_filler, "by key", "test_the_end_of_an_emptied_tail_is_reached"),
    "the configs have no effect": Noticed(
        the_configs_have_no_effect, "by key", "test_rule_11_the_configs_say_what_they_do"
    ),
    "retention counts what was appended": Noticed(
        retention_counts_what_was_appended, "by key", "test_retention_by_size_counts_what_is_there"
    ),
    "a round is over after its first file": Noticed(
        a_round_is_over_after_its_first_file, "rounds", "test_a_large_stream_is_cleaned_file_by_file"
    ),
    "a round skips files": Noticed(a_round_skips_files, seed=3),
    "keys begin above the clean point": Noticed(keys_begin_above_the_clean_point, seed=0),
    "the keys are a bare hash": Noticed(
        the_keys_are_a_bare_hash, "rounds", "test_keys_are_digests_of_a_secret"
    ),
    "damaged keys are believed": Noticed(
        damaged_keys_are_believed, "rounds", "test_changed_keys_are_not_believed"
    ),
    "a table hears nothing of rounds": Noticed(
        a_table_hears_nothing_of_rounds,
        "rounds",
        "test_the_table_says_so_with_the_last_file_of_a_round",
    ),
    "a table takes any file of a round for the last": Noticed(
        a_table_takes_any_file_of_a_round_for_the_last,
        "rounds",
        "test_the_table_says_so_with_the_last_file_of_a_round",
    ),
    "two days in one file": Noticed(
        two_days_in_one_file, "rounds", "test_a_table_by_day_is_cleaned_over_days"
    ),
}


def noticed_in(module: str) -> list[str]:
    """The mutations that tests of that module notice."""
    return [name for name, noticed in MUTATIONS.items() if noticed.module == module]


def check_noticed(name: str, tests: Mapping[str, Any]) -> None:
    """Unmutated, the test passes."""
    noticed = MUTATIONS[name]
    schedule = tests[noticed.schedule]

    async def act() -> None:
        done = schedule(Cluster()) if inspect.signature(schedule).parameters else schedule()
        if asyncio.iscoroutine(done):
            await done

    check_schedule_notices(noticed.mutation, lambda: run(act()))
