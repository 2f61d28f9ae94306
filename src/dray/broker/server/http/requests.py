"""HTTP/1.1 requests: read strictly, without I/O; and the right to read more of a process than whether it is
alive and ready.

Only what health checks and scrapers send: GET and HEAD without a body, in origin form. Anything else is
refused with the status that says why, and the connection ends there: after a request that was not understood,
it is not known where the next one begins.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

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
    """The client's name for this server; with a port if it has one. None: HTTP/1.0 need not say it."""


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


# --- the right to read more

LARGEST_FILE: Final = 16 * 1024
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/=-]{8,1024}")  # RFC 6750
_BEARER: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/=-]+)")


class InvalidTokens(Exception):
    """One line: what is wrong with them. It never shows them."""


def tokens_in(content: bytes) -> tuple[bytes, ...]:
    """The tokens in a file, one a line."""
    if len(content) > LARGEST_FILE:
        raise InvalidTokens(f"it is larger than {LARGEST_FILE} bytes")
    tokens = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not tokens:
        raise InvalidTokens("it holds no token")
    if not all(_TOKEN.fullmatch(token) for token in tokens):
        raise InvalidTokens(
            "each line must be a token: 8 to 1024 letters, digits and . _ ~ + / = - (openssl rand -hex 32)"
        )
    return tokens


class BearerTokens:
    """`current` gives the tokens that are valid now."""

    def __init__(self, current: Callable[[], Sequence[bytes]]) -> None:
        self._current = current

    def knows(self, request: HttpRequest) -> bool:
        found = None if request.authorization is None else _BEARER.fullmatch(request.authorization)
        if found is None:
            return False
        return any(hmac.compare_digest(found[1], token) for token in self._current())


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_foreign(host: bytes | None) -> bool:
    """Whether a `Host` is a name that somebody made point to this machine: the browser of a page of theirs
    believes that our answers are that page's. An address cannot be made to point anywhere."""
    if host is None:
        return False
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    try:
        ip_address(name)
    except ValueError:
        return name != "localhost"
    return False
