"""The changes of a domain, as a server tells them, while anybody watches.

A stream begins with an answer that the watch is in place; from then on nothing is missed. When it breaks, or
the server has compacted what it has not told yet, a new one begins with what happens then, and the watchers
get a hint to read again. etcd could resume behind a given revision, but only while it keeps it; since
watchers read again after every interruption, nothing is gained by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import structlog
from grpc import aio

from dray.base.runtime import Runtime, keep_running
from dray.metadata.contract import MetadataError
from dray.metadata.etcd.calls import PAUSE, Calls, understand
from dray.metadata.etcd.keys import Keyspace
from dray.metadata.etcd.server import EtcdServer
from dray.metadata.etcd.wire import etcd_pb2 as wire
from dray.metadata.watching import WatchHub

_log = structlog.get_logger(__name__)


class DomainWatch:
    def __init__(
        self,
        domain: int,
        calls: Calls,
        keyspace: Keyspace,
        hub: WatchHub,
        runtime: Runtime,
        patience: float,
        seen: Callable[[int], None],
    ) -> None:
        self._domain = domain
        self._calls = calls
        self._keyspace = keyspace
        self._mark = keyspace.mark(domain)
        self._hub = hub
        self._runtime = runtime
        self._patience = patience
        self._seen = seen
        self.watchers = 0
        self.in_place = asyncio.Event()
        self._task = keep_running(runtime, f"etcd watch of domain {domain}", self._run)

    def stop(self) -> None:
        self._task.cancel()
        self.in_place.set()  # a task that waits for it finds the hub closed

    async def _run(self) -> None:
        self.in_place.clear()  # where it was begun again
        while True:
            try:
                server = await self._calls.connected(self._runtime.monotonic() + self._patience)
                await self._follow(server)
            except aio.AioRpcError as error:
                fault = understand(error)
                _log.debug("watch interrupted", domain=self._domain, server=server.address, error=str(fault))
                await self._calls.recover(server, fault)
            except MetadataError as error:
                _log.debug("no watch", domain=self._domain, error=str(error))
            self.in_place.clear()
            await self._runtime.sleep(PAUSE)

    async def _follow(self, server: EtcdServer) -> None:
        start, end = self._keyspace.domain(self._domain), self._keyspace.domain_end(self._domain)
        async with aclosing(server.watch(start, end, self._calls.metadata())) as responses:
            async for response in responses:
                self._seen(response.header.revision)
                if response.canceled:
                    _log.debug("watch cancelled", domain=self._domain, reason=response.cancel_reason)
                    self._calls.leave(server)
                    return
                if response.created:
                    self._hub.publish(self._domain, None)
                    self.in_place.set()
                elif response.events:
                    self._hub.publish(self._domain, [self._name(event.kv) for event in response.events])

    def _name(self, changed: wire.KeyValue) -> str:
        """A mark's name is what was put at its key."""
        is_mark = changed.key == self._mark
        return changed.value.decode() if is_mark else self._keyspace.bare(self._domain, changed.key)
