"""The topics of the cluster: created, changed, deleted, and known.

Streams are made before a topic names them, so an append never meets an absent one. Names, partitions,
streams and config of a topic are one value (`model`), changed by compare-and-set (`records`); deleting
has its own order (`deletion`); the hot path reads what is known here without waiting (`cache`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import Runtime, run_once
from dray.broker.settings import TopicsOptions
from dray.broker.topics.alterations import (
    Alteration,
    alter_configs,
    check_assignments,
    count_assigned,
    replace_configs,
)
from dray.broker.topics.cache import TopicCache
from dray.broker.topics.configs import check_configs
from dray.broker.topics.deletion import TopicDeletion
from dray.broker.topics.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    InvalidTopicRequest,
    TopicError,
    TopicExists,
    TopicsUnavailable,
    TopicUnreadable,
    UnknownTopic,
    UnknownTopicId,
)
from dray.broker.topics.model import Streams, Topic, TopicSettings
from dray.broker.topics.names import check_name, check_not_internal, unified
from dray.broker.topics.records import TopicRecords, Undecided
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.metadata.values import UnreadableValue
from dray.metadata.watching import Follower

_log = structlog.get_logger(__name__)


REREAD_A_SECOND: Final = 400
"""Topics: a thousandth of a core."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be. Replicas are object storage's business: how many are asked for is checked, remembered
    and shown to tools again, and nothing else follows from it."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()  # (partition, brokers)
    config: Mapping[str, str | None] = field(default_factory=dict)


