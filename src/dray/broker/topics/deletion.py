"""Deleting a topic so that no crash leaves it half deleted, and no stale broker can still append.

The order is the whole point. First the tombstone with the topic's stream ids: from here on the topic
will be deleted, by any process. Then the record goes, by compare-and-set. Then every stream is closed,
so that a broker which still believes in the topic cannot acknowledge a record into it. Only then is the
deletion answered. The sweep comes later: every broker looks at the tombstones now and then, finishes
what a crashed one began, and once a tombstone has been known for a while (on this broker's own clock)
sweeps its streams and removes it.

Any process may repeat any step at any time: stream ids are never used again. Topic ids are: a topic that was
attached or linked has its source's, and has it again when that is done anew. So a record counts as the
tombstone's only if it has one of its streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.topics.errors import TopicsUnavailable
from dray.broker.topics.model import Streams, Tombstone, Topic, decode_tombstone, encode_tombstone
from dray.broker.topics.records import TopicRecords
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    Expectation,
    MetadataError,
    MetadataStore,
    Put,
    Unavailable,
)
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import UnreadableValue

_log = structlog.get_logger(__name__)


class TopicDeletion:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        records: TopicRecords,
        streams: Streams,
        *,
        sweep_interval: float,
        sweep_grace: float,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._records = records
        self._streams = streams
        self._interval = sweep_interval
        self._grace = sweep_grace
        self._first_seen: dict[str, float] = {}
        self._task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self._runtime, "sweep deleted topics", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    # --- deleting

    async def delete(self, topic: Topic) -> None:
        """The topic is gone and its streams are closed when this returns."""
        tombstone = Tombstone(topic.name, topic.topic_id, topic.streams, self._runtime.wall_ms())

        async def attempt() -> Tombstone:
            return await self._finish(await self._bury(tombstone))

        try:  # each step is safe to repeat
            await update(self._runtime, attempt, (*ALL_FAILURES, LogUnavailable))
        except (Unavailable, Ambiguous, LogUnavailable) as error:
            raise TopicsUnavailable(f"Whether topic '{topic.name}' was deleted is not known yet.") from error
        _log.info("topic deleted", topic=topic.name, id=str(topic.topic_id), partitions=len(topic.streams))

    async def _bury(self, tombstone: Tombstone) -> Tombstone:
        """The tombstone as it is stored: also with the streams of an earlier topic of this id that are not
        swept yet."""
        key = keys.deleted_topic(tombstone.topic_id)

        async def attempt() -> Tombstone | None:
            buried = tombstone
            expect: Expectation = ABSENT
            earlier = await self._store.get(keys.CLUSTER_DOMAIN, key)
            if earlier is not None:
                known = decode_tombstone(key, earlier.value)
                more = _not_among(tombstone.streams, known.streams)
                buried = dataclasses.replace(tombstone, streams=tombstone.streams + more)
                expect = earlier.version
            put = Put(key, encode_tombstone(buried), expect)
            [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
            return buried if outcome.applied else None

        return await update(self._runtime, attempt, again_after=())

    async def _finish(self, tombstone: Tombstone) -> Tombstone:
        """Delete the record, then close its streams. The tombstone, given back, may name more streams than
        before."""
        while True:
            found = await self._records.read(tombstone.name, certain=True)
            if found is None or not _is_of(tombstone, found[0]):
                break
            topic, version = found
            added = _not_among(tombstone.streams, topic.streams)
            if added:  # partitions came after the tombstone: it must know their streams first
                tombstone = await self._bury(
                    dataclasses.replace(tombstone, streams=tombstone.streams + added)
                )
            if await self._records.delete(tombstone.name, version):
                break
        await self._streams.close_streams(tombstone.streams)
        return tombstone

    # --- sweeping

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except MetadataError as error:
                _log.warning("deleted topics were not swept", error=str(error))
            await self._runtime.sleep(self._interval)

    async def sweep(self) -> None:
        """Finish deletions that are new to this broker; forget those that have been known long enough."""
        prefix = keys.DELETED_TOPICS
        records = await self._store.scan(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix))
        present = {record.key for record in records}
        self._first_seen = {key: seen for key, seen in self._first_seen.items() if key in present}
        now = self._runtime.monotonic()
        for record in records:
            try:
                tombstone = decode_tombstone(record.key, record.value)
            except UnreadableValue as error:
                _log.error("a deleted topic is not swept", error=str(error))
                continue
            try:
                seen = self._first_seen.get(record.key)
                if seen is None:
                    await self._finish(tombstone)
                    self._first_seen[record.key] = now
                elif now - seen >= self._grace:
                    # Once more: a creation whose reply was lost may have landed after the deletion.
                    tombstone = await self._finish(tombstone)
                    await self._streams.sweep_streams(tombstone.streams)
                    await self._store.write(keys.CLUSTER_DOMAIN, [Delete(record.key, record.version)])
            except (Unavailable, Ambiguous):
                raise  # an error of the store: the others would meet it too
            except Exception as error:
                if not isinstance(error, (LogUnavailable, MetadataError)):
                    self._runtime.background.report("sweep deleted topics", error)
                _log.warning("a deleted topic is not swept yet", topic=tombstone.name, error=str(error))


def _not_among(known: Sequence[int], streams: Sequence[int]) -> tuple[int, ...]:
    found = set(known)
    return tuple(stream for stream in streams if stream not in found)


def _is_of(tombstone: Tombstone, topic: Topic) -> bool:
    """Partitions come, and never go: a topic keeps the streams that it began with."""
    return topic.topic_id == tombstone.topic_id and not set(topic.streams).isdisjoint(tombstone.streams)
