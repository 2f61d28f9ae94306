"""The setup of a serving process: its lock, its limits, its memory, its signals."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import gc
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from dray.broker.cluster import Broker
from dray.daemons.assembly.failures import Failure

if TYPE_CHECKING:
    from dray.broker.groups.coordinator import LeaseHolder

M_TRIM_THRESHOLD: Final = -1
M_TOP_PAD: Final = -2
M_MMAP_THRESHOLD: Final = -3
NEVER: Final = -1

ORPHANED: Final = signal.SIGUSR1
"""What the kernel sends to a child whose supervisor died (`dray.cli.child`)."""

GLIBC_LARGEST_MMAP_THRESHOLD: Final = 32 * 1024 * 1024


class FileLock:
    """An exclusive lock that dies with the process, however it dies. The file names its holder."""

    def __init__(self, path: Path, taken: Callable[[str], str]) -> None:
        """`taken` makes the line for the case that another process, given as text, has the lock."""
        self._path = path
        self._taken = taken
        self._descriptor = -1

    def __enter__(self) -> FileLock:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Failure(
                f"cannot use the data directory {self._path.parent}: {error.strerror}; "
                "make it writable, or choose another --data-dir"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise Failure(f"cannot lock {self._path}: {error.strerror}") from error
            raise Failure(self._taken(f"pid {holder}" if holder else "pid unknown")) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The file stays: removing it would let two processes lock two different files of one name.
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def raise_file_limit() -> None:
    """As many open files as the system lets us have: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tune_memory() -> bool:
    """Keep glibc from giving large frames back to the kernel and faulting them in again.

    Above the mmap threshold each frame is mapped, zeroed by the kernel and unmapped; and what is free at the
    end of the heap is trimmed. Here memory is bounded by the caches and limits of the configuration, so what
    was used once is kept: faulting it in again costs a third of what producing does. Seen with records of
    1 KiB and topics that come and go: 1.1 against 1.5 processor seconds per GB; and 0.70 against 0.82 where a
    migrator mirrors a topic. False where there is no glibc (musl, macOS).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    return all(
        mallopt(parameter, value) == 1
        for parameter, value in (
            (M_MMAP_THRESHOLD, GLIBC_LARGEST_MMAP_THRESHOLD),
            (M_TRIM_THRESHOLD, NEVER),
            (M_TOP_PAD, 16 * 1024 * 1024),
        )
    )


def settle_garbage_collector() -> None:
    """Objects from start-up stay: leave them out of every later collection, and collect less often. A pass
    over what is young is a turn of the loop: one over a million objects took 0.15 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 4, 600)


def goes_with_its_terminal() -> bool:
    """Was this process started on a terminal, without `nohup`?"""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and (os.isatty(0) or os.isatty(1))


class StopSignals:
    """SIGTERM and SIGINT: the first asks for a graceful stop, the second ends the process at once. SIGUSR1
    says that the supervisor is gone: a graceful stop, however often it comes. SIGHUP calls `hang_up`; None
    where it says that the terminal is gone, which is a graceful stop, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hang_up: Callable[[], None] | None) -> None:
        self._received: asyncio.Future[signal.Signals] = loop.create_future()
        self.reason: str | None = None
        """Why the process cannot go on, where no signal asked for the stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(ORPHANED, self._on_end_of_another, ORPHANED)
        if hang_up is None:
            loop.add_signal_handler(signal.SIGHUP, self._on_end_of_another, signal.SIGHUP)
        else:
            loop.add_signal_handler(signal.SIGHUP, hang_up)

    async def wait(self) -> signal.Signals:
        return await asyncio.shield(self._received)

    def cannot_go_on(self, reason: str) -> None:
        """Stop, as after SIGTERM, and end with this line."""
        if not self._received.done():
            self.reason = reason
            self._received.set_result(signal.SIGTERM)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._received.done():
            os._exit(128 + number)
        self._received.set_result(number)

    def _on_end_of_another(self, number: signal.Signals) -> None:
        if not self._received.done():
            self._received.set_result(number)


def _never_known(_process: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """This machine and process, so that a restart here can tell that its predecessor is dead."""

    name: str = ""
    process: int = 0
    is_running: Callable[[int], bool] = _never_known

    def knows_dead(self, broker: Broker) -> bool:
        """Is a broker with our own id known to be dead? If it names our own process id, it is: two brokers
        with one id cannot be in one process."""
        return self._is_here(broker) and (
            broker.process == self.process or not self.is_running(broker.process)
        )

    def knows_gone(self, holder: LeaseHolder) -> bool:
        """Is the holder of a lease known to be dead? Our own process id does not prove it: a process may run
        several brokers, with different ids."""
        return self._is_here(holder) and not self.is_running(holder.process)

    def _is_here(self, other: Broker | LeaseHolder) -> bool:
        return bool(self.name) and other.machine == self.name


def local_machine() -> MachineIdentity:
    """This boot of this machine, and this namespace of process ids: two containers have the same kernel and
    different processes. Without /proc the name stays empty, and no process is taken for dead."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return MachineIdentity()
    return MachineIdentity(f"{boot}/{namespace}", os.getpid(), _is_running)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
