"""Reads HTTP/1.1 requests, strictly, without I/O.

Only what health checks and scrapers send: GET and HEAD without a body, in origin form. Anything else is
refused with the status that says why, and the connection ends there: after a request that was not understood,
it is not known where the next one begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_HEAD_BYTES = 8 * 1024

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) (\S{1,2048}) HTTP/(\d)\.(\d)")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
_END = b"\r\n\r\n"


class BadRequest(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    """Without the query."""
    query: str
    keep_alive: bool
    authorization: bytes | None = field(default=None, repr=False)
    """Never shown: it holds a secret."""
    known: bool = True
    """Whether the client may see more than that the process is alive and ready."""
    host: bytes | None = None
    """What the client calls this server; with a port if it has one. None: HTTP/1.0 need not say it."""


class RequestReader:
    """Give it bytes with `feed`, take requests with `next`."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def buffered(self) -> int:
        return len(self._data)

    def feed(self, data: bytes | bytearray) -> None:
        self._data += data

    def next(self) -> HttpRequest | None:
        """The next whole request; None when more bytes are needed. Raises `BadRequest`."""
        end = self._data.find(_END, 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._data) >= MAX_HEAD_BYTES:
                raise BadRequest(431, f"request head longer than {MAX_HEAD_BYTES} bytes")
            return None
        head = bytes(self._data[:end])
        del self._data[: end + len(_END)]
        return _parse(head)


def _parse(head: bytes) -> HttpRequest:
    first, *lines = head.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadRequest(400, "malformed request line")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    headers = _headers(lines)
    if minor == b"1" and len(headers.get(b"host", ())) != 1:
        raise BadRequest(400, "exactly one Host header is needed")
    if b"transfer-encoding" in headers or any(
        length != b"0" for length in headers.get(b"content-length", ())
    ):
        raise BadRequest(413, "requests with a body are not taken")
    if method not in (b"GET", b"HEAD"):
        raise BadRequest(405, "only GET and HEAD are answered")
    if not target.startswith(b"/") or not target.isascii():
        raise BadRequest(400, "the target must be a path")
    path, _, query = target.decode("ascii").partition("?")
    options = {
        option.strip().lower() for value in headers.get(b"connection", ()) for option in value.split(b",")
    }
    keep_alive = b"close" not in options if minor == b"1" else b"keep-alive" in options
    given = headers.get(b"authorization", ())
    return HttpRequest(
        method.decode("ascii"),
        path,
        query,
        keep_alive,
        given[0] if len(given) == 1 else None,
        host=next(iter(headers.get(b"host", ())), None),
    )


def _headers(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise BadRequest(400, "malformed header")
        headers.setdefault(match[1].lower(), []).append(match[2])
    return headers
