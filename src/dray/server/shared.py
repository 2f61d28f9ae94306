"""What all connections of one server have in common, and who they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from dray.server.answers import AnswerBudget
from dray.server.newcomers import Newcomers
from dray.server.notes import RateLimitedLog

if TYPE_CHECKING:
    import asyncio

    from dray.runtime import Runtime
    from dray.server.connection import Buffer, Dispatch
    from dray.server.memory import MemoryBudget
    from dray.server.protocol import FrameProtocol
    from dray.server.settings import ServerSettings
    from dray.telemetry import Metrics

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
        self.answers = AnswerBudget(settings.answer_budget_bytes)
        self.allocate = allocate
        self.scratch = bytearray(settings.receive_buffer_bytes)
        self.members: set[FrameProtocol] = set()
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
        most = self.settings.max_connections
        now = self.runtime.monotonic()
        if len(self.members) >= most and not self._make_room(now):
            return self.refuse("too many connections, refusing more", limit=most)
        self.members.add(member)
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
        self.members.remove(member)
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
        most = self.settings.max_connections_per_address
        if most is not None:
            return most
        return self.settings.max_connections if _is_local(address) else -(-self.settings.max_connections // 2)

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
