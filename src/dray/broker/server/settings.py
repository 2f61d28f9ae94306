"""The settings of a server: where to listen, and the bounds it keeps."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray.broker.settings import LimitSettings

if TYPE_CHECKING:
    from dray.broker.server.tls.encryption import Encryption

MEBIBYTE = 1024 * 1024
SMALL_SHARE = 16


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to accept connections on. Port 0 lets the system choose."""

    name: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    asks: bool = False
    """Whether peers are strangers until they have said who they are (`Connection.welcome`)."""
    identify: Callable[[bytes | None, str], Any] | None = None
    """From a client's certificate and address to its principal; None: certificates do not say who clients
    are."""
    max_connections: int | None = None
    """At this listener; None: as many as at all of them."""
    encryption: Callable[[], Encryption] | None = None
    """Makes that of a new connection; None: by the context `tls`, if there is one."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings(LimitSettings):
    """The limits of the config, the listeners, and what suits every broker."""

    listeners: tuple[Listener, ...]
    small_frame_bytes: int = 64 * 1024
    """Frames up to this size take their memory at once, when they have arrived; larger ones in steps. Those
    that are not bulk have a sixteenth of the budget for themselves."""
    bulk_kinds: frozenset[int] = frozenset({0})
    """The first two bytes of requests that may have to wait for memory whatever their size: Produce."""
    stranger_frame_bytes: int = 512 * 1024
    """The largest frame of a peer that has not said who it is, on a listener that asks: Kafka's
    `sasl.server.max.receive.size`. Such a peer is read one frame at a time."""
    max_in_flight: int = 1000
    """How many requests of one connection may be unanswered before it is no longer read."""
    max_unsent_bytes: int = MEBIBYTE
    """How many answer bytes of one connection may wait before it is no longer read."""
    receive_buffer_bytes: int = 64 * 1024
    """Frames that fit are copied out of this one buffer; what is longer is received in place."""
    frame_seconds: float = 30.0
    """How long a peer may stay silent in the middle of a frame."""
    slowest_frame_bytes_per_second: int = 64 * 1024
    """Beyond `frame_seconds`, a frame may take as long as this rate needs, however it trickles."""
    short_frame_bytes_per_second: int = 256 * 1024
    """The pace, over `short_seconds`, of a frame that may stay when memory for frames is short."""
    short_seconds: float = 5.0
    unread_seconds: float = 10.0
    """How long a peer may take nothing of its answers when memory for answers is short."""
    first_request_seconds: float = 30.0
    """By when a connection must have had a request answered, or one that has arrived must be under way. On a
    listener with authentication: by when the peer must have authenticated."""
    linger_seconds: float = 1.0
    """How long a peer whose connection we end may take to hang up."""
    handshake_seconds: float = 10.0
    backlog: int = 1024

    def __post_init__(self) -> None:
        if not self.listeners:
            raise ValueError("a server needs at least one listener")
        if len({listener.name for listener in self.listeners}) != len(self.listeners):
            raise ValueError("listener names must differ")
        for name in (
            "connections",
            "frame_bytes",
            "buffer_bytes",
            "most_answer_bytes",
            "small_frame_bytes",
            "short_frame_bytes_per_second",
            "short_seconds",
            "unread_seconds",
            "first_request_seconds",
            "stranger_frame_bytes",
            "max_in_flight",
            "max_unsent_bytes",
            "slowest_frame_bytes_per_second",
            "frame_seconds",
            "idle_seconds",
            "linger_seconds",
            "handshake_seconds",
            "backlog",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above zero, not {getattr(self, name)}")
        if self.receive_buffer_bytes < 16:
            raise ValueError(f"receive_buffer_bytes must be at least 16, not {self.receive_buffer_bytes}")

        if self.connections_per_address is not None and self.connections_per_address <= 0:
            raise ValueError("connections_per_address must be above zero, or None")

    @property
    def small_budget_bytes(self) -> int:
        """The share of small frames; none where it could not hold one."""
        share = self.buffer_bytes // SMALL_SHARE
        return share if share >= self.small_frame_bytes else 0

    @property
    def largest_frame(self) -> int:
        """A frame above the budget could never be admitted, so it is refused at once."""
        return min(self.frame_bytes, self.buffer_bytes - self.small_budget_bytes)
