"""A thread that polls lives through whatever one look raises."""

from __future__ import annotations

import threading

from dray.runtime.workers import PollingThread


def test_a_thread_that_polls_lives_through_whatever_it_raises() -> None:
    looked = threading.Event()
    finished = threading.Event()
    looks: list[int] = []

    def poll() -> bool:
        looks.append(1)
        if len(looks) < 3:
            raise ValueError("not foreseen")
        looked.set()
        return False

    poller = PollingThread("test", 0.001, 0.001, poll, finished.set)
    assert looked.wait(30)
    poller.stop()
    assert finished.wait(30)
