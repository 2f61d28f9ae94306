"""The leader of each shard, as far as this client knows.

Any server streams the assignments of all shards, and goes on to stream their changes. The view may be old:
a server that is cut off from the coordinator repeats what it heard last. So whatever a leader answers
counts more than the view, and a caller that finds a leader wrong or silent asks for a `refresh`, from another
server than the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from grpc import aio

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.metadata.contract import Unavailable
from dray.metadata.oxia.errors import NAMESPACE_NOT_FOUND, Fault, UnusableOxia, understand
from dray.metadata.oxia.keys import partition_hash
from dray.metadata.oxia.server import Call, OxiaServer, Servers, Stream
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.wire import client_pb2 as wire

_log = structlog.get_logger(__name__)

CALLS_GRACE = 1.0
"""Seconds for what is under way at a leader when another one takes over: it may still be answered."""

LEAST_REFRESH_INTERVAL = 0.25
PAUSE = 0.1


class Superseded(Exception):
    """The call went to a server that leads the shard no longer, and was given up."""


@dataclass(eq=False)
class Leader:
    """One server's time as the leader of a shard, in this client's eyes."""

    server: OxiaServer
    proven: bool = False
    """Whether a write was acknowledged here, in this time. See `dray.metadata.oxia.store`."""

    inspected: bool = False
    """Whether a task looks after its sessions. See `dray.metadata.oxia.sessions`."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    calls: set[Call[Any] | Stream[Any]] = field(default_factory=set)

    @contextmanager
    def under_way(self, call: Call[Any] | Stream[Any]) -> Iterator[None]:
        """While waiting for an answer: `Superseded` when another leader took over and this one is silent."""
        self.calls.add(call)
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.over.is_set() and not (task is not None and task.cancelling()):
                raise Superseded from None
            raise
        finally:
            self.calls.discard(call)

    def end(self) -> None:
        self.over.set()
        if self.calls:
            asyncio.get_running_loop().call_later(CALLS_GRACE, self._give_up)

    def _give_up(self) -> None:
        for call in list(self.calls):
            call.cancel()


@dataclass(eq=False)
class Shard:
    identity: int
    low: int
    high: int
    leader: Leader | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever another server takes over."""

    def follow(self, server: OxiaServer) -> None:
        if self.leader is not None and self.leader.server is server:
            return
        if self.leader is not None:
            self.leader.end()
        self.leader = Leader(server)
        self.changed.set()
        self.changed = asyncio.Event()


class Shards:
    """`start` returns with the first assignments, or raises `UnusableOxia`."""

    def __init__(self, servers: Servers, settings: OxiaSettings, runtime: Runtime) -> None:
        self._servers = servers
        self._settings = settings
        self._runtime = runtime
        self._shards: dict[int, Shard] = {}
        self._by_domain: dict[int, Shard] = {}
        self._stream: Stream[wire.ShardAssignments] | None = None
        self._opened = 0.0
        self._turn = 0
        self._known = asyncio.Event()
        self._problem: Fault | None = None
        self._unusable: UnusableOxia | None = None
        self._answered = asyncio.Event()  # the first assignments are known, or never will be
        self._task: KeptTask | None = None

    async def start(self) -> None:
        self._task = keep_running(self._runtime, "oxia assignments", self._run_usable)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), self._settings.patience)
        if self._unusable is not None:
            raise self._unusable
        if not self._known.is_set():
            raise UnusableOxia(self._nobody_answers())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._stream is not None:
            self._stream.cancel()

    def of(self, domain: int) -> Shard:
        shard = self._by_domain.get(domain)
        if shard is None:
            code = partition_hash(domain)
            found = (shard for shard in self._shards.values() if shard.low <= code <= shard.high)
            shard = next(found, None)
            if shard is None:
                raise Unavailable(f"Oxia has no shard for domain {domain} now")
            self._by_domain[domain] = shard
        return shard

    def all(self) -> list[Shard]:
        return list(self._shards.values())

    def refresh(self) -> None:
        """The view is suspect: ask another server for it."""
        if self._runtime.monotonic() - self._opened >= LEAST_REFRESH_INTERVAL and self._stream is not None:
            self._stream.cancel()

    def hint(self, shard: Shard, address: str) -> None:
        """A server says who leads a shard that it does not lead."""
        shard.follow(self._servers.at(address))

    async def _run_usable(self) -> None:
        try:
            await self._run()
        except UnusableOxia as error:
            if self._known.is_set() or self._task is None:
                raise
            self._unusable = error
            self._answered.set()
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            addresses = self._servers.addresses
            server = self._servers.at(addresses[self._turn % len(addresses)])
            self._turn += 1
            try:
                await self._follow(server)
            except aio.AioRpcError as error:
                self._note(server, understand(error))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # otherwise it was the stream, by `refresh`
            except TimeoutError:
                _log.debug("an Oxia server is silent", server=server.address)
            except UnusableOxia as error:
                if not self._known.is_set():
                    raise
                _log.warning("an Oxia server is of no use", server=server.address, error=str(error))
            await self._runtime.sleep(PAUSE)

    async def _follow(self, server: OxiaServer) -> None:
        async with asyncio.timeout(self._settings.first_answer):
            await server.introduce()
        self._stream = server.assignments()
        self._opened = self._runtime.monotonic()
        try:
            assignments = aiter(self._stream)
            async with asyncio.timeout(self._settings.first_answer):
                self._apply(await anext(assignments))
            async for changed in assignments:
                self._apply(changed)
        except StopAsyncIteration:
            return
        finally:
            self._stream.cancel()

    def _apply(self, assignments: wire.ShardAssignments) -> None:
        namespace = assignments.namespaces[self._settings.namespace]
        if namespace.shard_key_router != wire.XXHASH3:
            raise UnusableOxia("the Oxia service routes keys in a way that is not known here: upgrade Dray")
        seen = {assignment.shard for assignment in namespace.assignments}
        if not seen:
            return  # a namespace that is being made, or taken away
        if set(self._shards) != seen:
            self._shards = {identity: self._shard(identity, namespace.assignments) for identity in seen}
            self._by_domain.clear()
        for assignment in namespace.assignments:
            if assignment.leader:
                self._shards[assignment.shard].follow(self._servers.at(assignment.leader))
        self._known.set()
        self._answered.set()

    def _shard(self, identity: int, assignments: Iterable[wire.ShardAssignment]) -> Shard:
        known = self._shards.get(identity)
        if known is not None:
            return known
        found = next(assignment for assignment in assignments if assignment.shard == identity)
        bounds = found.int32_hash_range
        return Shard(identity, bounds.min_hash_inclusive, bounds.max_hash_inclusive)

    def _note(self, server: OxiaServer, fault: Fault) -> None:
        if not self._known.is_set():
            self._problem = fault
            if fault.reason == NAMESPACE_NOT_FOUND:
                raise UnusableOxia(
                    f"Oxia at {server.address} has no namespace {self._settings.namespace!r}: create it, "
                    "or name another one"
                )
            if fault.hopeless:
                raise UnusableOxia(f"Oxia at {server.address} refuses us: {fault}")
        _log.debug("assignments interrupted", server=server.address, error=str(fault))

    def _nobody_answers(self) -> str:
        tried = ", ".join(self._settings.addresses)
        why = "" if self._problem is None else f": {self._problem}"
        return f"no Oxia server answers at {tried}{why}"
