"""Migrations, from the config to the room that does them. Whatever goes wrong is one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from dray.base.build import build_name
from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import ProcessMetrics, quiet_logs
from dray.broker.cluster import ClockGuard, ProcessDescription, TallyKeeper
from dray.broker.cluster.clock_guard import MIGRATOR
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.topics import TopicError, Topics
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.foreign_stores import foreign_addresses
from dray.daemons.assembly.instrumented_stores import measured
from dray.daemons.assembly.parts import clock_guard
from dray.daemons.assembly.process import local_machine
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.stores import Stores, open_stores, read_cluster
from dray.daemons.config import Settings
from dray.daemons.recovery.ownership import hold_writes, owned_bucket
from dray.kafka.client.cluster import Cluster
from dray.log.life.counters import IdCounter
from dray.log.life.lifecycle import Lifecycle
from dray.log.life.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.migration.attach.aiven_tiered import KeyRing
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import Counted, Progress, Question, SourceLayout, take_inventory
from dray.migration.attach.log_dir import read_remote_metadata
from dray.migration.attach.offsets import read_offsets_file
from dray.migration.attach.plan import AttachPlan, make_plan
from dray.migration.attach.reading import SourceReader
from dray.migration.attach.steps import Attacher, AttachOrder
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.segments import ForeignAddress, ForeignSegments
from dray.migration.groups.copies import GroupCopies
from dray.migration.groups.copy import CopyState
from dray.migration.groups.follower import FollowReport
from dray.migration.groups.rounds import GroupRounds, GroupsOfTopic, groups_of, hand_over_without_source
from dray.migration.live.leader_reads import MirrorLimits, MirrorMemory
from dray.migration.live.migration import LiveSettings
from dray.migration.live.moving_topic import Here
from dray.migration.mirror.mirroring import StreamMirror
from dray.migration.record import ENDED, MigrationRecord, MigrationState
from dray.migration.status import MigrationStatus, status_of
from dray.objects import ObjectError
from dray.objects.read_only import open_read_only

T = TypeVar("T")

LARGEST_OFFSETS_FILE: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The source as a user names it."""

    topic: str
    place: str
    """A name of `foreign.stores`, a URL, or a path."""
    layout: SourceLayout
    topic_id: UUID | None = None
    offsets_file: Path | None = None
    remote_metadata: str | None = None
    """A broker's log directory with `__remote_log_metadata`."""
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class SourcePlace:
    name: str  # in the config; empty where it is not there
    address: ForeignAddress
    file: str = ""


def look(settings: Settings, request: SourceRequest, progress: Progress | None = None) -> AttachPlan:
    """The plan of an attach. Only the source is read."""

    async def work(runtime: Runtime) -> AttachPlan:
        place = find_place(settings, request)
        async with open_source(place, runtime) as source:
            return await plan_of(source, place, request, runtime, progress)

    return run(work)


def attach(
    settings: Settings,
    request: SourceRequest,
    config: Mapping[str, str],
    approve: Callable[[AttachPlan], bool],
    progress: Progress | None = None,
) -> MigrationRecord | None:
    """None where the plan was not approved, or has partitions that are refused: `approve` sees it first."""

    async def work(runtime: Runtime) -> MigrationRecord | None:
        place = find_place(settings, request)
        if request.layout.is_borrowed and not place.name:
            raise MigrationRefused(
                f"brokers read it where it lies, and do not know {place.address.url}: add it to "
                "foreign.stores in the config of every broker and compactor, such as "
                f"{{old: {place.address.url!r}}}, and restart them"
            )
        async with opened(settings, runtime) as rooms, open_source(place, runtime) as source:
            finished = await rooms.attacher.finish(request.topic)
            if finished is not None:
                return finished
            plan = await plan_of(source, place, request, runtime, progress)
            if not approve(plan) or plan.refused:
                return None
            order = AttachOrder(plan, place.address.url, place.name, config, KeyRing(place.address.keys))
            return await rooms.attacher.attach(source, order, progress)

    return run(work)


def status(settings: Settings, topic: str | None = None) -> list[MigrationStatus]:
    async def work(runtime: Runtime) -> list[MigrationStatus]:
        async with opened(settings, runtime) as rooms:
            records = await rooms.attacher.migrations.read_all()
            if topic is not None:
                records = {topic: records[topic]} if topic in records else {}
            found = []
            for name, record in sorted(records.items()):
                exists = await rooms.topics.refresh(name)
                same = exists is not None and exists.topic_id == record.topic_id
                stores = None if topic is None else rooms.segments
                found.append(await status_of(rooms.streams, name, record, exists=same, stores=stores))
            return found

    return run(work)


def cluster_id(settings: Settings) -> str:
    """Of the cluster whose stores the config names."""

    async def work(runtime: Runtime) -> str:
        async with opened(settings, runtime) as rooms:
            return rooms.cluster.cluster_id

    return run(work)


