"""Which long turns of a broker fail a test."""

from __future__ import annotations

from tests.services.turns import ALLOWED_SECONDS, slowness, too_long

SHORT = 'drayd: {"seconds": 0.12, "event": "the event loop was held up"}'
LONG = 'drayd: {"seconds": 0.2, "event": "the event loop was held up"}'


def test_a_turn_that_is_long_counts() -> None:
    assert too_long([SHORT, LONG], lambda: 1.0) == [LONG]
    assert too_long([SHORT, LONG], lambda: 0.2 / ALLOWED_SECONDS + 0.01) == []
    assert too_long([SHORT, LONG], lambda: 1.0, allowed=0.1) == [SHORT, LONG]


def test_the_machine_is_measured_only_where_there_is_something_to_judge() -> None:
    def never() -> float:
        raise AssertionError

    assert too_long([], never) == []


def test_a_fast_machine_makes_no_bound_smaller() -> None:
    assert 1.0 <= slowness() < 100
