"""A topic that moves, as a migrator has it: at its source through Kafka's protocol, here in the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from dray.base.runtime import Runtime, gather_some
from dray.broker.topics import Topics
from dray.broker.topics.errors import TopicError
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.log.stream_store import StreamStore
from dray.metadata.contract import MetadataError, MetadataStore
from dray.migration.groups.rounds import GroupRounds
from dray.migration.live.followed_configs import follow_configs
from dray.migration.live.leader_reads import MirrorLimits, MirrorMemory
from dray.migration.live.link import named
from dray.migration.live.news import News
from dray.migration.live.stragglers import ProducedStragglers, find_stragglers, left_of
from dray.migration.live.switch import Destination, boundaries_of
from dray.migration.live.topic_mirror import MirrorProgress, TopicMirror
from dray.migration.mirror.mirroring import StreamMirror
from dray.migration.mirror.switching import forbid_boundary
from dray.migration.record import (
    ALLOWED,
    ASSIGNING,
    TRANSACTIONS,
    MigrationLost,
    MigrationRecord,
    Migrations,
    MigrationState,
)
from dray.migration.source.fences import (
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
from dray.migration.source.mirror import MirrorReader, WaitingFetches
from dray.migration.source.source import LinkedAs, Probe, SourceTopic, all_of
from dray.migration.source.source_groups import SourceGroups

_log = structlog.get_logger(__name__)

ALLOWS_REST: Final = "allows_rest"
IS_DENIED: Final = "is_denied"
LARGEST_BATCH: Final = "max.message.bytes"
_OPEN_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


class Here(NamedTuple):
    """The parts of Dray that a topic needs to move here."""

    metadata: MetadataStore
    migrations: Migrations
    streams: StreamStore
    topics: Topics
    mirror: StreamMirror


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """The connections to a source, which all its topics share. Reads of mirrors have their own: large answers
    and fetches that wait at the leaders hold up what comes behind them on a connection. So have requests
    about groups."""

    control: Cluster
    reading: Cluster
    waiting: WaitingFetches | None
    """None for one topic that is not mirrored."""
    groups: GroupRounds
    as_brokers: Cluster | None = None
    """By the user with which brokers pass on what clients produce, if that is another one."""

    async def close(self) -> None:
        if self.waiting is not None:
            await self.waiting.close()
        await self.groups.close()
        await self.control.close()
        await self.reading.close()
        if self.as_brokers is not None:
            await self.as_brokers.close()


@dataclass(frozen=True, slots=True)
class EndsLook:
    lags: dict[int, int]
    """Records that the mirror still has to bring, by partition."""
    source_seconds: float
    """The time that it took to ask the source, all leaders side by side."""
    here_seconds: float


@dataclass(frozen=True, slots=True)
class UsersLook:
    """The users of the topic at its source whom a switch would leave behind without a word."""

    writers: Sequence[str] = ()
    """They write transactions to it, which Dray does not take."""
    assigning: Sequence[str] = ()
    """Groups whose consumers assign partitions to themselves: they are Dray's at once, as nothing says
    whether such a consumer still works at the source."""

    def refusal(self, topic: str, allows: Collection[str]) -> str:
        if self.writers and TRANSACTIONS not in allows:
            return (
                f"transactions are written to {topic}, which Dray does not take ({named(self.writers)}): "
                "stop or change such producers (their leader remembers them for a day), or switch it with "
                "--without-transactions"
            )
        if self.assigning and ASSIGNING not in allows:
            return (
                f"consumers of {named(self.assigning)} assign partitions of {topic} to themselves, and what "
                "they commit at the source after the switch is lost: stop them, start them here afterwards, "
                "and say --consumers-stopped"
            )
        return ""


async def look_for_users(cluster: Cluster, source: SourceTopic, partitions: int) -> UsersLook:
    writers = await source.transactional()
    return UsersLook(writers, await SourceGroups(cluster).assigning(source.topic, partitions))


class MovingTopic:
    """The topic at its source and in the log, as one record has it. `is_gone`: the source does not exist any
    more, so that nothing is lifted there."""

    def __init__(
        self,
        topic: str,
        record: MigrationRecord,
        here: Here,
        cluster: SourceCluster,
        runtime: Runtime,
        *,
        memory: MirrorMemory,
        is_gone: bool = False,
    ) -> None:
        linked = LinkedAs(record.source_topic_id, record.partitions)
        self.source = SourceTopic(cluster.control, topic, linked)
        self._topic = topic
        self._record = record
        self._streams = dict(enumerate(record.streams))
        self._here = here
        self._cluster = cluster
        self._runtime = runtime
        self._memory = memory
        self._is_gone = is_gone
        self._mirror: TopicMirror | None = None
        self._news = News(runtime)
        self.read_bytes = 0
        """Of the source, by this process."""
        self.destination = Destination(here.mirror, self._streams, self._hurry)

    @property
    def control(self) -> Cluster:
        """For what is asked of the source outside of its mirror."""
        return self._cluster.control

    async def close(self) -> None:
        for stream in self._streams.values():
            self._here.mirror.forget(stream)

    def _hurry(self) -> None:
        if self._mirror is not None:
            self._mirror.hurry()

    # --- the mirror

    async def mirror(self) -> None:
        """Until it is cancelled, or every partition is decided."""
        limits = MirrorLimits()
        read = SourceTopic(self._cluster.control, self._topic)
        linked = self._record.source_topic_id
        self._mirror = TopicMirror(
            read,
            MirrorReader(
                self._cluster.reading,
                read,
                max_bytes=limits.answer_bytes,
                partition_bytes=limits.partition_bytes,
                checksums=False,
                waiting=self._cluster.waiting,
            ),
            self._here.mirror,
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
        """The partitions whose mirror cannot go on, and why; None while this process does not know it."""
        if self._mirror is None or len(self._mirror.progress) < len(self._streams):
            return None
        return {
            partition: progress.stopped
            for partition, progress in self._mirror.progress.items()
            if progress.stopped is not None
        }

    def try_stopped_again(self) -> bool:
        """Those partitions, while the mirror of the others works on. False where there are none: then it has
        ended, and has to begin anew."""
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
            await self._here.migrations.step(self._topic, self._record, change)
        except (MetadataError, MigrationLost) as error:
            _log.warning("skipped offsets are not noted", topic=self._topic, error=str(error))

    def _was_read(self, size: int) -> None:
        self.read_bytes += size

    async def look(self) -> EndsLook:
        """At all ends, as the source says them now. `learn` first."""
        began = self._runtime.monotonic()
        ends = all_of(await self.source.measure(self._streams))
        heard = self._runtime.monotonic()
        here = await gather_some(map(self.destination.end, ends))
        lags = {
            partition: max(0, end.last_stable - mirrored)
            for (partition, end), mirrored in zip(ends.items(), here, strict=True)
        }
        return EndsLook(lags, heard - began, self._runtime.monotonic() - heard)

    # --- the fence

    async def users(self) -> UsersLook:
        """`learn` first."""
        return await look_for_users(self._cluster.groups.cluster, self.source, len(self._streams))

    async def check_users(self, allows: Collection[str]) -> None:
        """Raises `FenceRefused` where a switch would leave somebody behind of whom it was not said: by
        `diskless.enable` nobody looks before it is asked for, and others come after that."""
        if self._is_gone or set(ALLOWED) <= set(allows):
            return  # there is nobody to look for
        await self.source.learn()
        refusal = (await self.users()).refusal(self._topic, allows)
        if refusal:
            raise FenceRefused(refusal)

    async def before_fence(self, kind: str) -> Mapping[str, str]:
        """The ACLs or configs to put back when the fence is lifted: they cannot be seen once it is up. Raises
        `FenceRefused` where the source refuses us already, so that a fence could not be seen."""
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
                before = await acls_before(self._cluster.control, self._topic)
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
        largest = await largest_batch_setting(self._cluster.control, self._topic)
        return {} if largest is None else {LARGEST_BATCH: largest}

    async def _check_open(self) -> None:
        """The probe says that a leader refuses us: that shows a fence only if it did not refuse us before.
        One that was lifted just now may be seen for a moment longer."""
        await self.source.learn()
        deadline = self._runtime.monotonic() + _OPEN_SECONDS
        while True:
            found = all_of(await self.source.probe(self._streams))
            refused = [partition for partition, (_, probe) in found.items() if probe is not Probe.OPEN]
            if not refused:
                return
            if self._runtime.monotonic() >= deadline:
                raise FenceRefused(
                    f"the source refuses what we write to partition {refused[0]} before there is a fence, so "
                    "that none could be seen: give the migrator's user WRITE on the topic, take away what "
                    "denies it, or stop the producers and use --fence stopped"
                )
            await self._runtime.sleep(_PAUSE_SECONDS)

    def fence(self, kind: str, undo: Mapping[str, str]) -> WriterFence:
        if self._is_gone or kind == "stopped":
            return StoppedFence()
        if kind == "size":
            return SizeFence(self._cluster.control, self._topic, undo.get(LARGEST_BATCH))
        allows_rest = undo.get(ALLOWS_REST) == "true"
        is_denied = undo.get(IS_DENIED) == "true"
        cluster = self._cluster
        return _AclFence(
            cluster.control,
            self._topic,
            self._runtime,
            allows_rest,
            is_denied,
            as_brokers=cluster.as_brokers,
        )

    async def is_fenced(self, kind: str) -> bool:
        """Whether the source has a fence of ours, put up by whichever process."""
        if self._is_gone:
            return False
        if kind == "size":
            return await is_fenced_by_size(self._cluster.control, self._topic)
        try:
            return kind == "acl" and await is_fenced_by_acl(self._cluster.control, self._topic)
        except RequestFailed as failure:
            if failure.code != ErrorCode.SECURITY_DISABLED:
                raise
            return False

    async def forbid(self, partition: int) -> int | None:
        """No decision that was allowed before applies any more. B0 where it was decided already."""
        return await forbid_boundary(self._here.streams, self._runtime, self._streams[partition])

    # --- what goes with the topic

    @property
    def unfollowed_seconds(self) -> float:
        """Since the groups of its source were last followed."""
        return self._cluster.groups.unfollowed_seconds

    async def follow(self, record: MigrationRecord) -> int:
        """Once. How many groups are still the source's. Groups come first: configs that cannot be followed do
        not hold them up."""
        groups = await self._cluster.groups.follow(self._topic)
        if record.state is MigrationState.MIRRORING:
            # Not during a switch: its fence may be a config.
            await self._follow_configs()
        return groups

    async def _follow_configs(self) -> None:
        try:
            await follow_configs(self._cluster.control, self._here.topics, self._topic)
        except TopicError as error:
            if self._news.is_news("configs"):
                _log.warning("configs are not followed", topic=self._topic, reason=str(error))
        else:
            self._news.forget("configs")

    async def stragglers(self, record: MigrationRecord) -> Mapping[int, int]:
        """How many offsets of each partition are at the source behind its boundary; only those with any."""
        boundaries = await boundaries_of(self._here.streams, record)
        found = await find_stragglers(self.source, boundaries)
        metadata = self._here.metadata
        progress = await ProducedStragglers(metadata, self._runtime, self._topic, record.topic_id).read()
        return {partition: each.end - each.start for partition, each in left_of(found, progress).items()}


class _AclFence(AclFence):
    async def lift(self) -> None:
        """If the source has no authorizer, or none any more, there is no ACL to take back."""
        try:
            await super().lift()
        except RequestFailed as failure:
            if failure.code != ErrorCode.SECURITY_DISABLED:
                raise
