"""Handshakes of TLS that are under way: how many there may be, for how long, and why they fail."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol

from dray.base.runtime import FairWork, Places, owner_of

if TYPE_CHECKING:
    import asyncio

    from dray.base.runtime import Runtime
    from dray.broker.server.shared import RateLimitedLog
    from dray.broker.server.tls.layer import TlsLayer

MOST_AT_ONCE: Final = 1000
"""A handshake may hold 100 KiB (the client's certificates). One that is done counts as a connection. If there
are more, the address with most of them gives one up."""

STEPS_PER_TURN: Final = 16
"""Of the event loop, by turns of addresses: a step signs with the key, which takes a millisecond (RSA)."""

RECEIVE_BYTES: Final = 512 << 10
"""The bytes that one turn of the loop receives and decrypts: a third of a millisecond, if records are
small."""

SHORT_BYTES: Final = 64 << 10
"""The same for peers that are not known yet, or from which no more is taken at the moment."""

MOST_HELD: Final = 32 << 20
"""The received bytes of all connections together that are not decrypted yet, since a connection stopped being
read in the middle of them. Beyond that all receive as those that are not read."""

WAKE_BYTES: Final = 256 << 10
"""The bytes that are waited for in the middle of a large frame. A peer that takes more than `frame_seconds`
for so much is too slow for a frame of that size in any case."""
_RECORD_BYTES: Final = 17 << 10
_STEP_BYTES: Final = 16 << 10

_NEW_SECONDS: Final = 1.0
"""How long a handshake is safe from making room for another of its own address."""

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


_NO_LIST: Final = "unable to get certificate CRL"


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
    if words == _NO_LIST:
        words = "an authority of its chain has no list of revoked certificates in client_ca_file"
    return f"the client's certificate is not good: {words.rstrip('.')}"


def meaning_of(reason: str) -> str:
    """`reason` is OpenSSL's: its name for the error, or its words, which differ in nothing else."""
    name = reason.upper().replace(" ", "_")
    return _MEANINGS.get(_OLD_PREFIX.sub("", name), name.replace("_", " ").lower())


class TlsHost(Protocol):
    """The server whose handshakes they are."""

    stopping: bool
    scratch: bytearray
    """The memory for the short frames of its connections."""
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
        """The memory in which every connection with TLS receives: it is copied out at once."""
        self.short_scratch = self.scratch[:SHORT_BYTES]
        self.held_bytes = 0
        self.thrown_away = memoryview(bytearray(_RECORD_BYTES))
        """The memory for bytes that no connection wants any more."""
        self.seconds = shared.handshake_seconds
        self.work = FairWork(STEPS_PER_TURN)
        self._shared = shared
        self._most = most
        self._waiting: Places[TlsLayer] = Places(most, safe_seconds=_NEW_SECONDS)

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
        """False when this is one too many, or too late. A connection that would be refused after its
        handshake is better refused before it: it takes half a millisecond."""
        shared = self._shared
        if shared.stopping or not shared.has_room(layer.address, layer.listener):
            return False
        gone = self._waiting.take(owner_of(layer.address), layer, shared.runtime.monotonic())
        if gone is layer:
            return shared.refuse("too many TLS handshakes at once, refusing more", limit=self._most)
        if gone is not None:
            gone.refuse("the handshake takes long, and others wait")
        return True

    def comes_too_early(self, transport: asyncio.Transport, address: str) -> bool:
        """Judged before the handshake, which costs more than all else of a connection."""
        return self._shared.comes_too_early(transport, address)

    def leave(self, layer: TlsLayer) -> None:
        self._waiting.leave(layer)

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
