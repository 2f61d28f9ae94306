"""A thread that polls lives through whatever one look raises, and a bell wakes it."""

from __future__ import annotations

import threading

import pytest

from dray.base.runtime.workers import PollingThread

PATIENCE = 60.0
NEVER = 10_000.0


class RingingBell:
    """One that rings whenever it is waited for."""

    def __init__(self, works: bool = True) -> None:
        self._works = works
        self.closed = threading.Event()

    def open(self) -> bool:
        return self._works

    def wait(self, seconds: float) -> bool:
        assert self._works
        return True

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


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


def test_a_bell_wakes_the_thread_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PollingThread, "REST_SECONDS", 0.0)
    looked = threading.Event()
    looks: list[int] = []

    def poll() -> bool:
        looks.append(1)
        if len(looks) == 10:
            looked.set()
        return False

    bell = RingingBell()
    poller = PollingThread("test", NEVER, NEVER, poll, lambda: None, bell)
    assert looked.wait(PATIENCE)
    poller.stop()
    assert bell.closed.wait(PATIENCE)


def test_a_bell_that_never_stops_ringing_does_not_take_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a look because of it, the thread rests: here until it is stopped."""
    monkeypatch.setattr(PollingThread, "REST_SECONDS", NEVER)
    looked = threading.Event()
    looks: list[int] = []

    def poll() -> bool:
        looks.append(1)
        if len(looks) == 2:
            looked.set()
        return False

    bell = RingingBell()
    poller = PollingThread("test", NEVER, NEVER, poll, lambda: None, bell)
    assert looked.wait(PATIENCE)
    assert not bell.closed.wait(0.02)
    poller.stop()
    assert bell.closed.wait(PATIENCE)
    assert len(looks) == 2


def test_without_a_bell_that_works_the_thread_wakes_by_time() -> None:
    looked = threading.Event()
    bell = RingingBell(works=False)
    looks: list[int] = []

    def poll() -> bool:
        looks.append(1)
        if len(looks) == 3:
            looked.set()
        return False

    poller = PollingThread("test", 0.001, 0.001, poll, lambda: None, bell)
    assert looked.wait(PATIENCE)
    poller.stop()
    assert bell.closed.wait(PATIENCE)
