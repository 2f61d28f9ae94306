"""Handshakes of TLS that are under way: how many there may be, for how long, and why they fail."""

from __future__ import annotations

import re
import ssl
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import asyncio

    from dray.runtime import Runtime
    from dray.server.notes import RateLimitedLog
    from dray.server.tls_layer import TlsLayer

MOST_AT_ONCE: Final = 1000
"""A handshake may hold 100 KiB (the client's certificates). One that is done counts as a connection."""

RECEIVE_BYTES: Final = 512 << 10
"""What a turn of the event loop receives and decrypts: a third of a millisecond, if records are small."""

SHORT_BYTES: Final = 64 << 10
"""The same for peers that are not known yet, or from which no more is taken at the moment."""

MOST_HELD: Final = 32 << 20
"""What was received of all connections together and is not decrypted yet, since one stopped to be read in the
middle of it. Beyond that all receive as those that are not read."""

SEND_BYTES: Final = 512 << 10
"""What is encrypted before the socket gets it, where the peer takes that much: all of it wakes it once."""

WAKE_BYTES: Final = 256 << 10
"""What is waited for in the middle of a large frame. A peer that takes more than `frame_seconds` for so much
is too slow for a frame of that size in any case."""
_RECORD_BYTES: Final = 17 << 10
_STEP_BYTES: Final = 16 << 10

_NEW_SECONDS: Final = 1.0
"""How long a handshake is safe from making room for another."""

KIND: Final = "TLS handshake"

_OLD_PREFIX: Final = re.compile("^(SSLV3|TLSV1|SSL/TLS|TLS)_(?=ALERT_)")
"""Of alerts: whatever version of TLS is spoken, and different in each OpenSSL."""

_MEANINGS: Final = {
    "HTTP_REQUEST": "the client speaks HTTP, and this listener TLS",
    "HTTPS_PROXY_REQUEST": "the client speaks HTTP, and this listener TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL",
    "RECORD_LAYER_FAILURE": "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL",
    "UNSUPPORTED_PROTOCOL": "the client has no version of TLS from 1.2 on",
    "CALLBACK_FAILED": "the client asks for a host name that is none",
    "NO_SHARED_CIPHER": "client and broker have no cipher in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and this listener asks for one",
    "ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate",
    "ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the broker's certificate",
    "ALERT_BAD_CERTIFICATE": "the client does not trust the broker's certificate",
    "ALERT_CERTIFICATE_EXPIRED": "to the client the broker's certificate has expired",
}


class PeerRefused(Exception):
    """A client whose certificate is good, and that is not let in. `kind` is one of few, the text one line."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def reason_of(error: ssl.SSLError) -> str:
    """One line, from a finite number of them: without anything that the peer sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return verification_failed(error.verify_message)
    return meaning_of(error.reason or type(error).__name__)


def verification_failed(words: str) -> str:
    return f"the client's certificate is not good: {words.rstrip('.')}"


def meaning_of(reason: str) -> str:
    """`reason` is OpenSSL's: its name for the error, or its words, which differ in nothing else."""
    name = reason.upper().replace(" ", "_")
    return _MEANINGS.get(_OLD_PREFIX.sub("", name), name.replace("_", " ").lower())


class TlsHost(Protocol):
    """The server whose handshakes they are."""

    stopping: bool
    scratch: bytearray
    """Where its connections have short frames put."""
    notes: RateLimitedLog

    @property
    def runtime(self) -> Runtime: ...

    @property
    def handshake_seconds(self) -> float: ...

    def has_room(self, address: str, listener: str) -> bool:
        """For one more connection."""

    def comes_too_early(self, transport: asyncio.Transport, address: str) -> bool:
        """True if this connection is closed in a while, for its address has a quota."""

    def refuse(self, event: str, kind: str | None = None, **details: Any) -> bool:
        """False, with a line."""

    def count_closing(self, kind: str) -> None: ...


class Handshakes:
    def __init__(self, shared: TlsHost, most: int = MOST_AT_ONCE) -> None:
        self.scratch = memoryview(bytearray(RECEIVE_BYTES))
        """Where every connection with TLS receives: it is copied out at once."""
        self.short_scratch = self.scratch[:SHORT_BYTES]
        self.held_bytes = 0
        self.encrypted = memoryview(bytearray(SEND_BYTES))
        """Where large answers are encrypted, of whichever connection: it is sent or copied out at once."""
        self.thrown_away = memoryview(bytearray(_RECORD_BYTES))
        """Where is read what no connection wants any more."""
        self.seconds = shared.handshake_seconds
        self._shared = shared
        self._most = most
        self._waiting: OrderedDict[TlsLayer, float] = OrderedDict()  # oldest first

    def worth_waiting_for(self, buffer: memoryview, filled: int) -> int:
        """How many bytes will come for sure, where a peer is to fill this buffer; 1 where little is missing,
        or what is missing may be no part of a frame. They come encrypted, so there are more of them than are
        missing. But a part of a record may have arrived."""
        if buffer.obj is self._shared.scratch:
            return 1
        certain = min(len(buffer) - filled - _RECORD_BYTES, WAKE_BYTES)
        return max(1, certain - certain % _STEP_BYTES)

    @property
    def holds_much(self) -> bool:
        return self.held_bytes > MOST_HELD

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, layer: TlsLayer) -> bool:
        """False when this is one too many, or too late. What is refused after a handshake had better be
        refused before it: it takes half a millisecond."""
        shared = self._shared
        if shared.stopping or not shared.has_room(layer.address, layer.listener):
            return False
        now = shared.runtime.monotonic()
        if len(self._waiting) >= self._most:
            oldest = next(iter(self._waiting))
            if now - self._waiting[oldest] < _NEW_SECONDS:
                return shared.refuse("too many TLS handshakes at once, refusing more", limit=self._most)
            oldest.refuse("the handshake takes long, and others wait")
        self._waiting[layer] = now
        return True

    def comes_too_early(self, transport: asyncio.Transport, address: str) -> bool:
        """Judged before the handshake, which costs more than all else of a connection."""
        return self._shared.comes_too_early(transport, address)

    def leave(self, layer: TlsLayer) -> None:
        self._waiting.pop(layer, None)

    def end(self) -> None:
        """The server stops."""
        for layer in list(self._waiting):
            layer.abort()

    def note(self, layer: TlsLayer, reason: str, kind: str | None = None) -> None:
        """One line per kind and span of time."""
        self._shared.count_closing(KIND)
        self._shared.notes.warn(
            "closing a connection",
            f"{KIND}: {kind or reason}",
            reason=f"TLS: {reason}",
            peer=layer.peer,
            listener=layer.listener,
        )
