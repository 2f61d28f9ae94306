"""TLS between a socket and a `FrameProtocol`, or that of HTTP, which sees it as its transport.

The event loops bring a layer of their own. It does not say why a handshake failed, does not count what it has
encrypted and not yet sent, and encrypts an answer of any size in one turn. Here a handshake that fails is one
line, all that is held is counted (`get_write_buffer_size`), and a turn encrypts only so much.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from dray.base.runtime import owner_of
from dray.broker.server.tls.encryption import Encryption, EncryptionFailed, PeerEnded
from dray.broker.server.tls.handshakes import Handshakes, PeerRefused

if TYPE_CHECKING:
    from dray.broker.server.connection import Buffer

PIECE_BYTES: Final = 64 << 10
"""The bytes encrypted at once: four records of TLS, which stay in the processor's cache until they are
sent."""

TURN_BYTES: Final = 1 << 20
"""The bytes that one turn of the event loop encrypts for a connection: half a millisecond."""

_SMALL: Final = 16 << 10
"""Buffers up to one record of TLS are put together: each write is a record of its own."""

_MOST_UNSENT: Final = 0
"""The bytes that the transport may hold before it says that the socket is full: bytes that are encrypted
before the socket takes them only take memory."""

_DRAINED_SHARE: Final = 4

_MOST_SAID: Final = 64 << 10
"""The bytes that TLS itself may send to a peer after the handshake, in the life of a connection. That is the
answers to new keys, of 27 bytes each: others send some every hundred gigabytes. One that has nothing else to
say would keep us busy, and if it reads none of them, fill our memory."""

LEFT: Final = "the client left in the middle of the handshake"


class PlainProtocol(Protocol):
    """The protocol behind a layer, which sees plain bytes: `FrameProtocol`, and that of HTTP."""

    @property
    def takes_much(self) -> bool:
        """Whether all that comes now will most likely be taken at once. Bytes that are not taken are held."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    """Towards the socket a protocol, towards the `PlainProtocol` a transport. The latter is made once the
    handshake is done."""

    _raw: asyncio.Transport
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        encryption: Callable[[], Encryption],
        make: Callable[[Any], PlainProtocol],
        handshakes: Handshakes,
        listener: str,
        identify: Callable[[bytes | None, str], Any] | None = None,
    ) -> None:
        """`encryption` makes that of a new connection. `identify` gets the client's certificate and address,
        and gives its principal, which `make` gets, or raises `PeerRefused`."""
        super().__init__()
        self.address = ""
        self.peer = ""
        self.listener = listener
        self._new_encryption = encryption
        self._make = make
        self._handshakes = handshakes
        self._identify = identify
        self._protocol: PlainProtocol | None = None
        self._encryption: Encryption | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = False
        self._socket: socket.socket | None = None
        self._waits_for = 1
        self._reading = True
        self._read_due = False
        self._held = 0  # encrypted bytes, as counted with those of all connections
        self._said = 0
        self._backlog: deque[Buffer] = deque()
        self._backlog_bytes = 0
        self._socket_full = False
        self._encryption_due = False
        self._high = 64 << 10
        self._protocol_paused = False
        self._closing = False
        self._ending = False
        self._lost = False

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._socket = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        if self._handshakes.comes_too_early(self._raw, self.address):
            self._lost = True
            return
        if not self._handshakes.join(self):
            self._lost = True
            self._raw.abort()
            return
        self._raw.set_write_buffer_limits(high=_MOST_UNSENT)
        self._encryption = self._new_encryption()
        self._timer = self._loop.call_later(
            self._handshakes.seconds, self.refuse, "the handshake takes too long"
        )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Large for peers that are read, which makes them fast. Bytes that are received and not taken are
        held: so of others it is no more than without TLS."""
        handshakes, protocol = self._handshakes, self._protocol
        if protocol is None or handshakes.holds_much or not protocol.takes_much:
            return handshakes.short_scratch
        return handshakes.scratch

    def buffer_updated(self, nbytes: int) -> None:
        encryption = self._encryption
        if self._lost or encryption is None:
            return
        self._received = True
        encryption.receive(self._handshakes.scratch[:nbytes])
        if self._closing:
            self._wait_for_the_end(encryption)
        elif self._protocol is None:
            self._shake_hands_in_turn()
        else:
            self._decrypt()
        self._keep(encryption.let_go())

    def eof_received(self) -> bool:
        """The peer hung up. TLS cannot be closed by halves: that is the end."""
        if self._protocol is None:
            if self._received:  # else it was only tried out, as balancers do
                self.refuse(LEFT)
        elif not self._closing:
            self._protocol.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._socket = None
        self._backlog.clear()
        self._backlog_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
        self._handshakes.leave(self)
        self._keep(0)
        if self._protocol is not None:
            self._protocol.connection_lost(exc)
        self._encryption = None

    def pause_writing(self) -> None:
        self._socket_full = True

    def resume_writing(self) -> None:
        self._socket_full = False
        self._encrypt()

    # The handshake.

    def _shake_hands_in_turn(self) -> None:
        """Many come at once where somebody means it. A connection that waits is not read."""
        work = self._handshakes.work
        if not work.has_room and self._reading:
            self._reading = False
            self._raw.pause_reading()
        work.put(owner_of(self.address), self._go_on_shaking_hands)

    def _go_on_shaking_hands(self) -> None:
        encryption = self._encryption
        if self._lost or encryption is None:
            return
        self._handshakes.work.pay(1)
        if not self._reading:
            self._reading = True
            self._raw.resume_reading()
        self._shake_hands(encryption)
        self._keep(encryption.let_go())

    def _shake_hands(self, encryption: Encryption) -> None:
        try:
            done = encryption.shake_hands()
            principal = self._principal(encryption) if done else None
        except PeerEnded:
            self.refuse(LEFT)
        except EncryptionFailed as error:
            self._send_encrypted(encryption)  # it says to the client what is wrong
            self.refuse(str(error))
        except PeerRefused as error:
            self._send_encrypted(encryption)
            self.refuse(str(error), error.kind)
        else:
            self._send_encrypted(encryption)
            if done:
                self._begin(encryption, principal)

    def _begin(self, encryption: Encryption, principal: Any) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._handshakes.leave(self)
        protocol = self._make(principal)
        protocol.connection_made(self)
        if self._raw.is_closing():
            self._lost = True  # there were too many
            return
        self._protocol = protocol
        if encryption.has_more:
            self._decrypt()

    def _principal(self, encryption: Encryption) -> Any:
        return None if self._identify is None else self._identify(encryption.peer_certificate(), self.peer)

    def refuse(self, reason: str, kind: str | None = None) -> None:
        """Ends a handshake, with one line."""
        if self._lost or self._protocol is not None:
            return
        self._lost = True
        self._handshakes.note(self, reason, kind)
        self._handshakes.leave(self)
        self._raw.close()

    # Incoming bytes.

    def _decrypt(self) -> None:
        """Hands the protocol what was received, as long as it wants it."""
        encryption, protocol = self._encryption, self._protocol
        self._read_due = False
        if encryption is None or protocol is None:
            return
        worth = 1
        try:
            while self._reading and encryption.has_more and not self.is_closing():
                buffer = protocol.get_buffer(-1)
                count = encryption.read_into(buffer)
                worth = self._handshakes.worth_waiting_for(buffer, count)
                if count:
                    protocol.buffer_updated(count)
        except PeerEnded:
            protocol.eof_received()
            self.close()
        except EncryptionFailed as error:
            self._handshakes.note(self, str(error))
            self._raw.abort()
            return
        self._wait_for(worth)
        said = encryption.take()
        if said:
            self._said += len(said)
            if self._said > _MOST_SAID:
                self._handshakes.note(self, "the client changes its keys again and again")
                self._raw.abort()
                return
            self._raw.write(said)

    def _decrypt_rest(self) -> None:
        """Goes on with what was received before the protocol stopped reading."""
        self._decrypt()
        if self._encryption is not None:
            self._keep(self._encryption.let_go())

    def _keep(self, size: int) -> None:
        """So many encrypted bytes are held now."""
        if self._lost:
            size = 0
        if size != self._held:
            self._handshakes.held_bytes += size - self._held
            self._held = size

    def _wait_for(self, size: int) -> None:
        """In the middle of a large frame the system wakes us when there is much to read. A peer that encrypts
        sends record by record: without this each would be a turn of the event loop."""
        if size != self._waits_for and self._socket is not None and not self._raw.is_closing():
            self._waits_for = size
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def pause_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._reading or self._lost:
            return
        self._reading = True
        self._raw.resume_reading()
        if not self._read_due and self._encryption is not None and self._encryption.has_more:
            self._read_due = True
            self._loop.call_soon(self._decrypt_rest)

    # Outgoing bytes.

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Any) -> None:
        if self._lost or self._closing:
            return
        self._backlog.extend(list_of_data)
        self._backlog_bytes += sum(map(len, list_of_data))
        if not self._encryption_due and not self._socket_full:
            self._encrypt()
        if not self._protocol_paused and self._protocol is not None:
            size = self.get_write_buffer_size()
            if size > self._high:
                self._protocol_paused = True
                self._protocol.pause_writing()

    def _encrypt(self) -> None:
        """Encrypts so much of the answers as one turn may, and as the socket takes. It goes on in the next
        turn, or when the socket has taken what it has."""
        self._encryption_due = False
        encryption, left = self._encryption, TURN_BYTES
        if encryption is None or self._lost:
            return
        try:
            while self._backlog and left > 0 and not self._socket_full:
                piece = self._next_piece()
                encryption.write(piece)
                self._send_encrypted(encryption)
                left -= len(piece)
        except EncryptionFailed as error:
            self._handshakes.note(self, str(error))
            self._raw.abort()
            return
        if self._backlog:
            if not self._socket_full and not self._encryption_due:
                self._encryption_due = True
                self._loop.call_soon(self._encrypt)
        elif self._closing:
            self._end()
            return
        if self._protocol_paused and self.get_write_buffer_size() <= self._high // _DRAINED_SHARE:
            self._protocol_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def _next_piece(self) -> Buffer:
        """At most `PIECE_BYTES`. Small buffers are put together, and of a large one a part is given."""
        backlog = self._backlog
        first = backlog.popleft()
        size = len(first)
        if size > PIECE_BYTES:
            view = memoryview(first)
            backlog.appendleft(view[PIECE_BYTES:])
            self._backlog_bytes -= PIECE_BYTES
            return view[:PIECE_BYTES]
        if size <= _SMALL and backlog and len(backlog[0]) <= _SMALL:
            together = [first]
            while backlog and len(backlog[0]) <= _SMALL and size + len(backlog[0]) <= PIECE_BYTES:
                size += len(backlog[0])
                together.append(backlog.popleft())
            first = b"".join(together)
        self._backlog_bytes -= size
        return first

    def _send_encrypted(self, encryption: Encryption) -> None:
        data = encryption.take()
        if data:
            self._raw.write(data)

    def get_write_buffer_size(self) -> int:
        return self._backlog_bytes + (0 if self._lost else self._raw.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        self._high = 64 << 10 if high is None else high

    # The end.

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        """Once all has been sent."""
        if self._closing or self._lost:
            return
        self._closing = True
        if not self._backlog:
            self._end()

    def _end(self) -> None:
        """Says that this is the end, and lets the peer hang up: a socket that is closed with bytes unread
        resets the connection, and the peer may lose answers. Not even its half is ended: some clients then
        throw away what they have not decrypted."""
        encryption = self._encryption
        if encryption is None or self._lost or self._ending:
            return
        self._ending = True
        encryption.end()
        self._send_encrypted(encryption)
        if not self._reading:
            self._reading = True
            self._raw.resume_reading()
        self._timer = self._loop.call_later(self._handshakes.seconds, self._raw.close)

    def _wait_for_the_end(self, encryption: Encryption) -> None:
        """The peer's further bytes are thrown away, until it says that this is the end."""
        with suppress(PeerEnded, EncryptionFailed):  # after an end of ours, its own may be the latter
            while encryption.has_more:
                encryption.read_into(self._handshakes.thrown_away)
            return
        if not self._backlog:
            self._raw.close()

    def abort(self) -> None:
        if not self._lost:
            self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)
