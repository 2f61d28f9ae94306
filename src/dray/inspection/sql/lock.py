"""A process that gives up what it does not need: memory, time, files to write, the network, other programs.

DuckDB's own settings are the first lock of a query. This is the second, which the operating system holds:
what a fault of DuckDB would let through ends here. Linux has both halves; others have the limits alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from errno import EPERM
from typing import Final

_FILES: Final = 4096


@dataclass(frozen=True)
class _Machine:
    """A kind of processor: its number for the kernel, and the system calls that are refused on it."""

    architecture: int
    socket: Sequence[int]
    """socket, connect, socketpair"""
    changing: Sequence[int]
    """Programs, other processes, namespaces, and everything that changes a file by its name."""
    opening: Sequence[tuple[int, int]]
    """Calls that open a file, and which of their arguments holds the flags."""


_REFUSED_ON_X86: Final = """
    execve=59 execveat=322 ptrace=101 process_vm_readv=310 process_vm_writev=311 kill=62 io_uring_setup=425
    openat2=437 creat=85 unlink=87 unlinkat=263 rename=82 renameat=264 renameat2=316 mkdir=83 mkdirat=258
    rmdir=84 link=86 linkat=265 symlink=88 symlinkat=266 chmod=90 fchmodat=268 chown=92 lchown=94 fchownat=260
    truncate=76 mknod=133 mknodat=259 unshare=272 setns=308 mount=165 bpf=321 keyctl=250 pidfd_open=434
    open_by_handle_at=304
"""
_REFUSED_ON_ARM: Final = """
    execve=221 execveat=281 ptrace=117 process_vm_readv=270 process_vm_writev=271 kill=129 io_uring_setup=425
    openat2=437 unlinkat=35 renameat=38 renameat2=276 mkdirat=34 linkat=37 symlinkat=36 fchmodat=53
    fchownat=54 truncate=45 mknodat=33 unshare=97 setns=268 mount=40 bpf=280 keyctl=219 pidfd_open=434
    open_by_handle_at=265
"""


def _numbers(calls: str) -> tuple[int, ...]:
    return tuple(int(each.partition("=")[2]) for each in calls.split())


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, (41, 42, 53), _numbers(_REFUSED_ON_X86), ((2, 1), (257, 2))),
    "aarch64": _Machine(0xC00000B7, (198, 199, 203), _numbers(_REFUSED_ON_ARM), ((56, 2),)),
}
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# The kernel's little language for filters: load a word of the call, compare, answer.
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_HAS_BITS: Final = 0x45
_ANSWER: Final = 0x06
_ALLOWED: Final = 0x7FFF0000
_REFUSED: Final = 0x00050000 | EPERM
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_OTHER_ABI: Final = 0x40000000

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2


def limit_process(memory: int, seconds: int) -> None:
    """`memory`: of the address space, in bytes. `seconds`: of the processor."""
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _FILES),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def refuse_calls(*, network: bool) -> bool:
    """From here on: no program is started, no file is opened to be written or changed by its name, and
    without `network` there is no socket. It holds for this thread and those that it starts, for ever. False
    where the system has no such filter."""
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return False
    program = list(_program(machine, network=network))
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    # The kernel wants the length, and the address of the lines.
    described = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(packed)))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return not library.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0)


def _program(machine: _Machine, *, network: bool) -> Iterator[tuple[int, int, int, int]]:
    """Lines of (what, where to go if so, if not, value); a distance of 0 is the next line."""
    yield _LOAD, 0, 0, _ARCHITECTURE_AT
    yield _EQUAL, 1, 0, machine.architecture
    yield _ANSWER, 0, 0, _REFUSED
    yield _LOAD, 0, 0, _NUMBER_AT
    if machine.architecture == _MACHINES["x86_64"].architecture:
        yield _AT_LEAST, 0, 1, _OTHER_ABI
        yield _ANSWER, 0, 0, _REFUSED
    for number in (*machine.changing, *(() if network else machine.socket)):
        yield _EQUAL, 0, 1, number
        yield _ANSWER, 0, 0, _REFUSED
    for number, argument in machine.opening:
        yield _EQUAL, 0, 4, number
        yield _LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument
        yield _HAS_BITS, 0, 1, _WRITING
        yield _ANSWER, 0, 0, _REFUSED
        yield _ANSWER, 0, 0, _ALLOWED
    yield _ANSWER, 0, 0, _ALLOWED
