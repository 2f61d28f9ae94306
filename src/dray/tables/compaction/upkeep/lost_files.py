"""Files that the index names and that are not in the bucket, as a round of collection finds them.

The collector lists the bucket anyway, so what it did not see costs a request or two, and nothing else does.
A missing file is proven to be so (`log/life/lost_objects.py`), said and counted. Nothing is done about it
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

import structlog

from dray.base.runtime import BackgroundTasks
from dray.broker.topics.live import TopicSource
from dray.broker.topics.model import Topic
from dray.log.life.lost_objects import REMEDY, LostEntry, LostObjects
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray.tables.compaction.planning.shares import WHOLE, TopicShare

_log = structlog.get_logger(__name__)

_FORESEEN: Final = (MetadataError, LogError, ObjectError)

_AT_ONCE: Final = 16
"""Streams: a proof takes seconds of waiting, and compaction stands still until all are done."""
_SAID: Final = 10
"""So many are named in the log, per round; all are counted."""


@dataclass(frozen=True, slots=True)
class LostPart:
    """A lost part of a partition."""

    topic: str
    partition: int
    entry: LostEntry


class LostFiles:
    def __init__(
        self, store: StreamStore, objects: LostObjects, topics: TopicSource, background: BackgroundTasks
    ) -> None:
        self._background = background
        self._store = store
        self._objects = objects
        self._topics = topics

    async def find(
        self, listed: Collection[str], troubled: Iterable[tuple[str, int]], share: TopicShare = WHOLE
    ) -> list[LostPart]:
        """Of the topics of a share. `listed`: the files that a listing of the bucket had. `troubled`: topics
        and partitions that could not be compacted: everything that these rest on is asked for."""
        try:
            topics = [each for each in (await self._topics.live()).known if share.has(each.topic_id)]
        except MetadataError as error:
            _log.warning("lost files not looked for", error=str(error))
            return []
        wholly = set(troubled)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def look(topic: Topic, partition: int, stream: int) -> list[LostPart]:
            async with limit:
                return await self._look(topic, partition, stream, listed, wholly)

        places = [(topic, *place) for topic in topics for place in enumerate(topic.streams)]
        each = await asyncio.gather(*[look(*place) for place in places])
        found = list(chain.from_iterable(each))
        for part in found[:_SAID]:
            _log.error(
                "an object is lost: its records cannot be read",
                topic=part.topic,
                partition=part.partition,
                first=part.entry.start,
                below=part.entry.end,
                path=part.entry.path,
                objects=len(found),
                what=REMEDY,
            )
        return found

    async def _look(
        self,
        topic: Topic,
        partition: int,
        stream: int,
        listed: Collection[str],
        wholly: Collection[tuple[str, int]],
    ) -> list[LostPart]:
        try:
            if (topic.name, partition) in wholly:
                lost = await self._objects.of(stream)
            else:
                lost = await self._unlisted(stream, listed)
        except Exception as error:
            if not isinstance(error, _FORESEEN):
                self._background.report("look for lost files", error)
            _log.warning("lost files not looked for", topic=topic.name, partition=partition, error=str(error))
            return []
        return [LostPart(topic.name, partition, entry) for entry in lost]

    async def _unlisted(self, stream: int, listed: Collection[str]) -> list[LostEntry]:
        """A stream that never had a job has no file, and its index is not read."""
        if not await self._store.job_version(stream):
            return []
        await self._store.barrier(stream)
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            return []
        files = [entry.value for entry in view.split()[0] if entry.value.is_parquet]
        suspects = [entry for entry in files if not entry.is_gap and entry.path not in listed]
        return await self._objects.proven(stream, suspects) if suspects else []
