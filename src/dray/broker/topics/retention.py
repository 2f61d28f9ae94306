"""Retention by age and size over all topics: run by brokers now and then, and by every compactor.

It must run where no compactor does, and it needs nothing but the metadata store, so the brokers have it: each
for the domains that it looks after. The jobs are those of the log: where two look, the second finds nothing
to do. A stream is asked again only once it has moved, or its oldest records may have expired. Tables follow
when a compactor next holds them against the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from dray.base.runtime import (
    BackgroundTasks,
    ExpiryClock,
    KeptTask,
    Runtime,
    UndoubtedClock,
    gather_some,
    in_turns,
    keep_running,
)
from dray.broker.topics.live import TopicSource
from dray.broker.topics.model import Topic
from dray.log.life.retention import Retention, RetentionMemory
from dray.log.types import LogError
from dray.metadata.contract import MetadataError

_log = structlog.get_logger(__name__)

_IN_A_TURN: Final = 5_000  # partitions

Failed = Callable[[Topic, int, Exception], None]
MayExpire = Callable[[Topic, int], bool]


class TopicRetention:
    def __init__(self, retention: Retention, background: BackgroundTasks, at_once: int = 16) -> None:
        self._retention = retention
        self._background = background
        self._at_once = at_once

    async def keep(
        self,
        topics: list[Topic],
        on_failed: Failed,
        progress: Callable[[int, int], None] | None = None,
        may_expire: MayExpire | None = None,
    ) -> dict[int, Topic]:
        """Delete what the topics no longer keep. Gives back, by stream, where records went. A stream that
        cannot be asked now has its turn the next time. `may_expire` says for a partition whether to ask at
        all."""
        kept = await in_turns(_asked_of(topics, may_expire))
        raised: dict[int, Topic] = {}
        limit = asyncio.Semaphore(self._at_once)
        done = 0

        async def one(topic: Topic, partition: int) -> None:
            nonlocal done
            stream, settings = topic.streams[partition], topic.settings
            async with limit:
                try:
                    if await self._retention.keep(stream, settings.retention_ms, settings.retention_bytes):
                        raised[stream] = topic
                except Exception as error:
                    if not isinstance(error, (LogError, MetadataError)):
                        self._background.report("retention of a stream", error)
                    on_failed(topic, partition, error)
            done += 1
            if progress is not None:
                progress(done, len(kept))

        await gather_some(one(topic, partition) for topic, partition in kept)
        if raised:
            names = sorted({topic.name for topic in raised.values()})
            _log.info("records expired", partitions=len(raised), topics=len(names), examples=names[:3])
        return raised


def _asked_of(
    topics: list[Topic], may_expire: MayExpire | None
) -> Generator[None, None, list[tuple[Topic, int]]]:
    kept: list[tuple[Topic, int]] = []
    looked_at = 0
    for topic in topics:
        if topic.settings.deletes:
            every = range(len(topic.streams))
            kept += [(topic, each) for each in every if may_expire is None or may_expire(topic, each)]
            looked_at += len(every)
        if looked_at >= _IN_A_TURN:
            looked_at = 0
            yield
    return kept


class Watched(Protocol):
    def tell(
        self, domains: Sequence[int], moved: Callable[[int], None], doubted: Callable[[int], None]
    ) -> None:
        """Tell which streams of these domains move, from now on."""


@dataclass(frozen=True)
class BrokersPart:
    """A broker's part of what one broker need do."""

    domains: int
    looks_after: Callable[[int], bool]
    watched: Watched
    memory: RetentionMemory


class RetentionLoop:
    """The retention that a broker runs in the background."""

    def __init__(
        self,
        retention: Retention,
        topics: TopicSource,
        runtime: Runtime,
        interval_seconds: float,
        share: BrokersPart | None = None,
        expiry: ExpiryClock | None = None,
    ) -> None:
        """`share`: of the cluster's brokers, this one asks in its domains alone, and what has moved."""
        self._retention = TopicRetention(retention, runtime.background)
        self._topics = topics
        self._runtime = runtime
        self._interval = interval_seconds
        self._share = share
        self._expiry = expiry or UndoubtedClock(runtime)
        self._task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self._runtime, "retention", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        while True:
            # Brokers that started together do not all come at the same moment.
            pause = self._interval * (0.75 + 0.5 * self._runtime.random.random())
            await self._runtime.sleep(pause / 2)
            self._follow()  # what is read before a watch stands is read again
            await self._runtime.sleep(pause / 2)
            await self.once()

    def _follow(self) -> frozenset[int]:
        """The domains that this broker looks after."""
        share = self._share
        if share is None:
            return frozenset()
        ours = frozenset(domain for domain in range(share.domains) if share.looks_after(domain))

        def doubted(domain: int) -> None:
            share.memory.keep_only(lambda stream: stream % share.domains != domain)

        share.watched.tell(sorted(ours), share.memory.moved, doubted)
        return ours

    async def once(self) -> int:
        """One round; in how many streams records went."""
        ours = self._follow()
        try:
            topics = (await self._topics.live()).known
        except MetadataError as error:
            _log.warning("retention interrupted", error=str(error))
            return 0
        if (share := self._share) is None:
            return len(await self._retention.keep(topics, _not_kept))
        now_ms = self._expiry.now_ms()
        asked: set[int] = set()

        def may_expire(topic: Topic, partition: int) -> bool:
            stream, settings = topic.streams[partition], topic.settings
            if stream % share.domains not in ours:
                return False
            asked.add(stream)
            return share.memory.may_expire(stream, settings.retention_ms, settings.retention_bytes, now_ms)

        raised = await self._retention.keep(topics, _not_kept, may_expire=may_expire)
        share.memory.keep_only(asked.__contains__)
        return len(raised)


def _not_kept(topic: Topic, partition: int, error: Exception) -> None:
    _log.warning("retention interrupted", topic=topic.name, partition=partition, error=str(error))
