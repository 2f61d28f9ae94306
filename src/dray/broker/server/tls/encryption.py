"""One connection's TLS, without its socket: encrypted bytes in and out, plain bytes in and out."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from dray.broker.server.tls.handshakes import reason_of

if TYPE_CHECKING:
    from dray.broker.server.connection import Buffer

_FED_BYTES: Final = 64 << 10


class EncryptionFailed(Exception):
    """One line, from a finite number of them: without anything that the peer sent."""


class PeerEnded(Exception):
    """The peer said that it sends no more."""


class Encryption:
    """By Python's own `ssl`, and the OpenSSL that it was built for."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._received: memoryview | bytes = b""  # what `_incoming` has not got yet
        self._ending: Exception | None = None  # what came behind bytes that were read

    def receive(self, data: memoryview) -> None:
        """Take bytes that came from the socket. The memory is the caller's again after `let_go`."""
        self._received = bytes(self._received) + data if len(self._received) else data

    def let_go(self) -> int:
        """Copy what was received and is not read yet. Gives how many bytes are held."""
        self._received = bytes(self._received)
        return len(self._received) + self._incoming.pending

    def _feed(self) -> bool:
        """Some of what was received, at a time: this kind of buffer stays as large as it once was."""
        data = self._received
        self._received = data[_FED_BYTES:]
        return self._incoming.write(data[:_FED_BYTES]) > 0

    def shake_hands(self) -> bool:
        """True once the handshake is done, False if the peer has to say more. Raises `PeerEnded` and
        `EncryptionFailed`."""
        while True:
            try:
                with _bad_names_unseen():
                    self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                if not self._feed():
                    return False
            except ssl.SSLZeroReturnError:
                raise PeerEnded from None
            except ssl.SSLError as error:
                raise EncryptionFailed(reason_of(error)) from error
            else:
                return True

    @property
    def has_more(self) -> bool:
        """Whether there may be something to read."""
        return bool(len(self._received) or self._incoming.pending or self._ssl.pending() or self._ending)

    def read_into(self, buffer: memoryview) -> int:
        """Fill as much of the buffer as there is. Raises `PeerEnded` and `EncryptionFailed`."""
        if self._ending is not None:
            raise self._ending
        read, incoming, pending = self._ssl.read, self._incoming, self._ssl.pending
        size, count = len(buffer), 0
        try:
            while count < size and (incoming.pending or pending() or self._feed()):
                try:
                    # At most one record of TLS, whatever there is.
                    got = cast(int, read(size - count, cast(bytearray, buffer[count:])))
                except ssl.SSLWantReadError:
                    if not self._feed():
                        break
                    continue
                if not got:
                    raise ssl.SSLZeroReturnError
                count += got
        except ssl.SSLZeroReturnError:
            self._ending = PeerEnded()
        except ssl.SSLError as error:
            self._ending = EncryptionFailed(reason_of(error))
        if self._ending is not None and not count:
            raise self._ending
        return count

    def write(self, data: Buffer) -> None:
        """Encrypt all of it. Raises `EncryptionFailed`."""
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            raise EncryptionFailed(reason_of(error)) from error

    def take(self) -> bytes:
        """The bytes that the socket has to send."""
        return self._outgoing.read()

    def peer_certificate(self) -> bytes | None:
        """In DER, verified."""
        return self._ssl.getpeercert(True)

    def end(self) -> None:
        """Say that this is the end."""
        with suppress(ssl.SSLError):  # the peer has not said it yet, or never will
            self._ssl.unwrap()


@contextmanager
def _bad_names_unseen() -> Iterator[None]:
    """A client may ask for a host name (SNI) that is no ASCII. Python then ends the handshake, and shows a
    traceback: by this way, which is there for what cannot be raised."""
    shown = sys.unraisablehook

    def unless_name(unraisable: Any) -> None:
        if not (
            isinstance(unraisable.exc_value, UnicodeDecodeError) and isinstance(unraisable.object, bytes)
        ):
            shown(unraisable)

    sys.unraisablehook = unless_name
    try:
        yield
    finally:
        sys.unraisablehook = shown
