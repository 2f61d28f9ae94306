"""Retention by age and size over all topics: run by every broker now and then, and by every compactor.

It must run where no compactor does, and it needs nothing but the metadata store, so the brokers have it. The
jobs are those of the log: the second process finds nothing to do. Tables follow when a compactor next
holds them against the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from dray.log.retention import Retention
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.runtime import BackgroundTasks, KeptTask, Runtime, keep_running
from dray.topics.live import TopicSource
from dray.topics.model import Topic

_log = structlog.get_logger(__name__)

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
        kept = [
            (topic, partition)
            for topic in topics
            if topic.settings.deletes
            for partition in range(len(topic.streams))
            if may_expire is None or may_expire(topic, partition)
        ]
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

        await asyncio.gather(*[one(topic, partition) for topic, partition in kept])
        if raised:
            names = sorted({topic.name for topic in raised.values()})
            _log.info("records expired", partitions=len(raised), topics=len(names), examples=names[:3])
        return raised


class RetentionLoop:
    """What a broker runs in the background."""

    def __init__(
        self, retention: Retention, topics: TopicSource, runtime: Runtime, interval_seconds: float
    ) -> None:
        self._retention = TopicRetention(retention, runtime.background)
        self._topics = topics
        self._runtime = runtime
        self._interval = interval_seconds
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
            await self._runtime.sleep(self._interval * (0.75 + 0.5 * self._runtime.random.random()))
            await self.once()

    async def once(self) -> int:
        """One round; in how many streams records went."""
        try:
            topics = (await self._topics.live()).known
        except MetadataError as error:
            _log.warning("retention interrupted", error=str(error))
            return 0
        return len(await self._retention.keep(topics, _not_kept))


def _not_kept(topic: Topic, partition: int, error: Exception) -> None:
    _log.warning("retention interrupted", topic=topic.name, partition=partition, error=str(error))
