"""The machine's clocks, as the system's runtime reads them."""

from __future__ import annotations

import time

import pytest

from dray.base.runtime import SystemRuntime


def test_the_time_of_a_suspended_machine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour asleep, which CLOCK_MONOTONIC does not see."""
    slept = 3600.0
    kept, counting = time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def clock_gettime(clock: int) -> float:
        return kept(time.CLOCK_MONOTONIC) + (slept if clock == counting else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    runtime = SystemRuntime(threads=1)
    assert runtime.monotonic() - time.monotonic() == pytest.approx(slept, abs=60.0)
    runtime.close()
