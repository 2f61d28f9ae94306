"""Clients that speak another protocol than Kafka's, recognised by the first four bytes that they send."""

from __future__ import annotations

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = frozenset(
    (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI", b"TRAC", b"CONN", b"PRI ")
)


def recognised(prefix: bytes) -> str | None:
    """What the bytes look like, and what to do about it; None if they are not recognised."""
    if prefix.startswith(_TLS_HANDSHAKE):
        return (
            "looks like TLS (a ClientHello), and this listener is plaintext: "
            "set the client's security.protocol to PLAINTEXT"
        )
    if prefix in _HTTP_METHODS:
        return (
            "looks like HTTP, and this is the port of Kafka's protocol: metrics and health are on broker.http"
        )
    return None
