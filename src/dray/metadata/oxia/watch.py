"""The changes of a shard, as its leader tells them, for those who watch domains of it.

A stream begins with a batch that only names the offset from which it tells. That offset may be committed and
not yet applied, so a barrier follows before watchers get a hint to read: what they read then, or are told
later, leaves no gap. When a stream breaks, or another server takes the lead, a new one begins the same way.
Oxia can resume behind a given offset, but where it keeps that no longer it begins with the next one that it
has, and does not say so. See docs/design/0030-oxia.md for why watchers rather read again.
"""

from __future__ import annotations

import asyncio

import structlog
from grpc import aio

from dray.base.runtime import Runtime, keep_running
from dray.metadata.contract import MetadataError
from dray.metadata.oxia.calls import Calls
from dray.metadata.oxia.errors import understand
from dray.metadata.oxia.keys import split_key, split_mark
from dray.metadata.oxia.server import Stream
from dray.metadata.oxia.shards import Leader, Shard
from dray.metadata.oxia.wire import client_pb2 as wire
from dray.metadata.watching import WatchHub

_log = structlog.get_logger(__name__)

PAUSE = 0.1


class ShardWatch:
    """One stream of notifications, while anybody watches."""

    def __init__(
        self, shard: Shard, calls: Calls, hub: WatchHub, runtime: Runtime, first_answer: float
    ) -> None:
        self._shard = shard
        self._calls = calls
        self._hub = hub
        self._runtime = runtime
        self._first_answer = first_answer
        self._domains: dict[int, int] = {}
        self.in_place = asyncio.Event()
        self._task = keep_running(runtime, f"oxia notifications of shard {shard.identity}", self._run)

    def enter(self, domain: int) -> None:
        self._domains[domain] = self._domains.get(domain, 0) + 1

    def leave(self, domain: int) -> bool:
        """Whether no watcher is left."""
        self._domains[domain] -= 1
        if not self._domains[domain]:
            del self._domains[domain]
        return not self._domains

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        self.in_place.clear()  # where it was begun again
        while True:
            try:
                leader = await self._calls.prove(self._shard)
                await self._follow(leader)
            except aio.AioRpcError as error:
                _log.debug(
                    "notifications interrupted", shard=self._shard.identity, error=str(understand(error))
                )
                self._calls.suspect(self._shard, leader, understand(error))
            except (MetadataError, TimeoutError) as error:
                _log.debug("no notifications", shard=self._shard.identity, error=str(error))
            self.in_place.clear()
            await self._runtime.sleep(PAUSE)

    async def _follow(self, leader: Leader) -> None:
        stream = leader.server.notifications(self._shard.identity)
        ending = self._runtime.spawn(
            _cancel_after(leader.over, stream), "oxia notifications follow the leader"
        )
        try:
            batches = aiter(stream)
            async with asyncio.timeout(self._first_answer):
                await anext(batches)
            if await self._calls.barrier(self._shard) is not leader:
                return
            self.in_place.set()
            for domain in self._domains:
                self._hub.publish(domain, None)
            async for batch in batches:
                self._tell(batch)
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not leader.over.is_set() or (task is not None and task.cancelling()):
                raise
        finally:
            ending.cancel()
            stream.cancel()

    def _tell(self, batch: wire.NotificationBatch) -> None:
        changed: dict[int, list[str]] = {}
        for entry in batch.notifications:
            if (mark := split_mark(entry.key)) is not None:
                changed.setdefault(mark[0], []).append(mark[1])
                continue
            found = split_key(entry.key)
            if found is None or found[0] not in self._domains:
                continue
            domain, key = found
            if entry.value.type == wire.KEY_RANGE_DELETED:
                self._hub.publish(domain, None)  # which keys there were is not said
            else:
                changed.setdefault(domain, []).append(key)
        for domain, keys in changed.items():
            self._hub.publish(domain, keys)


async def _cancel_after(over: asyncio.Event, stream: Stream[object]) -> None:
    await over.wait()
    stream.cancel()
