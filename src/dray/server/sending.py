"""Sending large answers without holding up the interpreter.

A transport copies what it is given into the socket with the interpreter held: two milliseconds for an answer
of many mebibytes, in which no thread reads ahead for the next one. A plain system call releases the
interpreter.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from dray.server.connection import Buffer

WORTHWHILE: Final = 256 << 10

_MOST_VECTORS: Final = os.sysconf("SC_IOV_MAX")


def is_free(transport: asyncio.Transport, socket: int) -> bool:
    """Whether a socket may be written to beside its transport: that has nothing of its own to send, and has
    not let go of the socket, whose number may then be another one's."""
    return socket >= 0 and not transport.is_closing() and not transport.get_write_buffer_size()


def send_at_once(socket: int, buffers: list[Buffer]) -> list[Buffer]:
    """Give the socket as much as it takes without waiting; gives back what is left. Errors are ignored here:
    the transport meets them too when it sends the rest, and handles them."""
    while buffers:
        sending = buffers[:_MOST_VECTORS]
        try:
            sent = os.writev(socket, sending)
        except OSError:
            break
        whole = 0
        while whole < len(sending) and sent >= len(sending[whole]):
            sent -= len(sending[whole])
            whole += 1
        buffers = buffers[whole:]
        if whole < len(sending):
            return [memoryview(buffers[0])[sent:], *buffers[1:]]
    return buffers


def unacknowledged(socket: int) -> int:
    """Bytes that the system holds for the peer. They show that a slow reader does read, long before the
    system has room for more."""
    if socket < 0:
        return 0
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(socket, termios.TIOCOUTQ, b"\0\0\0\0"))
    except OSError:
        return 0
    return int(count)
