"""The share of the processor beside other sessions: lowered while there is long work, and then as it was."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from dray.daemon.session_priority import LINGER_SECONDS, SessionPriority
from dray.runtime import SystemRuntime


class Steps(SystemRuntime):
    """Each sleep waits for `step`."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.now = 100.0
        self._gate = asyncio.Event()

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await self._gate.wait()
        self._gate.clear()

    async def step(self, seconds: float) -> None:
        self.now += seconds
        self._gate.set()
        for _ in range(5):
            await asyncio.sleep(0)


class Autogroup:
    """The system's file, which may ask to be tried again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.refusals = 0
        path.write_text("/autogroup-12 nice 3\n")

    def write_text(self, text: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EAGAIN, "try again")
        self.path.write_text(text)

    def read_text(self) -> str:
        return self.path.read_text()


async def begun(priority: SessionPriority) -> None:
    priority.at_work()
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def file(tmp_path: Path) -> Autogroup:
    return Autogroup(tmp_path / "autogroup")


async def test_it_is_lowered_while_there_is_work_and_then_as_it_was(file: Autogroup) -> None:
    runtime = Steps()
    priority = SessionPriority(runtime, file, leads=True)  # type: ignore[arg-type]
    for _ in range(2):
        await begun(priority)
        assert file.read_text() == "13"
        await runtime.step(LINGER_SECONDS / 2)
        priority.at_work()
        await runtime.step(LINGER_SECONDS / 2)
        assert file.read_text() == "13", "the work goes on"
        await runtime.step(LINGER_SECONDS)
        assert file.read_text() == "3"


async def test_what_the_system_does_not_take_at_once_is_tried_again(file: Autogroup) -> None:
    runtime = Steps()
    priority = SessionPriority(runtime, file, leads=True)  # type: ignore[arg-type]
    file.refusals = 1
    await begun(priority)
    assert file.read_text().endswith("nice 3\n")
    await runtime.step(0.0)
    assert file.read_text() == "13"
    file.refusals = 1
    await runtime.step(2 * LINGER_SECONDS)
    assert file.read_text() == "13"
    await runtime.step(0.0)
    assert file.read_text() == "3"


async def test_a_session_that_another_process_leads_is_left_alone(file: Autogroup) -> None:
    await begun(SessionPriority(Steps(), file, leads=False))  # type: ignore[arg-type]
    assert file.read_text().endswith("nice 3\n")


async def test_a_system_without_such_groups_is_no_trouble(tmp_path: Path) -> None:
    await begun(SessionPriority(Steps(), tmp_path / "no-such-file", leads=True))
    assert not (tmp_path / "no-such-file").exists()
