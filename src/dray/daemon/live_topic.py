"""A topic that moves, as a migrator has it: at its source through Kafka's protocol, here in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from dray.client.cluster import Cluster
from dray.client.errors import RequestFailed
from dray.config import Settings
from dray.daemon.followed_configs import follow_configs
from dray.daemon.followed_upstreams import FollowedUpstream
from dray.daemon.migration import Rooms
from dray.log.boundary_decision import forbid_boundary
from dray.log.mirroring import MirroredProducer
from dray.metadata.contract import MetadataError
from dray.migration.following import boundaries_of
from dray.migration.live_migration import LiveSettings
from dray.migration.mirror_memory import MirrorLimits, MirrorMemory
from dray.migration.news import News
from dray.migration.record import MigrationLost, MigrationRecord, MigrationState
from dray.migration.stragglers import ProducedStragglers, left_of
from dray.migration.topic_mirror import LogTarget, MirrorProgress, TopicMirror
from dray.protocol import ErrorCode
from dray.runtime import Runtime
from dray.topics.errors import TopicError
from dray.upstream.fences import (
    AclFence,
    FenceRefused,
    SizeFence,
    StoppedFence,
    WriterFence,
    acls_before,
    is_fenced_by_acl,
    is_fenced_by_size,
    largest_batch_setting,
)
from dray.upstream.mirror import MirrorReader
from dray.upstream.source import Probe, SourceProducer, SourceTopic, no_leader
from dray.upstream.stragglers import find_stragglers

_log = structlog.get_logger(__name__)

ALLOWS_REST: Final = "allows_rest"
IS_DENIED: Final = "is_denied"
LARGEST_BATCH: Final = "max.message.bytes"
_OPEN_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


def live_settings(settings: Settings) -> LiveSettings:
    upstream = settings.upstream
    return LiveSettings(upstream.give_up_time, upstream.straggler_watch, upstream.group_interval)


def mirror_memory(settings: Settings) -> MirrorMemory:
    return MirrorMemory.of(settings.upstream.mirror_bytes, MirrorLimits())


class WholeTopic(SourceTopic):
    """The topic that was linked, all of it. One with other partitions, or of another id, is another topic;
    and no partition may be left out of a switch because it has no leader at the moment."""

    def __init__(self, cluster: Cluster, topic: str, record: MigrationRecord) -> None:
        super().__init__(cluster, topic)
        self._record = record

    async def learn(self) -> None:
        before = self.leaderships
        await super().learn()
        try:
            self._check()
        except RequestFailed:
            self.leaderships = before
            raise

    def _check(self) -> None:
        topic, linked = self.topic, self._record.source_topic_id
        if linked is not None and linked.int and self.topic_id != linked:
            raise _another(f"topic {topic} at the source has the id {self.topic_id}, and {linked} was linked")
        count = len(self._cluster.view.partitions(topic))
        if count != self._record.partitions:
            raise _another(
                f"topic {topic} has {count} partitions at the source, and {self._record.partitions} here"
            )
        missing = sorted(set(range(count)) - set(self.leaderships))
        if missing:
            raise no_leader(topic, missing[0])


def _another(what: str) -> RequestFailed:
    return RequestFailed(f"{what}: abort this migration and begin anew", ErrorCode.INVALID_PARTITIONS)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The connections of a topic to its source. The mirror has its own: its fetches wait at the leaders, and
    what comes behind them on a connection waits too."""

    control: Cluster
    reading: Cluster
    groups: FollowedUpstream

    async def close(self) -> None:
        await self.control.close()
        await self.reading.close()