def abort(settings: Settings, topic: str) -> MigrationRecord | None:
    async def work(runtime: Runtime) -> MigrationRecord | None:
        async with opened(settings, runtime) as rooms:
            return await rooms.attacher.abort(topic)

    return run(work)


def take_over(
    settings: Settings,
    topic: str,
    approve: Callable[[MigrationStatus], bool],
    *,
    copy: bool,
    progress: Progress | None = None,
) -> int | None:
    """Copy the borrowed segments of a topic into our own store, or adopt them where they lie; how many. None
    where it was not approved. Progress is of bytes where they are copied, else of segments."""

    async def work(runtime: Runtime) -> int | None:
        counted = progress or Counted()
        async with opened(settings, runtime) as rooms:
            record = check_owned(topic, await rooms.attacher.migrations.read(topic), copy=copy)
            exists = await rooms.topics.refresh(topic)
            if exists is None or exists.topic_id != record.topic_id:
                raise MigrationRefused(f"topic {topic} was deleted since: nothing of it is read any more")
            found = await status_of(rooms.streams, topic, record, exists=True)
            if not found.borrowed:
                return 0
            if not approve(found):
                return None
            counted.expect(found.borrowed_bytes if copy else found.borrowed)
            act = rooms.ownership.copy if copy else rooms.ownership.adopt
            return sum([await act(stream, counted.advance) for stream in record.streams])

    return run(work)


def check_owned(topic: str, record: MigrationRecord | None, *, copy: bool) -> MigrationRecord:
    """Raises `MigrationRefused`. A switched topic may be copied at once: the source may go before its last
    group has left. It is not adopted before that, as groups still read it there."""
    if record is None or not (record.state in ENDED or (copy and record.state is MigrationState.SWITCHED)):
        raise MigrationRefused(
            f"topic {topic} is not attached, or not wholly Dray's yet: drayd migrate status {topic}"
        )
    return record


@dataclass(frozen=True, slots=True)
class Rooms:
    stores: Stores
    cluster: ClusterInfo
    streams: StreamStore
    topics: Topics
    ownership: ForeignOwnership
    attacher: Attacher
    mirror: StreamMirror
    segments: ForeignSegments

    @property
    def here(self) -> Here:
        return Here(self.stores.metadata, self.attacher.migrations, self.streams, self.topics, self.mirror)

    def group_rounds(self, name: str, cluster: Cluster, runtime: Runtime, interval: float) -> GroupRounds:
        """Of the source that the config calls so."""
        return GroupRounds(
            name, cluster, self.stores.metadata, runtime, self.streams, self.cluster.domains, interval
        )


@asynccontextmanager
async def opened(
    settings: Settings, runtime: Runtime, metrics: ProcessMetrics | None = None
) -> AsyncIterator[Rooms]:
    """With `metrics`, for a process that goes on: it keeps the tally too, and beats."""
    opened = await open_stores(settings, runtime)
    stores = measured(opened, metrics or ProcessMetrics(), runtime)
    keeper: TallyKeeper | None = None
    clocks: ClockGuard | None = None
    try:
        cluster = await read_cluster(stores)
        keeper = await owned_bucket(stores, cluster, runtime, settings.tally_interval)
        hold_writes(stores, keeper)
        if metrics is not None:
            keeper.start()
            described = ProcessDescription(MIGRATOR, build_name())
            clocks = clock_guard(
                settings, stores.metadata, stores.objects, runtime, local_machine().name, described
            )
            clocks.start()
        rooms = rooms_on(stores, cluster, settings, runtime)
        await rooms.topics.read_all()
        yield rooms
    finally:
        if clocks is not None:
            await clocks.stop()
        if keeper is not None:
            await keeper.stop()
        await stores.close()


def rooms_on(stores: Stores, cluster: ClusterInfo, settings: Settings, runtime: Runtime) -> Rooms:
    knobs = log_settings(settings)
    streams = StreamStore(stores.metadata, cluster.domains, knobs.producer_expiry_ms)
    stream_ids = IdCounter(stores.metadata, runtime, keys.STREAM_COUNTER, 1)
    lifecycle = Lifecycle(streams, stream_ids, runtime)
    topics = Topics(stores.metadata, runtime, _Streams(lifecycle), settings.topics)
    segments = ForeignSegments(stores.objects, runtime, stores.foreign)
    retention = Retention(streams, runtime, knobs)
    ownership = ForeignOwnership(streams, segments, stores.objects, runtime, retention)
    attacher = Attacher(
        metadata=stores.metadata,
        domains=cluster.domains,
        streams=streams,
        lifecycle=lifecycle,
        topics=topics,
        objects=stores.objects,
        ownership=ownership,
        runtime=runtime,
    )
    mirror = StreamMirror(streams, stores.objects, runtime, knobs, segments, retention)
    return Rooms(stores, cluster, streams, topics, ownership, attacher, mirror, segments)


