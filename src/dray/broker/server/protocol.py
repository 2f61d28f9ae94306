"""One connection: frames in, a task per request, answers out in the order of the requests.

A gate stands before each frame: too many requests unanswered, or too many answer bytes unsent, and the
connection is not read until that has passed. The gate only ever closes *between* frames: a frame once
admitted is read to its end and dispatched, so a peer that writes all of it before it reads our answers
cannot lock itself and us up. Only memory for frames may be waited for in the middle of one: it is given
back when requests are done, whether or not their answers are read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from dray.base.runtime import AnswerRoom, CloseConnection, EndlessRoom
from dray.broker.server.connection import (
    WORTHWHILE,
    Buffer,
    Connection,
    Exchange,
    at_once,
    current_exchange,
    is_free,
    send_at_once,
    unacknowledged,
)
from dray.broker.server.frames import LENGTH, PREFIX, BadFrame, FrameClaims, FrameReader
from dray.broker.server.limits.answers import Reservation
from dray.broker.server.limits.patience import NO_REQUEST, ConnectionProgress, Mute, Patience
from dray.broker.server.states import ConnectionStates, Event, Reading, Writing

if TYPE_CHECKING:
    from dray.broker.server.shared import ServerResources

_log = structlog.get_logger(__name__)

_UNCOUNTED_BYTES: Final = 64 * 1024
"""Answers that wait for their turn are not counted up to so many bytes: small ones that leave together are
not worth a count each."""

_CLOSING_LINES: Final = 20
"""About connections that are closed for one kind of reason, in ten seconds."""

# Looked up once: to look up a member of an enumeration would cost a request more than the transition.
_READING_PAUSED: Final = Reading.PAUSED
_WRITING_OPEN: Final = Writing.OPEN
_WRITING_DUE: Final = Writing.DUE
_WRITING_LOST: Final = Writing.LOST
_FLUSH_SCHEDULED: Final = Event.FLUSH_SCHEDULED
_FLUSH_BEGUN: Final = Event.FLUSH_BEGUN


class FrameProtocol(asyncio.BufferedProtocol):
    """A member of `ServerResources` from its connection being made until it is lost *and* its last request is
    done: a peer that hangs up does not undo what it asked for."""

    __slots__ = (
        "_counted",
        "_dispatch",
        "_frames",
        "_in_flight_limit",
        "_lingering",
        "_listener",
        "_loop",
        "_memory",
        "_mute",
        "_patience",
        "_pauses",
        "_principal",
        "_queue",
        "_reader",
        "_ready_bytes",
        "_received_bytes",
        "_reserved",
        "_running",
        "_sent_bytes",
        "_settings",
        "_shared",
        "_socket",
        "_states",
        "_stranger",
        "_tls",
        "_transport",
        "address",
        "connection",
    )

    connection: Connection
    _transport: asyncio.Transport
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        shared: ServerResources,
        listener: str,
        tls: bool,
        asks: bool = False,
        principal: Any = None,
    ) -> None:
        """`principal`: of a client whose certificate has said who it is."""
        self._shared = shared
        self._settings = shared.settings
        self._dispatch = shared.dispatch
        self._listener = listener
        self._tls = tls
        self._principal = principal
        self._stranger = asks  # the peer has yet to say who it is
        self._in_flight_limit = 1 if asks else shared.settings.max_in_flight
        self._memory = FrameClaims(shared.budget, shared.settings, self._proceed)
        self._reader = FrameReader(
            shared.scratch,
            min(shared.settings.stranger_frame_bytes, shared.settings.largest_frame)
            if asks
            else shared.settings.largest_frame,
            self._admit,
            self._deliver,
            shared.allocate,
            self._memory.ask,
        )
        self._patience = Patience(shared.runtime.monotonic())
        self._queue: deque[Exchange] = deque()
        self._running = 0
        self._frames = 0
        self._received_bytes = 0
        self._ready_bytes = 0  # of answers that are done and not yet handed to the transport
        self._sent_bytes = 0
        self._reserved = 0  # for answers that are being made
        self._counted = 0  # what the budget for answers has for us
        self._pauses = 0
        self._states = ConnectionStates()
        self._lingering: asyncio.TimerHandle | None = None
        self._socket = -1
        self._mute = Mute(self._unmuted)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self.connection = Connection(
            self._shared.identifier(),
            name,
            self._listener,
            self._tls,
            self._turn,
            self._room,
            self._welcome,
            self._mute.begin,
        )
        self.connection.principal = self._principal
        if not self._tls and self._shared.comes_too_early(self._transport, self.address):
            self._states.happened(Event.LOST)
            return
        if not self._shared.join(self):
            self._states.happened(Event.LOST)
            self._transport.abort()
            return
        self._socket = -1 if self._tls else _descriptor(transport)
        self._transport.set_write_buffer_limits(high=self._settings.max_unsent_bytes)
        metrics = self._shared.metrics
        metrics.connections_accepted.value += 1
        metrics.connections_active.value += 1

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._received_bytes += nbytes
        self._shared.metrics.received_bytes.value += nbytes
        if not self._states.listening:
            return
        try:
            self._reader.received(nbytes)
        except BadFrame as error:
            self.refuse("bad frame", str(error))
        else:
            if self._reader.stalled:
                self._hold()

    def eof_received(self) -> bool:
        """The peer sends no more. Its requests are still answered, as it may yet be reading (TLS cannot be
        closed by halves: there, hanging up is the end)."""
        self._stop_listening(Event.HUNG_UP)
        if self._queue and not self._tls and not self._states.closing:
            return True
        self._states.happened(Event.CLOSED)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._states.writing is Writing.LOST:
            return
        self._socket = -1  # the number may soon be that of another socket
        self._shared.metrics.connections_active.value -= 1
        self._stop_listening(Event.LOST)
        for exchange in self._queue:
            exchange.buffers = ()
            exchange.give_turn()
        self._ready_bytes = 0
        self.report_held()
        if self._lingering is not None:
            self._lingering.cancel()
        # These objects hold our methods: break the cycle, or the garbage collector would have to.
        self._mute.end()
        del self._reader, self._memory
        self.connection.turn = at_once
        self.connection.room = EndlessRoom
        self.connection.welcome = _nothing
        self.connection.throttle = _nothing
        if not self._running:
            self._shared.leave(self)

    def pause_writing(self) -> None:
        self._states.happened(Event.TRANSPORT_FULL)

    def resume_writing(self) -> None:
        self._states.happened(Event.TRANSPORT_READY)
        self._flush()
        self.report_held()

    # The gate, and what comes through it.

    @property
    def takes_much(self) -> bool:
        """For the layer of TLS: whether a peer that is known sends, and the gate is open."""
        return not self._stranger and self._frames > 0 and self._admit(0)

    def _admit(self, size: int) -> bool:  # noqa: ARG002 - as the reader asks
        memory = self._memory
        if memory.granted:
            return True
        settings = self._settings
        states = self._states
        return (
            memory.waiting is None
            and states.listening
            and len(self._queue) < self._in_flight_limit
            and states.writable
            and self._ready_bytes < settings.max_unsent_bytes
            and not self._mute.muted
        )

    def _proceed(self) -> None:
        """The gate may have opened: go on with what was received, then with receiving."""
        try:
            self._reader.proceed()
        except BadFrame as error:
            self.refuse("bad frame", str(error))
            return
        if not self._reader.stalled:
            self._states.happened(Event.GATE_OPENED)
            self._transport.resume_reading()

    def _hold(self) -> None:
        if self._states.reading is Reading.OPEN:
            self._states.happened(Event.GATE_CLOSED)
            self._pauses += 1
            self._transport.pause_reading()

    def _deliver(self, frame: memoryview) -> None:
        exchange = Exchange(self._memory.delivered())
        self._queue.append(exchange)
        if not self._frames and not self._stranger:
            self._shared.used(self)
        self._frames += 1
        self._running += 1
        self._shared.metrics.requests_in_flight.value += 1
        exchange.task = self._loop.create_task(self._serve(frame, exchange))

    async def _serve(self, frame: memoryview, exchange: Exchange) -> None:
        size = len(frame)
        current_exchange.set(exchange)
        try:
            answer = await self._dispatch(frame, self.connection)
            if answer is not None:
                size_out = sum(map(len, answer))
                exchange.buffers = (LENGTH.pack(size_out), *answer)
                exchange.bytes = PREFIX + size_out
        except CloseConnection as close:
            exchange.last = True
            if close.answer is not None:
                size_out = sum(map(len, close.answer))
                exchange.buffers = (LENGTH.pack(size_out), *close.answer)
                exchange.bytes = PREFIX + size_out
            self._note_closing(close.kind, close.reason)
        except asyncio.CancelledError:
            exchange.last = True
            if not self._shared.stopping:
                self._note_closing("request", "the request was cancelled")
            raise
        except Exception:
            exchange.last = True
            _log.exception(
                "request failed, closing the connection",
                peer=self.connection.peer,
                connection=self.connection.id,
            )
            self._shared.count_closing("request failed")
        finally:
            del frame
            self._finished(exchange, size)

    # The answers, and the end.

    def _finished(self, exchange: Exchange, size: int) -> None:
        exchange.done = True
        exchange.task = None
        self._running -= 1
        shared = self._shared
        shared.metrics.requests_in_flight.value -= 1
        reservation = exchange.reservation
        if reservation is not None:
            self._reserved -= reservation.size
            exchange.reservation = None
        shared.budget.release(size, exchange.share)
        states = self._states
        if not states.closing:
            self._ready_bytes += exchange.bytes
            if self._queue[0] is exchange and states.writing is _WRITING_OPEN:
                if len(self._queue) == 1:
                    self._flush()
                else:
                    # Requests that were committed together finish in this turn of the loop, one
                    # task after the other: answer them with one write.
                    states.happened(_FLUSH_SCHEDULED)
                    self._loop.call_soon(self._flush)
        else:
            exchange.buffers = ()
            if states.writing is Writing.LOST:
                self.report_held()
                if not self._running:
                    shared.leave(self)
        if reservation is not None or self._ready_bytes > _UNCOUNTED_BYTES:
            self.report_held()

    def _flush(self) -> None:
        """Hand over the answers whose turn it is, as far as the transport wants them."""
        states = self._states
        if states.writing is _WRITING_DUE:
            states.happened(_FLUSH_BEGUN)
        queue = self._queue
        outgoing: list[Buffer] = []
        gathered = 0
        while queue and queue[0].done and states.writable:
            exchange = queue.popleft()
            outgoing += exchange.buffers
            gathered += exchange.bytes
            if exchange.last:
                self._write(outgoing, gathered)
                self.close()
                return
            if gathered >= self._settings.max_unsent_bytes:
                self._write(outgoing, gathered)
                outgoing, gathered = [], 0
        self._write(outgoing, gathered)
        if states.closing:
            return
        self._give_turn()
        if not states.listening:
            if not queue:
                self.close()
        elif states.reading is _READING_PAUSED and self._memory.waiting is None:
            self._proceed()

    def _unmuted(self) -> None:
        if self._states.reading is _READING_PAUSED and self._memory.waiting is None:
            self._proceed()

    def _welcome(self) -> None:
        """The peer has said who it is. The next frame is read when the answer to that has left."""
        if self._stranger and self._states.writing is not Writing.LOST:
            self._stranger = False
            self._in_flight_limit = self._settings.max_in_flight
            self._reader.allow(self._settings.largest_frame)
            self._shared.used(self)

    async def _turn(self) -> None:
        exchange = current_exchange.get()
        states = self._states
        if not (states.closing or (states.writable and self._queue[0] is exchange)):
            exchange.turn = self._loop.create_future()
            await exchange.turn

    def _give_turn(self) -> None:
        if self._queue and self._states.writable:
            self._queue[0].give_turn()

    def _write(self, buffers: list[Buffer], size: int) -> None:
        if buffers:
            self._ready_bytes -= size
            self._sent_bytes += size
            self._shared.metrics.sent_bytes.value += size
            if size >= WORTHWHILE and is_free(self._transport, self._socket):
                buffers = send_at_once(self._socket, buffers)
            if buffers:
                self._transport.writelines(buffers)
            self.report_held()

    # The memory for answers.

    def _room(self) -> AnswerRoom:
        exchange = current_exchange.get()
        if exchange.reservation is None:
            self.report_held()
            exchange.reservation = Reservation(self._shared.answers, self._reserve)
        return exchange.reservation

    def _reserve(self, more: int) -> None:
        self._reserved += more
        self.report_held()

    def report_held(self) -> None:
        """Report to the budget for answers what this connection holds now."""
        held = self._ready_bytes + self._reserved
        if self._states.writing is not _WRITING_LOST:
            held += self._transport.get_write_buffer_size()
        counted = self._counted
        if held != counted:
            self._counted = held
            self._shared.answers.change(self, counted, held)

    @property
    def answer_bytes(self) -> int:
        return self._counted

    def _stop_listening(self, event: Event) -> None:
        """Take no more frames, because of this; give back what the unfinished one had reserved."""
        listened = self._states.listening
        self._states.happened(event)
        self.connection.end()
        if listened:
            self._reader.abandon()
            self._memory.give_up()

    def _note_closing(self, kind: str, reason: str, of_many: bool = False) -> None:
        """Log why the connection closes, unless there are too many such lines. With `of_many`, many
        connections share one."""
        connection = self.connection
        self._shared.notes.warn(
            "closing a connection",
            kind,
            1 if of_many else _CLOSING_LINES,
            reason=reason,
            peer=connection.peer,
            connection=connection.id,
        )
        self._shared.count_closing(kind)

    # Called by the server.

    def refuse(self, kind: str, reason: str) -> None:
        """The peer misbehaved: answer what is in flight, then close, with one log line."""
        self._note_closing(kind, reason)
        self._hold()
        self._stop_listening(Event.NO_MORE_FRAMES)
        end = Exchange()
        end.done = end.last = True
        self._queue.append(end)
        self._flush()

    def drain(self) -> None:
        """Answer what is in flight, then close."""
        self._hold()
        self._stop_listening(Event.NO_MORE_FRAMES)
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close once the transport has sent what it was given. A socket closed with bytes unread
        resets the connection, and the peer may lose answers it has not read yet: so we end our half,
        throw away what still comes, and let the peer hang up, for a short while."""
        if self._states.closing:
            return
        before = self._states.reading
        self._stop_listening(Event.CLOSED)
        for exchange in self._queue:
            exchange.buffers = ()
            exchange.give_turn()
        self._ready_bytes = 0
        self.report_held()
        if before is Reading.ENDED or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        if before is not Reading.OPEN:
            self._transport.resume_reading()
        self._lingering = self._loop.call_later(self._settings.linger_seconds, self._transport.close)

    def abort(self) -> None:
        """Close now, and give up the requests in flight."""
        for exchange in self._queue:
            if exchange.task is not None:
                exchange.task.cancel()
        if self._states.writing is not Writing.LOST:
            self._end_now()

    def sweep(self, now: float) -> None:
        """Give up on a peer that has made us wait too long."""
        if self._states.writing is Writing.LOST:
            return
        reading = self._states.reading is Reading.OPEN
        unsent = self._transport.get_write_buffer_size()
        standing = ConnectionProgress(
            received_bytes=self._received_bytes,
            frames=self._frames,
            stranger=self._stranger,
            unfinished=self._reader.unfinished if reading else -1,
            unsent=unsent,
            busy=bool(self._queue) or self._memory.waiting is not None,
            closing=self._states.closing,
            taken=self._sent_bytes - unsent - unacknowledged(_descriptor(self._transport)) if unsent else 0,
            pauses=self._pauses,
        )
        self.report_held()
        reason = self._patience.exhausted(now, standing, self._settings)
        if reason is None:
            return
        if reason == NO_REQUEST:
            self.drop(reason)
        elif standing.unsent:
            self._note_closing(reason, reason)
            self._end_now()
        elif not self._states.closing:
            self.refuse(reason, reason)

    @property
    def pace(self) -> float | None:
        return None if self._states.closing else self._patience.pace

    def unread_for(self, now: float) -> float:
        return 0.0 if self._states.closing else self._patience.unread_for(now, self._settings)

    def drop(self, kind: str) -> None:
        """Close now, as one of perhaps many. Requests in flight go on: what was asked for is done."""
        self._note_closing(kind, kind, of_many=True)
        self._end_now()

    def _end_now(self) -> None:
        self._stop_listening(Event.CLOSED)
        self._transport.abort()


def _nothing(*_: object) -> None:
    """The welcome of a peer that has left, and its throttling."""


def _descriptor(transport: asyncio.BaseTransport) -> int:
    """-1 where there is none: in a simulation, or once the connection is lost."""
    socket = transport.get_extra_info("socket")
    return -1 if socket is None else int(socket.fileno())