class KafkaTopic:
    """See `LiveTopic`. `is_gone`: the source does not exist any more, so that nothing is lifted there."""

    def __init__(
        self,
        topic: str,
        record: MigrationRecord,
        rooms: Rooms,
        upstream: Upstream,
        runtime: Runtime,
        *,
        memory: MirrorMemory,
        is_gone: bool = False,
    ) -> None:
        self.source = WholeTopic(upstream.control, topic, record)
        self._topic = topic
        self._record = record
        self._streams = dict(enumerate(record.streams))
        self._rooms = rooms
        self._upstream = upstream
        self._runtime = runtime
        self._memory = memory
        self._is_gone = is_gone
        self._mirror: TopicMirror | None = None
        self._news = News(runtime)
        self.read_bytes = 0
        """Of the source, by this process."""
        self.target = LogTarget(rooms.mirror, self._streams, self._hurry)

    @property
    def control(self) -> Cluster:
        """For what is asked of the source outside of its mirror."""
        return self._upstream.control

    async def close(self) -> None:
        for stream in self._streams.values():
            self._rooms.mirror.forget(stream)
        await self._upstream.close()

    def _hurry(self) -> None:
        if self._mirror is not None:
            self._mirror.hurry()

    # --- the mirror

    async def mirror(self) -> None:
        limits = MirrorLimits()
        read = SourceTopic(self._upstream.reading, self._topic)
        linked = self._record.source_topic_id
        self._mirror = TopicMirror(
            read,
            MirrorReader(
                self._upstream.reading,
                read,
                max_bytes=limits.answer_bytes,
                partition_bytes=limits.partition_bytes,
                checksums=False,
            ),
            self._rooms.mirror,
            self._streams,
            self._runtime,
            limits,
            self._memory,
            topic_id=linked if linked is not None and linked.int else None,
            on_read=self._was_read,
            on_skipped=self._note_skipped,
        )
        await self._mirror.run()

    def stopped(self) -> Mapping[int, str] | None:
        if self._mirror is None or len(self._mirror.progress) < len(self._streams):
            return None
        return {
            partition: progress.stopped
            for partition, progress in self._mirror.progress.items()
            if progress.stopped is not None
        }

    def try_stopped_again(self) -> bool:
        return self._mirror is not None and self._mirror.try_stopped_again()

    @property
    def progress(self) -> Mapping[int, MirrorProgress]:
        """By partition, as far as this process knows."""
        return {} if self._mirror is None else self._mirror.progress

    async def _note_skipped(self, partition: int, first: int, below: int) -> None:
        """For `status`. The mirror does not wait for a store that cannot say it now."""

        def change(current: MigrationRecord) -> MigrationRecord:
            return current.with_skipped(partition, first, below)

        try:
            await self._rooms.attacher.migrations.step(self._topic, self._record, change)
        except (MetadataError, MigrationLost) as error:
            _log.warning("skipped offsets are not noted", topic=self._topic, error=str(error))

    def _was_read(self, size: int) -> None:
        self.read_bytes += size

    async def lags(self) -> dict[int, int]:
        """As the source says now. `learn` first."""
        found = {}
        for partition in self._streams:
            end = (await self.source.measure(partition)).last_stable
            found[partition] = max(0, end - await self.target.end(partition))
        return found

    # --- the fence

    async def before_fence(self, kind: str) -> Mapping[str, str]:
        if kind == "stopped":
            return {}
        noted = await (self._acls_before() if kind == "acl" else self._size_before())
        await self._check_open()
        return noted

    async def _acls_before(self) -> dict[str, str]:
        """A fence of ours that was lifted just now may be seen for a moment longer. One that stays is named
        as such, so this is asked before what any denial may answer."""
        deadline = self._runtime.monotonic() + _OPEN_SECONDS
        while True:
            try:
                before = await acls_before(self._upstream.control, self._topic)
                break
            except RequestFailed as failure:
                if failure.code != ErrorCode.SECURITY_DISABLED:
                    raise
                return {ALLOWS_REST: "false"}  # there are no ACLs: the fence's own check says so
            except FenceRefused:
                if self._runtime.monotonic() >= deadline:
                    raise
            await self._runtime.sleep(_PAUSE_SECONDS)
        noted = {ALLOWS_REST: "true" if before.needs_rest else "false"}
        return noted | ({IS_DENIED: "true"} if before.is_denied else {})

    async def _size_before(self) -> dict[str, str]:
        largest = await largest_batch_setting(self._upstream.control, self._topic)
        return {} if largest is None else {LARGEST_BATCH: largest}

    async def _check_open(self) -> None:
        """The probe says that a leader refuses us: that shows a fence only if it did not refuse us before.
        One that was lifted just now may be seen for a moment longer."""
        await self.source.learn()
        deadline = self._runtime.monotonic() + _OPEN_SECONDS
        for partition in self._streams:
            while (await self.source.probe(partition))[1] is not Probe.OPEN:
                if self._runtime.monotonic() >= deadline:
                    raise FenceRefused(
                        f"the source refuses what we write to partition {partition} before there is a fence, "
                        "so that none could be seen: give the migrator's user WRITE on the topic, take away "
                        "what denies it, or stop the producers and use --fence stopped"
                    )
                await self._runtime.sleep(_PAUSE_SECONDS)

    def fence(self, kind: str, undo: Mapping[str, str]) -> WriterFence:
        if self._is_gone or kind == "stopped":
            return StoppedFence()
        if kind == "size":
            return SizeFence(self._upstream.control, self._topic, undo.get(LARGEST_BATCH))
        allows_rest = undo.get(ALLOWS_REST) == "true"
        is_denied = undo.get(IS_DENIED) == "true"
        return _AclFence(self._upstream.control, self._topic, self._runtime, allows_rest, is_denied)

    async def is_fenced(self, kind: str) -> bool:
        if self._is_gone:
            return False
        if kind == "size":
            return await is_fenced_by_size(self._upstream.control, self._topic)
        try:
            return kind == "acl" and await is_fenced_by_acl(self._upstream.control, self._topic)
        except RequestFailed as failure:
            if failure.code != ErrorCode.SECURITY_DISABLED:
                raise
            return False

    async def decide(
        self,
        partition: int,
        boundary: int,
        taken_over: Collection[SourceProducer],
        is_allowed: Callable[[], Awaitable[bool]],
    ) -> bool:
        producers = [MirroredProducer(*each) for each in taken_over]
        return await self._rooms.mirror.decide(self._streams[partition], boundary, is_allowed, producers)

    async def forbid(self, partition: int) -> int | None:
        return await forbid_boundary(self._rooms.streams, self._runtime, self._streams[partition])

    # --- what goes with the topic

    @property
    def unfollowed_seconds(self) -> float:
        """Since the groups of its source were last followed."""
        return self._upstream.groups.unfollowed_seconds

    async def follow(self, record: MigrationRecord) -> int:
        """Groups come first: configs that cannot be followed do not hold them up."""
        groups = await self._upstream.groups.follow(self._topic)
        if record.state is MigrationState.MIRRORING:
            # Not during a switch: its fence may be a config.
            await self._follow_configs()
        return groups

    async def _follow_configs(self) -> None:
        try:
            await follow_configs(self._upstream.control, self._rooms.topics, self._topic)
        except TopicError as error:
            if self._news.is_news("configs"):
                _log.warning("configs are not followed", topic=self._topic, reason=str(error))
        else:
            self._news.forget("configs")

    async def stragglers(self, record: MigrationRecord) -> Mapping[int, int]:
        boundaries = await boundaries_of(self._rooms.streams, record)
        found = await find_stragglers(self.source, boundaries)
        metadata = self._rooms.stores.metadata
        progress = await ProducedStragglers(metadata, self._runtime, self._topic, record.topic_id).read()
        return {partition: each.end - each.start for partition, each in left_of(found, progress).items()}


class _AclFence(AclFence):
    async def lift(self) -> None:
        """Where the source has no authorizer, or none any more, there is no ACL to take back."""
        try:
            await super().lift()
        except RequestFailed as failure:
            if failure.code != ErrorCode.SECURITY_DISABLED:
                raise