class _Streams:
    """The part of the log that topics need."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.create_streams = lifecycle.create
        self.close_streams = lifecycle.close
        self.sweep_streams = lifecycle.sweep


def live_settings(settings: Settings) -> LiveSettings:
    upstream = settings.upstream
    return LiveSettings(upstream.give_up_time, upstream.straggler_watch, upstream.group_interval)


def mirror_memory(settings: Settings) -> MirrorMemory:
    return MirrorMemory.of(settings.upstream.mirror_bytes, MirrorLimits())


@asynccontextmanager
async def open_source(place: SourcePlace, runtime: Runtime) -> AsyncIterator[SourceReader]:
    address = place.address
    try:
        store = await open_read_only(address.url, address.options, runtime, address.secrets)
    except ValueError as error:
        raise MigrationRefused(str(error)) from error
    try:
        yield SourceReader(store)
    finally:
        with suppress(ObjectError):
            await store.close()


def find_place(settings: Settings, request: SourceRequest) -> SourcePlace:
    known = foreign_addresses(settings)
    if request.place in known:
        return SourcePlace(request.place, known[request.place])
    url, file = _as_url(request.place), ""
    if request.layout is SourceLayout.DRIFTQ:
        url, _, file = url.rpartition("/")
        if not url.partition(":")[2].removeprefix("//"):
            url = f"{url}/"
    for name, address in known.items():
        if _same(address.url) == _same(url):
            return SourcePlace(name, address, file)
    return SourcePlace("", ForeignAddress(url), file)


def _as_url(place: str) -> str:
    """A path is a URL of a file."""
    return place if ":" in place.partition("/")[0] else f"file:{Path(place).absolute()}"


def _same(url: str) -> str:
    return url.replace("file://", "file:").rstrip("/")


async def plan_of(
    source: SourceReader,
    place: SourcePlace,
    request: SourceRequest,
    runtime: Runtime,
    progress: Progress | None,
) -> AttachPlan:
    finished = None
    if request.remote_metadata is not None:
        logs = SourcePlace("", ForeignAddress(_as_url(request.remote_metadata)))
        async with open_source(logs, runtime) as metadata:
            finished = await read_remote_metadata(metadata, request.topic)
    keys_known = KeyRing(place.address.keys)
    question = Question(
        request.topic,
        request.layout,
        request.topic_id,
        finished,
        keys_known,
        place.file,
        partitions=request.partitions,
    )
    offsets = {}
    if request.offsets_file is not None:
        offsets = read_offsets_file(str(request.offsets_file), _text_of(request.offsets_file))
    inventory = await take_inventory(source, question, progress)
    return await make_plan(source, question, inventory, runtime.wall_ms(), offsets)


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_OFFSETS_FILE:
            raise MigrationRefused(f"{path}: more than {LARGEST_OFFSETS_FILE} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MigrationRefused(f"{path}: it cannot be read as text ({error})") from error


def run(work: Callable[[Runtime], Awaitable[T]], refusals: tuple[type[Exception], ...] = ()) -> T:
    """`refusals`: what else is one line for its user, beside what all migrations fail with."""

    one_line: tuple[type[Exception], ...] = (MigrationRefused, LogError, TopicError, *refusals)

    async def whole() -> T:
        runtime = SystemRuntime()
        try:
            return await work(runtime)
        finally:
            runtime.close()

    try:
        with quiet_logs():
            return asyncio.run(whole())
    except one_line as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    except ValueError as error:
        raise Failure(str(error), USAGE) from error


# --- groups of a switched topic whose source is gone for good: nobody can say when they have left it


@dataclass(frozen=True, slots=True)
class HandedOver:
    record: MigrationRecord
    report: FollowReport


def hand_over(settings: Settings, topic: str, approve: Callable[[GroupsOfTopic], bool]) -> HandedOver | None:
    """Without the source. The topic has moved then, unless groups wait for other topics. None where it was
    not approved."""

    async def work(runtime: Runtime) -> HandedOver | None:
        async with opened(settings, runtime) as rooms:
            migrations = rooms.attacher.migrations
            record = await migrations.read(topic)
            if record is None or record.upstream is None:
                raise MigrationRefused(f"topic {topic} is not linked: there are no groups to hand over")
            if record.state is not MigrationState.SWITCHED:
                raise MigrationRefused(
                    f"topic {topic} is {record.state}, and groups are handed over once it is switched: "
                    f"drayd migrate status {topic}"
                )
            domains, metadata = rooms.cluster.domains, rooms.stores.metadata
            copies = GroupCopies(metadata, runtime, domains, record.upstream)
            if not approve(await groups_of(copies, topic)):
                return None
            report = await hand_over_without_source(
                metadata, runtime, rooms.streams, domains, record.upstream
            )
            if not (await groups_of(copies, topic)).states.get(CopyState.FOLLOWED):
                record = await migrations.step(topic, record, _moved)
            return HandedOver(record, report)

    return run(work)


def _moved(current: MigrationRecord) -> MigrationRecord:
    return current if current.state is MigrationState.MOVED else current.to(MigrationState.MOVED)
