"""Telling whoever started this process that it is ready, in the way of systemd.

A service manager names a datagram socket in NOTIFY_SOCKET; a line `READY=1` there says that the process
serves. `drayd up --brokers` speaks it to its children and the systemd unit (`Type=notify`) to `drayd`,
so there is one way to be ready and not two.
"""

from __future__ import annotations

import os
import socket
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"


def tell_manager(**fields: str) -> bool:
    """Send the fields as lines. False where nobody asked, or where whoever asked is gone: a process that
    serves goes on serving either way."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's sockets without a file
    text = "\n".join(f"{name}={value}" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
            notifier.connect(address)
            notifier.sendall(text.encode())
    except OSError:
        return False
    return True


def parse_message(data: bytes) -> dict[str, str]:
    """What a child told; lines that are no assignments are not for us."""
    fields = {}
    for line in data.decode(errors="replace").splitlines():
        name, assigned, value = line.partition("=")
        if assigned:
            fields[name] = value
    return fields
