"""What all connections of one server have in common, and who they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from dray.runtime import Runtime
    from dray.server.connection import Buffer, Dispatch
    from dray.server.memory import MemoryBudget
    from dray.server.protocol import FrameProtocol
    from dray.server.settings import ServerSettings
    from dray.telemetry import Metrics

_log = structlog.get_logger(__name__)


class Shared:
    def __init__(
        self,
        dispatch: Dispatch,
        runtime: Runtime,
        *,
        settings: ServerSettings,
        metrics: Metrics,
        budget: MemoryBudget,
        allocate: Callable[[int], Buffer],
    ) -> None:
        self.dispatch = dispatch
        self.runtime = runtime
        self.settings = settings
        self.metrics = metrics
        self.budget = budget
        self.allocate = allocate
        self.scratch = bytearray(settings.receive_buffer_bytes)
        self.members: set[FrameProtocol] = set()
        self.stopping = False
        self.when_empty: Callable[[], None] | None = None
        self._refusing = False
        self._last_identifier = 0

    def identifier(self) -> int:
        self._last_identifier += 1
        return self._last_identifier

    def join(self, member: FrameProtocol) -> bool:
        """False when this connection is one too many, or too late."""
        if self.stopping:
            return False
        if len(self.members) >= self.settings.max_connections:
            self.metrics.connections_refused.value += 1
            if not self._refusing:
                # One line per episode, not per connection: a flood must not flood the log as well.
                self._refusing = True
                _log.warning("too many connections, refusing more", limit=self.settings.max_connections)
            return False
        self.members.add(member)
        return True

    def leave(self, member: FrameProtocol) -> None:
        self._refusing = False
        self.members.discard(member)
        if not self.members and self.when_empty is not None:
            self.when_empty()
