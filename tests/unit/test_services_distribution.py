"""The order of test files: those that wait between those that compute, and none that is long at the end."""

from __future__ import annotations

from tests.services.distribution import LAST_LONG, ONE_PLACE, in_order, place_of

WAITING = [f"tests/integration/test_{number}.py" for number in range(40)]
COMPUTING = [f"tests/unit/log/test_log_{number}.py" for number in range(100)]
SIMULATION = [f"tests/simulation/test_simulation_{number}.py" for number in range(10)]
METADATA = [f"{ONE_PLACE}/test_metadata_{name}.py" for name in "ab"]


def test_every_file_comes_once() -> None:
    given = [*COMPUTING, *METADATA, *SIMULATION, *WAITING]
    assert sorted(in_order([*given, *given])) == sorted(given)


def test_those_that_wait_and_those_that_compute_take_turns() -> None:
    order = in_order([*COMPUTING, *METADATA, *SIMULATION, *WAITING])
    assert order[:2] == METADATA
    for start in range(2, int(LAST_LONG * len(order)) - 12, 6):
        part = order[start : start + 12]
        assert 2 <= len([path for path in part if path in WAITING]) <= 6, part
        assert len([path for path in part if path in SIMULATION]) <= 2, part
    assert set(order[-12:]) <= set(COMPUTING)


def test_of_one_kind_the_order_stays() -> None:
    order = in_order([*COMPUTING, *WAITING])
    assert [path for path in order if path in WAITING] == WAITING
    assert [path for path in order if path in COMPUTING] == COMPUTING


def test_what_shares_long_starts_is_one_place() -> None:
    assert {place_of(path) for path in METADATA} == {ONE_PLACE}
    assert place_of(WAITING[0]) == WAITING[0]
