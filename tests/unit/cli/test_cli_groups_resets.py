"""Where a reset takes a group: what people may write, and the offsets that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from dray.cli.group_views import choose_target, parse_duration, parse_topics
from dray.cli.options import parse_time
from dray.daemons.assembly.failures import USAGE, Failure
from dray.inspection.groups.resets import (
    ChosenPartitions,
    PartitionBounds,
    ResetRefused,
    ResetTarget,
    Target,
    plan_moves,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000


def target(**given: Any) -> Target:
    nothing: dict[str, Any] = {
        "to_earliest": False,
        "to_latest": False,
        "to_current": False,
        "to_offset": None,
        "shift_by": None,
        "to_datetime": None,
        "by_duration": None,
    }
    return choose_target(**(nothing | given), now_ms=NOW)


def test_topics_and_partitions() -> None:
    assert parse_topics(["a", "b.c:2,0,2"]) == [ChosenPartitions("a", None), ChosenPartitions("b.c", [0, 2])]


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2"])
def test_topics_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Failure, match="must be TOPIC or TOPIC:0,1,2") as caught:
        parse_topics([text])
    assert caught.value.code == USAGE


def test_a_topic_is_named_once() -> None:
    with pytest.raises(Failure, match="names a twice"):
        parse_topics(["a:0", "a:1"])


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2023-11-14T22:13:20.123", NOW + 123),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14T22:13", NOW - 20_000),
        ("2023-11-14", 1_699_920_000_000),
        ("1969-12-31T23:59:59.999", 0),  # -1 would mean the latest
    ],
)
def test_times(text: str, time: int) -> None:
    assert parse_time(text, "--to-datetime") == time


@pytest.mark.parametrize("text", ["", "yesterday", "22:13:20", "2023-13-01"])
def test_times_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Failure, match="must be a time such as") as caught:
        parse_time(text, "--to-datetime")
    assert caught.value.code == USAGE


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT2H", 2 * HOUR),
        ("P1DT2H30M1.5S", 26 * HOUR + 30 * 60_000 + 1500),
        ("p7d", 7 * 24 * HOUR),
        ("PT0S", 0),
        ("90m", 90 * 60_000),
        ("250ms", 250),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "2", "-PT1H", "1 fortnight", "P99999999D"])
def test_durations_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Failure, match="must be such as PT2H30M") as caught:
        parse_duration(text)
    assert caught.value.code == USAGE


def test_exactly_one_target() -> None:
    assert target(to_earliest=True) == (ResetTarget.EARLIEST, 0)
    assert target(to_offset=0) == (ResetTarget.OFFSET, 0)
    assert target(shift_by=-5) == (ResetTarget.SHIFT, -5)
    assert target(to_datetime="2023-11-14T22:13:20") == (ResetTarget.TIME, NOW)
    assert target(by_duration="PT1H") == (ResetTarget.AGO, NOW - HOUR)
    assert target(by_duration="P36500D") == (ResetTarget.AGO, 0)
    for given in ({}, {"to_latest": True, "to_offset": 3}):
        with pytest.raises(Failure, match="give one of --to-earliest, ") as caught:
            target(**given)
        assert caught.value.code == USAGE
    with pytest.raises(Failure, match="must be 0 or more"):
        target(to_offset=-1)


BOUNDS = PartitionBounds(start=5, end=20, at_time=12)


@pytest.mark.parametrize(
    ("aim", "new", "note"),
    [
        ((ResetTarget.EARLIEST, 0), 5, ""),
        ((ResetTarget.LATEST, 0), 20, ""),
        ((ResetTarget.CURRENT, 0), 8, ""),
        ((ResetTarget.OFFSET, 7), 7, ""),
        ((ResetTarget.OFFSET, 4), 5, "4 is below the start"),
        ((ResetTarget.OFFSET, 20), 20, ""),
        ((ResetTarget.OFFSET, 21), 20, "21 is beyond the end"),
        ((ResetTarget.SHIFT, 2), 10, ""),
        ((ResetTarget.SHIFT, -9), 5, "-1 is below the start"),
        ((ResetTarget.TIME, NOW), 12, ""),
        ((ResetTarget.AGO, NOW), 12, ""),
    ],
)
def test_new_offsets(aim: Target, new: int, note: str) -> None:
    [move] = plan_moves(aim, {("t", 0): BOUNDS}, {("t", 0): 8})
    assert (move.topic, move.partition, move.old, move.new, move.end, move.note) == ("t", 0, 8, new, 20, note)


def test_without_a_committed_offset() -> None:
    partitions = {("t", 1): BOUNDS}
    [move] = plan_moves((ResetTarget.CURRENT, 0), partitions, {})
    assert (move.old, move.new, move.note) == (None, 20, "nothing was committed")
    with pytest.raises(ResetRefused, match="t-1 has none committed"):
        plan_moves((ResetTarget.SHIFT, 1), partitions, {})


def test_a_time_after_the_last_record_is_the_end() -> None:
    [move] = plan_moves((ResetTarget.TIME, NOW), {("t", 0): PartitionBounds(5, 20, -1)}, {})
    assert (move.new, move.note) == (20, "no record is as late")


def test_moves_are_in_order() -> None:
    partitions = {("b", 0): BOUNDS, ("a", 10): BOUNDS, ("a", 9): BOUNDS}
    moves = plan_moves((ResetTarget.EARLIEST, 0), partitions, {})
    assert [(move.topic, move.partition) for move in moves] == [("a", 9), ("a", 10), ("b", 0)]