class Topics:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        streams: Streams,
        options: TopicsOptions,
    ) -> None:
        self.options = options
        check_configs(self.options.defaults)
        self._runtime = runtime
        self._streams = streams
        self._records = TopicRecords(store, runtime, self.options.defaults)
        self._cache = TopicCache(store, runtime, self.options.defaults, self.options.unknown_id_pause)
        self._deletion = TopicDeletion(
            store,
            runtime,
            self._records,
            streams,
            sweep_interval=self.options.sweep_interval,
            sweep_grace=self.options.sweep_grace,
        )
        self._follower = Follower(
            store,
            runtime,
            keys.CLUSTER_DOMAIN,
            keys.TOPICS,
            read_all=self._cache.refresh_all,
            read_key=self._cache.refresh_key,
            interval=self.options.reread_interval,
            reread=self._reread,
        )
        self._unread = 0.0  # the time since all topics were read
        self._creating: dict[str, str] = {}  # unified name -> the name being created
        self._ensuring: dict[str, asyncio.Task[Topic | TopicError]] = {}
        # On the hot path: what is known now, with no call in between.
        self.cached: Callable[[str], Topic | None] = self._cache.by_name.get
        self.cached_by_id: Callable[[UUID], Topic | None] = self._cache.by_id.get

    async def start(self) -> None:
        await self._cache.refresh_all()
        self._follower.start()
        self._deletion.start()

    async def _reread(self) -> None:
        """The watch tells what changes, and that it was interrupted. In case it does not, all is read now and
        then: the more topics there are, the more seldom."""
        self._unread += self.options.reread_interval
        if self._unread * REREAD_A_SECOND >= len(self._cache.by_name):
            await self._cache.refresh_all()
            self._unread = 0.0

    async def stop(self) -> None:
        await self._follower.stop()
        await self._deletion.stop()

    # --- reading

    async def get(self, name: str) -> Topic | None:
        """The cached topic, else the one in the store."""
        return self.cached(name) or await self.refresh(name)

    async def get_by_id(self, topic_id: UUID) -> Topic | None:
        return self.cached_by_id(topic_id) or await self.refresh_by_id(topic_id)

    async def refresh(self, name: str, *, barrier: bool = False) -> Topic | None:
        """The topic as the store has it now; behind a `barrier`, with every write acknowledged by now. Raises
        `TopicsUnavailable`, and `TopicUnreadable` of a topic that is there and cannot be read: None says that
        there is none."""
        try:
            return await self._cache.refresh(name, barrier=barrier)
        except MetadataError as error:
            raise _unavailable(error) from error

    async def refresh_by_id(self, topic_id: UUID) -> Topic | None:
        try:
            return await self._cache.refresh_id(topic_id)
        except MetadataError as error:
            raise _unavailable(error) from error

    @property
    def changes(self) -> int:
        """A number that changes whenever a topic comes, goes or is altered, as far as is known. Followers
        compare it, and look at the topics only when it has changed."""
        return self._cache.changes

    def all_cached(self) -> list[Topic]:
        """Every known topic, by name."""
        return sorted(self._cache.by_name.values(), key=lambda topic: topic.name)

    def unreadable(self) -> dict[str, str]:
        """The topics that are there and cannot be read, as far as is known: why, by name."""
        return self._cache.unreadable

    async def read_all(self) -> list[Topic]:
        try:
            await self._cache.refresh_all()
        except MetadataError as error:
            raise TopicsUnavailable(str(error)) from error
        return self.all_cached()

    async def sweep_deleted(self) -> None:
        """One round of the sweep that also runs by itself."""
        await self._deletion.sweep()

    # --- creating

    async def create(
        self, new: NewTopic, *, known_brokers: Collection[int] | None = None, validate_only: bool = False
    ) -> Topic:
        """`known_brokers` are those that an assignment may name; None lets it name any."""
        check_name(new.name)
        check_not_internal(new.name)
        if (other := self._cache.colliding(new.name)) is not None:
            raise InvalidTopicName(f"Topic '{new.name}' collides with existing topic: {other}")
        # Another broker may have deleted it a moment ago: only a read behind a barrier shows that it exists.
        if await self._exists(new.name) and await self._exists(new.name, barrier=True):
            raise TopicExists(new.name)
        config = replace_configs(new.config)
        count = self._count_partitions(new, known_brokers)
        topic = dataclasses.replace(
            self._topic(new.name, self._runtime.uuid(), (), config),
            replication_factor=_asked_replicas(new),
        )
        if validate_only:
            return dataclasses.replace(topic, streams=(0,) * count)
        if (other := self._creating.setdefault(unified(new.name), new.name)) != new.name:
            raise InvalidTopicName(f"Topic '{new.name}' collides with existing topic: {other}")
        try:
            return await self._create(topic, count)
        finally:
            self._creating.pop(unified(new.name), None)

    def check_attach(self, name: str, topic_id: UUID, partitions: int) -> None:
        """Raises `TopicError` where such a topic could not be attached, as far as is known."""
        check_name(name)
        check_not_internal(name)
        if (other := self._cache.colliding(name)) is not None:
            raise InvalidTopicName(f"Topic '{name}' collides with existing topic: {other}")
        self._check_limit(partitions)
        if (same := self.cached_by_id(topic_id)) is not None and same.name != name:
            raise InvalidTopicRequest(f"Topic '{same.name}' has the id {topic_id} already.")

    async def attach(
        self,
        name: str,
        topic_id: UUID,
        streams: Sequence[int],
        config: Mapping[str, str | None],
        leader_epoch: int,
    ) -> Topic:
        """A topic that began elsewhere, over streams that are laid down: from now on they are seen. It keeps
        the id that its clients know. May be called again."""
        self.check_attach(name, topic_id, len(streams))
        topic = dataclasses.replace(
            self._topic(name, topic_id, tuple(streams), replace_configs(config)), leader_epoch=leader_epoch
        )
        try:
            version = await self._records.create(topic)
        except TopicExists:
            found = await self._certain(name)
            if found is None or (found.topic_id, found.streams) != (topic_id, topic.streams):
                raise
            return found
        self._cache.wrote(topic, version)
        return topic

    async def _exists(self, name: str, *, barrier: bool = False) -> bool:
        try:
            return await self.refresh(name, barrier=barrier) is not None
        except TopicUnreadable:
            return True

    async def ensure(self, name: str) -> Topic:
        """The topic, created with the broker's defaults if need be; callers at the same time share one."""
        if (topic := self.cached(name)) is not None:
            return topic
        task = self._ensuring.get(name)
        if task is None:
            task = self._ensuring[name] = self._runtime.spawn(self._ensure(name), f"create topic {name}")
            task.add_done_callback(lambda _: self._ensuring.pop(name, None))
        ensured = await asyncio.shield(task)
        if isinstance(ensured, TopicError):
            raise ensured
        return ensured

    async def _ensure(self, name: str) -> Topic | TopicError:
        """A refusal is returned, not raised: it is the answer to all callers that share this task."""
        try:
            return await self.create(NewTopic(name))
        except TopicExists:
            try:
                return await self.refresh(name) or UnknownTopic(name)
            except TopicError as error:
                return error
        except TopicError as error:
            return error

    async def _create(self, topic: Topic, count: int) -> Topic:
        streams = await self._make_streams(count)
        topic = dataclasses.replace(topic, streams=tuple(streams))
        try:
            version = await self._records.create(topic)
        except Undecided:
            raise
        except UnreadableValue as error:
            raise TopicsUnavailable(str(error)) from error
        except TopicError:
            self._discard(streams)
            raise
        self._cache.wrote(topic, version)
        return topic

    def _count_partitions(self, new: NewTopic, known_brokers: Collection[int] | None) -> int:
        if new.assignments:
            _check_only_assigned(new)
            count = count_assigned(new.assignments, known_brokers)
        elif new.replication_factor == 0 or new.replication_factor < -1:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        elif new.partitions == 0 or new.partitions < -1:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        else:
            count = self.options.partitions if new.partitions == -1 else new.partitions
        self._check_limit(count)
        return count

    def _check_limit(self, count: int) -> None:
        if count > self.options.max_partitions:
            raise InvalidPartitions(
                f"{count} partitions are more than the {self.options.max_partitions} a topic may have here."
            )

    # --- changing

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        known_brokers: Collection[int] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Bring the topic to `count` partitions; those it has keep their streams."""
        topic = await self._existing(name)
        _check_increase(topic, count)
        self._check_limit(count)
        additional = count - len(topic.streams)
        if assignments is not None:
            if len(assignments) != additional:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {additional} additional partition(s), but {len(assignments)} "
                    "assignment(s) were specified."
                )
            check_assignments(assignments, known_brokers)
        if validate_only:
            return topic
        fresh = tuple(await self._make_streams(additional))

        def add(current: Topic | None) -> Topic:
            if current is None or current.topic_id != topic.topic_id:
                raise UnknownTopic(name)
            if fresh[0] in current.streams:
                return current  # our own write, whose reply was lost
            _check_increase(current, count)
            needed = count - len(current.streams)
            return dataclasses.replace(current, streams=current.streams + fresh[:needed])

        try:
            changed = await self._change(name, add)
        except Undecided:
            raise
        except TopicError:
            self._discard(fresh)
            raise
        self._discard([stream for stream in fresh if stream not in set(changed.streams)])
        return changed

    async def show_replicas(self, name: str, count: int) -> Topic:
        """So many replicas are shown from now on; no record is anywhere else for it."""

        def change(current: Topic | None) -> Topic:
            if current is None:
                raise UnknownTopic(name)
            return dataclasses.replace(current, replication_factor=count)

        return await self._change(name, change)

    async def replace_config(
        self, name: str, config: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Topic:
        """The topic's overrides become exactly these."""
        return await self._configure(name, lambda _: replace_configs(config), validate_only)

    async def alter_config(
        self, name: str, alterations: Sequence[Alteration], *, validate_only: bool = False
    ) -> Topic:
        def altered(config: Mapping[str, str]) -> dict[str, str]:
            return alter_configs(config, alterations, self.options.defaults)

        return await self._configure(name, altered, validate_only)

    async def _configure(
        self, name: str, configure: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> Topic:
        """As in Kafka, invalid configs are refused before the topic is looked for."""

        def change(current: Topic | None) -> Topic:
            config = configure({} if current is None else current.config)
            if current is None:
                raise UnknownTopic(name)
            settings = TopicSettings.of(config, self.options.defaults)
            return dataclasses.replace(current, config=config, settings=settings)

        check_name(name)
        if validate_only:
            return change(await self._certain(name))
        return await self._change(name, change)

    async def _change(self, name: str, change: Callable[[Topic | None], Topic]) -> Topic:
        try:
            topic, version = await self._records.change(name, change)
        except UnreadableValue as error:
            raise TopicUnreadable(str(error)) from error
        self._cache.wrote(topic, version)
        return topic

    # --- deleting

    async def delete(self, name: str) -> Topic:
        topic = await self._existing(name)
        await self._delete(topic)
        return topic

    async def delete_by_id(self, topic_id: UUID) -> Topic:
        known = await self.get_by_id(topic_id)
        if known is None:
            raise UnknownTopicId(topic_id)
        try:
            current = await self._existing(known.name)
        except UnknownTopic:
            raise UnknownTopicId(topic_id) from None
        if current.topic_id != topic_id:
            raise UnknownTopicId(topic_id)
        await self._delete(current)
        return current

    async def _delete(self, topic: Topic) -> None:
        try:
            await self._deletion.delete(topic)
        except UnreadableValue as error:
            raise TopicsUnavailable(str(error)) from error  # decided: a newer build finishes it
        finally:
            # Whether or not it was deleted: from here on, only the store knows.
            self._cache.deleted(topic.name)

    # --- parts

    async def _existing(self, name: str) -> Topic:
        """The topic as every acknowledged write left it. Raises `UnknownTopic`."""
        topic = await self._certain(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    async def _certain(self, name: str) -> Topic | None:
        try:
            found = await self._records.read(name, certain=True)
        except MetadataError as error:
            raise _unavailable(error) from error
        if found is None:
            self._cache.deleted(name)
            return None
        return found[0]

    def _topic(self, name: str, topic_id: UUID, streams: tuple[int, ...], config: Mapping[str, str]) -> Topic:
        settings = TopicSettings.of(config, self.options.defaults)
        return Topic(name, topic_id, streams, config, self._runtime.wall_ms(), settings)

    async def _make_streams(self, count: int) -> list[int]:
        try:
            return await self._streams.create_streams(count)
        except (LogUnavailable, MetadataError) as error:
            raise TopicsUnavailable(f"No streams could be made: {error}") from error

    def _discard(self, streams: Sequence[int]) -> None:
        """Delete streams that no topic names. They would do no harm; this only tidies up."""
        if streams:
            run_once(self._runtime, "sweep unused streams", self._sweep_unused, streams)

    async def _sweep_unused(self, streams: Sequence[int]) -> None:
        try:
            await self._streams.close_streams(streams)
            await self._streams.sweep_streams(streams)
        except (LogUnavailable, MetadataError) as error:
            _log.warning("unused streams are left behind", streams=len(streams), error=str(error))


def _unavailable(error: MetadataError) -> TopicsUnavailable:
    kind = TopicUnreadable if isinstance(error, UnreadableValue) else TopicsUnavailable
    return kind(str(error))


def _check_only_assigned(new: NewTopic) -> None:
    if new.replication_factor != -1:
        raise InvalidTopicRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if new.partitions != -1:
        raise InvalidTopicRequest(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )


def _asked_replicas(new: NewTopic) -> int | None:
    if new.assignments:
        return len(new.assignments[0][1])
    return None if new.replication_factor == -1 else new.replication_factor


def _check_increase(topic: Topic, count: int) -> None:
    current = len(topic.streams)
    if count == current:
        raise InvalidPartitions(f"Topic already has {current} partition(s).")
    if count < current:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {current} partition(s); {count} would not be an increase."
        )
