"""Calls of a catalog, and of the store of its tables, that come to an end whatever these do.

One that never answers (a database behind a network that swallows packets) would hold a thread for each call,
and one that answers nothing within its timeout would have each of a thousand topics wait for that, some at a
time, while the log waits for all of them. So a call is given up after a while; and once several in a row met
nothing but silence, one now and then finds out whether that is over, and all others fail at once.

A call that was given up may still be done later, as with any other outcome that is unclear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Final, TypeVar

from dray.base.runtime import Runtime
from dray.tables.contract import TablesUnavailable

T = TypeVar("T")

PATIENCES: Final = 10
"""A call may consist of many requests: it is given up after so many times the patience with one."""
MOST_STUCK: Final = 8
"""So many calls that were given up hold a thread each; no more are made until some of them end."""
SILENCES: Final = 3
"""In a row."""


class PatientCalls:
    def __init__(self, what: str, timeout_seconds: float, runtime: Runtime) -> None:
        """`what` is called. `timeout_seconds`: for one request."""
        self._what = what
        self._timeout = timeout_seconds
        self._runtime = runtime
        self._stuck: list[Event] = []  # calls that were given up, each set when its thread ends after all
        self._silences = 0
        self._asked_again = 0.0

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """In a thread. Raises `TablesUnavailable`, and what the function raises."""
        seconds = PATIENCES * self._timeout
        self._require_hope(seconds)
        begun, ended = Event(), Event()

        def work() -> T:
            begun.set()
            try:
                return function(*arguments)
            finally:
                ended.set()

        try:
            found = await asyncio.wait_for(self._runtime.in_thread(work), seconds)
        except TimeoutError as error:
            if begun.is_set():
                self._stuck.append(ended)
            self._met_silence()
            raise TablesUnavailable(f"{self._what} has not answered for {seconds:g} s") from error
        except TablesUnavailable as error:
            # Of `requests`, botocore, SQLAlchemy: what they have in common is the name.
            if error.__cause__ is not None and "Timeout" in type(error.__cause__).__name__:
                self._met_silence()
            else:
                self._silences = 0
            raise
        except Exception:
            self._silences = 0
            raise
        self._silences = 0
        return found

    def _require_hope(self, seconds: float) -> None:
        self._stuck = [each for each in self._stuck if not each.is_set()]
        if len(self._stuck) >= MOST_STUCK:
            raise TablesUnavailable(
                f"{self._what} has not answered for {seconds:g} s, {len(self._stuck)} times, and is not asked"
            )
        if self._silences >= SILENCES:
            now = self._runtime.monotonic()
            if now < self._asked_again:
                raise TablesUnavailable(
                    f"{self._what} has not answered {self._silences} times in a row, and is asked again in "
                    f"{self._asked_again - now:.0f} s"
                )
            self._asked_again = now + self._timeout

    def _met_silence(self) -> None:
        self._silences += 1
        self._asked_again = self._runtime.monotonic() + self._timeout
