"""Several processes as one: started together, started again when one dies, stopped together.

A child is a `drayd` command. It says that it is ready (`dray.daemons.assembly.notify`); until each of them
has said so once, a child that ends is a start that failed, and ends everything. After that a child that ends
is started again, at once the first time and then with growing pauses, so that one that cannot live does not
spin.

Children are in process groups of their own: a Ctrl-C reaches the supervisor alone, which passes on one
SIGTERM. (A second signal makes a broker end at once, so no child may get two by accident.) If the supervisor
is killed, the kernel tells the children (`dray.cli.child`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.daemons.assembly.failures import RUNTIME, Failure
from dray.daemons.assembly.notify import VARIABLE, parse_message

_log = structlog.get_logger(__name__)

LARGEST_MESSAGE: Final = 4096
DRAYD: Final = (sys.executable, "-m", "dray.cli.child", str(os.getpid()))
"""The words before a child's arguments."""


@dataclass(frozen=True, slots=True)
class Child:
    """A command of `drayd`, and what sets it apart from its siblings."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 60.0
    """How long it may take to stop before it is killed."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    first_pause: float = 0.2
    longest_pause: float = 30.0
    healthy_seconds: float = 60.0
    """A child that lived this long is started again as if it had never died."""


class Supervisor:
    """`start` returns when all children are ready, `wait` when `stop` was called; `stop` ends them all."""

    def __init__(
        self,
        children: Sequence[Child],
        runtime: Runtime,
        policy: RestartPolicy | None = None,
        launcher: Sequence[str] = DRAYD,
    ) -> None:
        self._runtime = runtime
        self._directory = Path(tempfile.mkdtemp(prefix="drayd-"))
        self._watched = [
            _ChildLives(child, self._directory / str(number), runtime, policy or RestartPolicy(), launcher)
            for number, child in enumerate(children)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> list[Mapping[str, str]]:
        """The message of each child when it was ready. Raises `Failure` if one of them ends before; the
        others are stopped then."""
        self._tasks = [
            self._runtime.spawn(watched.keep_alive(), f"supervise {watched.name}")
            for watched in self._watched
        ]
        try:
            return list(await asyncio.gather(*(watched.first_start for watched in self._watched)))
        except BaseException:
            with suppress(Failure):  # the first failure matters
                await self.stop()
            raise

    async def stop(self) -> None:
        """Raises `Failure`, at the end, if a child did not stop as asked."""
        troubles = await asyncio.gather(*(watched.stop() for watched in self._watched))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for watched in self._watched:
            watched.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        trouble = next((trouble for trouble in troubles if trouble), None)
        if trouble is not None:
            raise Failure(trouble)

    def hang_up(self) -> None:
        """Have all children read again what may change while they run."""
        for watched in self._watched:
            watched.hang_up()

    def processes(self) -> dict[str, int]:
        """The process ids of the children that run, by their names."""
        return {watched.name: watched.process.pid for watched in self._watched if watched.process is not None}


class _ChildLives:
    """One child over all of its lives."""

    def __init__(
        self, child: Child, address: Path, runtime: Runtime, policy: RestartPolicy, launcher: Sequence[str]
    ) -> None:
        self.name = child.name
        self.process: asyncio.subprocess.Process | None = None
        self.first_start: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._child = child
        self._command = (*launcher, *child.arguments)
        self._runtime = runtime
        self._policy = policy
        self._stopping = False
        self._serves = False
        self._hung_up = False
        self._failures = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(str(address))
        self._environment = {VARIABLE: str(address)}

    def hang_up(self) -> None:
        """Once it listens for the signal: until then it might end by it."""
        self._hung_up = True
        if self._serves and self.process is not None:
            self._hung_up = False
            _signal(self.process, signal.SIGHUP)

    def close(self) -> None:
        self._socket.close()
        if self.first_start.done() and not self.first_start.cancelled():
            self.first_start.exception()  # `start` raises only the first failure; asyncio would report this
        self.first_start.cancel()

    async def keep_alive(self) -> None:
        try:
            await self._keep_alive()
        except Exception as error:
            if not self.first_start.done():  # a fault of ours: `start` must raise it
                self.first_start.set_exception(error)
            raise

    async def _keep_alive(self) -> None:
        while not self._stopping:
            began = self._runtime.monotonic()
            try:
                code, ending = await self._live_once()
            except Exception as error:
                if not self.first_start.done():
                    raise
                self._runtime.background.report("supervise", error)
                await self._give_up_on_process()
                code, ending = RUNTIME, f"could not be looked after ({error})"
            if self._stopping:
                return
            if not self.first_start.done():
                self.first_start.set_exception(
                    Failure(f"{self.name} did not start: it {ending}", code if code > 0 else RUNTIME)
                )
                return
            if self._runtime.monotonic() - began >= self._policy.healthy_seconds:
                self._failures = 0
            pause = self._pause()
            self._failures += 1
            _log.warning(f"{self.name} {ending}; it is started again", pause_seconds=pause)
            await self._runtime.sleep(pause)

    async def _give_up_on_process(self) -> None:
        """Kill a process that is no longer supervised: it must not run beside the next."""
        process, self.process = self.process, None
        if process is not None:
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _live_once(self) -> tuple[int, str]:
        """From one start to the end of that process: its exit code, and the end in words."""
        try:
            process = await self._spawn()
        except OSError as error:
            return RUNTIME, f"could not be run ({error.strerror})"
        code = await self._until_ended(process)
        self.process = None
        return code, describe_ending(code)

    def _pause(self) -> float:
        if self._failures == 0:
            return 0.0
        return min(self._policy.longest_pause, self._policy.first_pause * 2.0 ** (self._failures - 1))

    async def _spawn(self) -> asyncio.subprocess.Process:
        self._forget_messages()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self._environment, **self._child.environment},
            start_new_session=True,  # and so a process group, which uvloop cannot make alone
        )
        self.process, self._serves = process, False
        if self._stopping:  # asked to stop while it was being started
            _signal(process, signal.SIGTERM)
        return process

    def _forget_messages(self) -> None:
        """Drop messages that an earlier process sent and that were not read: they say nothing about the next
        process."""
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(LARGEST_MESSAGE)

    async def _until_ended(self, process: asyncio.subprocess.Process) -> int:
        ended = asyncio.ensure_future(process.wait())
        ready = asyncio.ensure_future(self._until_ready())
        try:
            await asyncio.wait([ended, ready], return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not self.first_start.done():
                self.first_start.set_result(ready.result())
            elif ready.done():
                _log.info(f"{self.name} is back", process=process.pid)
            self._serves = ready.done()
            if self._hung_up:
                self.hang_up()
            return await ended
        finally:
            ready.cancel()

    async def _until_ready(self) -> Mapping[str, str]:
        loop = asyncio.get_running_loop()
        while True:
            fields = parse_message(await loop.sock_recv(self._socket, LARGEST_MESSAGE))
            if fields.get("READY") == "1":
                return fields

    async def stop(self) -> str | None:
        """One line about what went wrong, or None."""
        self._stopping = True
        process = self.process
        if process is None:
            return None
        _signal(process, signal.SIGTERM)
        try:
            code = await asyncio.wait_for(process.wait(), self._child.stop_seconds)
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            await process.wait()
            return f"{self.name} did not stop in {self._child.stop_seconds:g} s and was killed"
        if code in (0, -signal.SIGTERM):  # the signal itself: it came before the child listened for it
            return None
        return f"{self.name} {describe_ending(code)} while it was stopping"


def describe_ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return  # the process has ended already
