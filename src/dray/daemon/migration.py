"""Migrations, from the config to the room that does them. Whatever goes wrong is one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from dray.cluster.identity import ClusterInfo
from dray.config import Settings
from dray.daemon.failures import USAGE, Failure
from dray.daemon.foreign_stores import foreign_addresses
from dray.daemon.instrumented_stores import measured
from dray.daemon.ownership import owned_bucket
from dray.daemon.settings import log_settings, topics_options
from dray.daemon.stores import Stores, open_stores, read_cluster
from dray.log.counters import IdCounter
from dray.log.foreign_ownership import ForeignOwnership
from dray.log.foreign_segments import ForeignSegments
from dray.log.foreign_stores import ForeignAddress
from dray.log.lifecycle import Lifecycle
from dray.log.mirroring import StreamMirror
from dray.log.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.migration.aiven_tiered import KeyRing
from dray.migration.attach import Attacher, AttachOrder
from dray.migration.found import MigrationRefused
from dray.migration.inventory import Counted, Progress, Question, SourceLayout, take_inventory
from dray.migration.offsets import read_offsets_file
from dray.migration.plan import AttachPlan, make_plan
from dray.migration.reading import SourceReader
from dray.migration.record import ENDED, MigrationRecord, MigrationState
from dray.migration.remote_metadata import read_remote_metadata
from dray.migration.status import MigrationStatus, status_of
from dray.objects import ObjectError
from dray.objects.read_only import open_read_only
from dray.runtime import Runtime, SystemRuntime
from dray.telemetry import ProcessMetrics, quiet_logs
from dray.topics import TopicError, Topics

T = TypeVar("T")

LARGEST_OFFSETS_FILE: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What a user says of the source."""

    topic: str
    place: str
    """A name of `foreign.stores`, a URL, or a path."""
    layout: SourceLayout
    topic_id: UUID | None = None
    offsets_file: Path | None = None
    remote_metadata: str | None = None
    """A broker's log directory with `__remote_log_metadata`."""


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
                found.append(await status_of(rooms.streams, name, record, exists=same))
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
    """Raises `MigrationRefused`. What is switched may be copied at once: the source may go before its last
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


@asynccontextmanager
async def opened(
    settings: Settings, runtime: Runtime, metrics: ProcessMetrics | None = None
) -> AsyncIterator[Rooms]:
    """With `metrics`, the stores are measured."""
    stores = await open_stores(settings, runtime)
    if metrics is not None:
        stores = measured(stores, metrics, runtime)
    try:
        cluster = await read_cluster(stores)
        await owned_bucket(stores, cluster)
        rooms = rooms_on(stores, cluster, settings, runtime)
        await rooms.topics.read_all()
        yield rooms
    finally:
        await stores.close()


def rooms_on(stores: Stores, cluster: ClusterInfo, settings: Settings, runtime: Runtime) -> Rooms:
    knobs = log_settings(settings)
    streams = StreamStore(stores.metadata, cluster.domains, knobs.producer_expiry_ms)
    stream_ids = IdCounter(stores.metadata, runtime, keys.STREAM_COUNTER, 1)
    lifecycle = Lifecycle(streams, stream_ids, runtime)
    topics = Topics(stores.metadata, runtime, _Streams(lifecycle), topics_options(settings))
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
    return Rooms(stores, cluster, streams, topics, ownership, attacher, mirror)


class _Streams:
    """What the topics need of the log."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.create_streams = lifecycle.create
        self.close_streams = lifecycle.close
        self.sweep_streams = lifecycle.sweep


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
    question = Question(request.topic, request.layout, request.topic_id, finished, keys_known, place.file)
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
