"""Who may read more of a process over HTTP than whether it is alive and ready."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final

from dray.server.http_requests import HttpRequest

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
