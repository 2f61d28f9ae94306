"""Reporting to the service manager that this process is ready, by systemd's protocol.

A service manager names a datagram socket in NOTIFY_SOCKET; a line `READY=1` there says that the process
serves. The children of `drayd up --brokers` report to it in this way, and `drayd` to systemd (`Type=notify`),
so there is one way to be ready and not two.
"""

from __future__ import annotations

import os
import socket
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"


def tell_manager(**fields: str) -> bool:
    """Send the fields as lines. False if no manager named a socket, or if the manager is gone: the process
    goes on serving either way."""
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
    """The fields of a child's message; lines that are no assignments are ignored."""
    fields = {}
    for line in data.decode(errors="replace").splitlines():
        name, assigned, value = line.partition("=")
        if assigned:
            fields[name] = value
    return fields
