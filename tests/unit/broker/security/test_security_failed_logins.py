"""Failed logins slow who made them, more with each, and nobody else."""

from __future__ import annotations

import pytest

from dray.broker.security import failed_logins
from dray.broker.security.failed_logins import FREE, LONGEST_PAUSE, FailedLogins


def test_the_pause_grows_up_to_a_bound_and_ends() -> None:
    now = 100.0
    failed = FailedLogins(lambda: now)
    pauses = []
    for _ in range(FREE + 8):
        failed.failed("a")
        pauses.append(failed.pause("a"))
    assert pauses[: FREE - 1] == [0.0] * (FREE - 1)
    assert pauses[FREE - 1 :] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[LONGEST_PAUSE] * 3]
    assert failed.pause("b") == 0.0
    assert not failed.is_failing("b")
    assert failed.is_failing("a")
    now += LONGEST_PAUSE
    assert failed.pause("a") == 0.0
    assert failed.is_failing("a"), "the next failure has the longest pause again"
    now += failed_logins.FORGOTTEN_SECONDS
    assert not failed.is_failing("a")


def test_who_logs_in_has_failed_never() -> None:
    failed = FailedLogins(lambda: 0.0)
    for _ in range(20):
        failed.failed("a")
    failed.succeeded("a")
    assert failed.pause("a") == 0.0


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "MOST_KNOWN", 3)
    failed = FailedLogins(lambda: 0.0)
    for number in range(10):
        failed.failed(f"user {number}")
    assert len(failed) == 3
