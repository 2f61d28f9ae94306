"""The entrance, where clients wait while a broker starts: it serves nothing before it knows its own id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from dray.base.runtime import CloseConnection
from dray.broker.api.dispatcher import Dispatcher
from dray.broker.api.shared.sasl_gate import SaslGate
from dray.broker.server import Answer, Connection


class Entrance:
    """Requests that came while it was closed go in one by one once it opens. One that arrives at that very
    moment must not overtake those that wait: the requests of a connection are begun in the order they came.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._behind: Dispatcher | SaslGate | None = None
        self._free: Dispatcher | SaslGate | None = None
        """The same, once all that waited are in: from then on nobody ever waits."""

    async def close(self) -> None:
        await self._lock.acquire()

    def open(self, dispatcher: Dispatcher | SaslGate) -> None:
        self._behind = dispatcher
        self._lock.release()

    def dispatch(self, frame: memoryview, connection: Connection) -> Awaitable[Answer]:
        """Called for every request, so that it is no coroutine of its own once the broker has started."""
        dispatcher = self._free
        if dispatcher is None:
            return self._enter(frame, connection)
        return dispatcher.dispatch(frame, connection)

    async def _enter(self, frame: memoryview, connection: Connection) -> Answer:
        waited = self._lock.locked() or self._waiting > 0
        self._waiting += 1
        try:
            async with self._lock:
                pass
        finally:
            self._waiting -= 1
        dispatcher = self._behind
        assert dispatcher is not None
        if not self._waiting:
            self._free = dispatcher
        if waited and connection.ending:
            # The client may have sent the request again elsewhere since. Begun now, this copy could overtake
            # that one.
            raise CloseConnection("the client left while the broker was starting")
        return await dispatcher.dispatch(frame, connection)
