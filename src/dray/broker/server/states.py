"""The states of a connection: what may follow what, and the one place where they change.

`FrameProtocol` reports what happened, and asks; nothing else moves a state. No I/O and no clock here.
A connection has two sides, and each is in one state at a time. A further side is an enumeration, its table,
and a field of `ConnectionStates`.

| reading      | what is done with the bytes of the peer                                            |
|--------------|------------------------------------------------------------------------------------|
| `OPEN`       | frames are taken                                                                   |
| `PAUSED`     | nothing is read: too much is unanswered or unsent, or a frame waits for its memory |
| `SHUT`       | no more frames are taken and nothing is read; what was asked is still answered     |
| `DISCARDING` | no more frames are taken; what comes is thrown away until the peer hangs up        |
| `ENDED`      | the peer sends no more                                                             |

| writing      | what is done with the answers                                                      |
|--------------|------------------------------------------------------------------------------------|
| `OPEN`       | they leave when it is their turn                                                   |
| `DUE`        | some are ready, and leave together at the end of this turn of the event loop       |
| `FULL`       | they wait: the transport wants no more                                             |
| `CLOSING`    | they are dropped; what the transport was given may still leave                     |
| `LOST`       | they are dropped: the connection is gone; requests that it brought may still run   |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias, TypeVar


class _Named(Enum):
    __hash__ = object.__hash__  # that of `Enum` is Python code, and every transition would pay for it


class Reading(_Named):
    OPEN = auto()
    PAUSED = auto()
    SHUT = auto()
    DISCARDING = auto()
    ENDED = auto()


class Writing(_Named):
    OPEN = auto()
    DUE = auto()
    FULL = auto()
    CLOSING = auto()
    LOST = auto()


class Event(_Named):
    # Our own actions.
    GATE_CLOSED = auto()
    """The next frame has to wait."""
    GATE_OPENED = auto()
    NO_MORE_FRAMES = auto()
    """The peer misbehaved, or the server stops."""
    FLUSH_SCHEDULED = auto()
    FLUSH_BEGUN = auto()
    CLOSED = auto()
    """Nothing is handed to the transport from here on."""
    # Reports of the transport. They may come at any time.
    TRANSPORT_FULL = auto()
    TRANSPORT_READY = auto()
    HUNG_UP = auto()
    """The peer ended its half."""
    LOST = auto()
    """The connection is gone, or was refused before it began."""


_State = TypeVar("_State", Reading, Writing)
Table: TypeAlias = Mapping[Event, Mapping[_State, _State]]

# Per event, what follows each state. An event that a table does not have changes nothing on that side. A
# state that an event does not list cannot meet it: that would be a mistake in the code, and raises.

READING: Final[Table[Reading]] = {
    Event.GATE_CLOSED: {Reading.OPEN: Reading.PAUSED},
    Event.GATE_OPENED: {Reading.PAUSED: Reading.OPEN},
    Event.NO_MORE_FRAMES: {  # the gate is closed first
        Reading.PAUSED: Reading.SHUT,
        Reading.SHUT: Reading.SHUT,
        Reading.DISCARDING: Reading.DISCARDING,
        Reading.ENDED: Reading.ENDED,
    },
    Event.CLOSED: {
        Reading.OPEN: Reading.DISCARDING,
        Reading.PAUSED: Reading.DISCARDING,
        Reading.SHUT: Reading.DISCARDING,
        Reading.DISCARDING: Reading.DISCARDING,
        Reading.ENDED: Reading.ENDED,
    },
    Event.HUNG_UP: dict.fromkeys(Reading, Reading.ENDED),
    Event.LOST: dict.fromkeys(Reading, Reading.ENDED),
}

WRITING: Final[Table[Writing]] = {
    Event.FLUSH_SCHEDULED: {Writing.OPEN: Writing.DUE},
    Event.FLUSH_BEGUN: {Writing.DUE: Writing.OPEN},
    Event.TRANSPORT_FULL: {
        Writing.OPEN: Writing.FULL,
        Writing.DUE: Writing.FULL,
        Writing.FULL: Writing.FULL,
        Writing.CLOSING: Writing.CLOSING,
        Writing.LOST: Writing.LOST,
    },
    Event.TRANSPORT_READY: {
        Writing.OPEN: Writing.OPEN,
        Writing.DUE: Writing.DUE,
        Writing.FULL: Writing.OPEN,
        Writing.CLOSING: Writing.CLOSING,
        Writing.LOST: Writing.LOST,
    },
    Event.CLOSED: {
        Writing.OPEN: Writing.CLOSING,
        Writing.DUE: Writing.CLOSING,
        Writing.FULL: Writing.CLOSING,
        Writing.CLOSING: Writing.CLOSING,
        Writing.LOST: Writing.LOST,
    },
    Event.LOST: dict.fromkeys(Writing, Writing.LOST),
}

_LISTENING: Final = frozenset({Reading.OPEN, Reading.PAUSED})
_WRITABLE: Final = frozenset({Writing.OPEN, Writing.DUE})
_CLOSING: Final = frozenset({Writing.CLOSING, Writing.LOST})


class ImpossibleEvent(Exception):
    """An event that a connection cannot meet in its state."""

    def __init__(self, event: Event, states: ConnectionStates) -> None:
        super().__init__(
            f"{event.name} while reading is {states.reading.name} and writing {states.writing.name}"
        )


class ConnectionStates:
    """The states, and beside them what every request asks about them, computed when a state changes: that is
    seldom."""

    __slots__ = ("closing", "listening", "reading", "writable", "writing")

    def __init__(self) -> None:
        self.reading = Reading.OPEN
        self.writing = Writing.OPEN
        self.listening = True
        """Frames are taken: now, or when the gate opens."""
        self.writable = True
        """Answers may be handed to the transport."""
        self.closing = False
        """No more answers will be."""

    def happened(self, event: Event) -> None:
        reads, writes = READING.get(event), WRITING.get(event)
        try:
            reading = self.reading if reads is None else reads[self.reading]
            writing = self.writing if writes is None else writes[self.writing]
        except KeyError:
            raise ImpossibleEvent(event, self) from None
        if reads is not None:
            self.reading = reading
            self.listening = reading in _LISTENING
        if writes is not None:
            self.writing = writing
            self.writable = writing in _WRITABLE
            self.closing = writing in _CLOSING
