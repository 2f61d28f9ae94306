"""The state that all connections of one server share: the connections themselves, those that come too fast,
and log lines about many of them.

Connections that an address makes too fast are held for a while, unread, and then closed: a client that is
refused at once would come again at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import structlog

from dray.broker.server.limits.answers import AnswerBudget

if TYPE_CHECKING:
    from dray.base.runtime import Runtime
    from dray.base.telemetry import Metrics
    from dray.broker.server.connection import Buffer, Dispatch
    from dray.broker.server.limits.memory import MemoryBudget
    from dray.broker.server.protocol import FrameProtocol
    from dray.broker.server.settings import ServerSettings

# --- connections that come too fast

MOST_HELD: Final = 1000
"""Held at once; more are closed at once, so that they cannot take all the sockets of the process."""


class Newcomers:
    """`wait` says for how many seconds a new connection of an address is held; 0: it is welcome."""

    def __init__(self, wait: Callable[[str], float]) -> None:
        self._wait = wait
        self._held: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    @property
    def held(self) -> int:
        return len(self._held)

    def refuse(self, transport: asyncio.Transport, address: str) -> bool:
        """True if this connection comes too early. It is closed without anything being read of it."""
        seconds = self._wait(address)
        if seconds <= 0:
            return False
        if len(self._held) >= MOST_HELD:
            transport.abort()
        else:
            transport.pause_reading()
            loop = asyncio.get_running_loop()
            self._held[transport] = loop.call_later(seconds, self._close, transport)
        return True

    def stop(self) -> None:
        for transport in list(self._held):
            self._held[transport].cancel()
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        del self._held[transport]
        transport.abort()


# --- log lines: few per kind and span of time, which count those between

_log = structlog.get_logger(__name__)

SPAN_SECONDS: Final = 10.0


class RateLimitedLog:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._written: dict[str, tuple[float, float]] = {}  # when the last was, and how many are still due
        self._unsaid: dict[str, int] = {}

    def warn(self, event: str, kind: str, lines: int = 1, **details: Any) -> None:
        """At most so many lines of this kind at once, and in a span of time from then on."""
        now = self._monotonic()
        last, left = self._written.get(kind, (now, float(lines)))
        left = min(float(lines), left + (now - last) * lines / SPAN_SECONDS)
        if left < 1:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            self._written[kind] = now, left
            return
        self._written[kind] = now, left - 1
        unsaid = self._unsaid.pop(kind, 0)
        if unsaid:
            details["more_since_the_last_line"] = unsaid
        _log.warning(event, **details)


UNUSED: Final = "unused while connections are short"
_NEW_SECONDS: Final = 1.0
"""How long a connection is safe from making room for another: its first request may be on its way."""


class ServerResources:
    def __init__(
        self,
        dispatch: Dispatch,
        runtime: Runtime,
        *,
        settings: ServerSettings,
        metrics: Metrics,
        budget: MemoryBudget,
        allocate: Callable[[int], Buffer],
        newcomer_wait: Callable[[str], float] = lambda _address: 0.0,
    ) -> None:
        self.dispatch = dispatch
        self.runtime = runtime
        self.settings = settings
        self.metrics = metrics
        self.budget = budget
        self.answers = AnswerBudget(settings.most_answer_bytes)
        self.allocate = allocate
        self.scratch = bytearray(settings.receive_buffer_bytes)
        self.members: dict[FrameProtocol, None] = {}  # oldest first: all runs of a seed go over them alike
        self.notes = RateLimitedLog(runtime.monotonic)
        self.newcomers = Newcomers(newcomer_wait)
        self.stopping = False
        self.when_empty: Callable[[], None] | None = None
        self._unused: OrderedDict[FrameProtocol, float] = OrderedDict()  # oldest first
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._most_at = {listener.name: listener.max_connections for listener in settings.listeners}
        self._last_identifier = 0

    @property
    def handshake_seconds(self) -> float:
        return self.settings.handshake_seconds

    def identifier(self) -> int:
        self._last_identifier += 1
        return self._last_identifier

    def comes_too_early(self, transport: asyncio.Transport, address: str) -> bool:
        """True if the address is above its quota of new connections; then this one is closed in a while."""
        if not self.newcomers.refuse(transport, address):
            return False
        self.refuse("an address connects faster than its quota, refusing some", peer=address)
        return True

    def join(self, member: FrameProtocol) -> bool:
        """False when this connection is one too many, or too late."""
        address, listener = member.address, member.connection.listener
        if self.stopping or not self.has_room(address, listener):
            return False
        most = self.settings.connections
        now = self.runtime.monotonic()
        if len(self.members) >= most and not self._make_room(now):
            return self.refuse("too many connections, refusing more", limit=most)
        self.members[member] = None
        self._unused[member] = now
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        return True

    def has_room(self, address: str, listener: str) -> bool:
        """For one more connection of this address, at this listener."""
        most = self._most_of(address)
        if self._by_address.get(address, 0) >= most:
            return self.refuse("too many connections of an address, refusing more", limit=most, peer=address)
        bound = self._most_at.get(listener)
        if bound is not None and self._by_listener.get(listener, 0) >= bound:
            event = "too many connections at a listener, refusing more"
            return self.refuse(event, kind=f"{event}: {listener}", limit=bound, listener=listener)
        return True

    def used(self, member: FrameProtocol) -> None:
        """The connection has sent a request."""
        self._unused.pop(member, None)

    def leave(self, member: FrameProtocol) -> None:
        if member not in self.members:
            return
        del self.members[member]
        self._unused.pop(member, None)
        left = self._by_address[member.address] - 1
        if left:
            self._by_address[member.address] = left
        else:
            del self._by_address[member.address]
        self._by_listener[member.connection.listener] -= 1
        if not self.members and self.when_empty is not None:
            self.when_empty()

    def _most_of(self, address: str) -> int:
        most = self.settings.connections_per_address
        if most is not None:
            return most
        return self.settings.connections if _is_local(address) else -(-self.settings.connections // 2)

    def _make_room(self, now: float) -> bool:
        """Close the connection that has been there for longest without a request, if there is one."""
        oldest = next(iter(self._unused), None)
        if oldest is None or now - self._unused[oldest] < _NEW_SECONDS:
            return False
        oldest.drop(UNUSED)
        self.leave(oldest)
        return True

    def count_closing(self, kind: str) -> None:
        self.metrics.connections_closed.labels(kind).value += 1

    def refuse(self, event: str, kind: str | None = None, **details: Any) -> bool:
        self.metrics.connections_refused.value += 1
        self.notes.warn(event, kind or event, **details)
        return False


def _is_local(address: str) -> bool:
    """This machine's own clients, and those that have no address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return True
