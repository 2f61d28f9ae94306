"""The losses of a cluster, for `drayd admin lost`: found, given up, or brought back. A fault is one line."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog

from dray.base.runtime import Runtime, SystemRuntime, gather_some
from dray.base.telemetry import quiet_logs
from dray.broker.cluster.bucket_owner import BucketGuard
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.topics.live import LiveTopics, StoredTopics
from dray.broker.topics.model import Topic
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.store_settings import object_secrets
from dray.daemons.assembly.stores import Stores, open_stores, read_cluster
from dray.daemons.compactor.catalogs import make_tables
from dray.daemons.config import Settings
from dray.daemons.recovery.brought_back import read_footer, read_notes
from dray.daemons.recovery.ownership import owned_bucket
from dray.kafka.records.arrow import schema
from dray.log.entries import EntryKind
from dray.log.jobs.machine import Job
from dray.log.jobs.values import WrittenFile
from dray.log.life.lost_objects import Entries, LostEntry, LostObjects, StreamPlace, gap_file
from dray.log.life.retention import Retention
from dray.log.parquet.reader import ParquetCorrupt
from dray.log.parquet.writer import FileWriter
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.migration.entries.segments import ForeignSegments
from dray.objects.contract import ObjectError, ObjectInfo, ObjectMissing, RangeOutside
from dray.tables.compaction.paths import PREFIX, file_path, parse_file_path, topic_prefix, unit_prefix
from dray.tables.compaction.upkeep.lost_files import LostFiles
from dray.tables.contract import TablesError
from dray.tables.iceberg.aws import INSTALL

if TYPE_CHECKING:
    import pyarrow

    from dray.objects.remote.versions import Versions
    from dray.tables.iceberg.tables import IcebergTables

_log = structlog.get_logger(__name__)

_ROWS_AT_ONCE = 10_000
_NO_VERSION: Final = "no version is left"
_KINDS = {
    EntryKind.WAL: "WAL object",
    EntryKind.PARQUET: "file",
    EntryKind.OUTSIDE: "foreign segment",
}


class WayOut(Enum):
    LOOK = "look"
    GIVE_UP = "give up"
    RECOVER = "recover"
    UNDELETE = "undelete"


_UNDELETED_OTHERWISE: Final[Mapping[str, str]] = {
    "az": "where the account keeps deleted blobs: az storage blob undelete --container-name {bucket} "
    "--name {folder}PATH",
    "gs": "where the bucket keeps deleted objects: gcloud storage restore gs://{bucket}/{folder}PATH",
    "file": "compacted files come back by their second names on local disks: put others back from a copy",
    "memory": "what is in memory has no versions",
}
"""By the scheme of a store's URL."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """One object that is gone, and what it held of a partition."""

    topic: str
    partition: int
    first: int
    last: int
    kind: str
    path: str
    state: str


@dataclass(frozen=True)
class _Opened:
    runtime: Runtime
    stores: Stores
    streams: StreamStore
    objects: LostObjects
    settings: Settings
    cluster_id: str

    @property
    def retention(self) -> Retention:
        """With it come the settings of a broker: a look is not to load them."""
        from dray.daemons.assembly.settings import log_settings

        return Retention(self.streams, self.runtime, log_settings(self.settings))


def lost(settings: Settings, topic: str | None, way: WayOut, *, confirmed: bool) -> list[LostRange]:
    """Without `confirmed`, only look."""
    if way is WayOut.UNDELETE:
        _must_undelete(settings.objects_url)
    with quiet_logs():
        return asyncio.run(_lost(settings, topic, way, confirmed=confirmed))


@asynccontextmanager
async def _open(settings: Settings) -> AsyncIterator[_Opened]:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        keeper = await owned_bucket(stores, cluster, runtime, settings.tally_interval)
        streams = StreamStore(stores.metadata, cluster.domains, settings.log.producer_expiry_ms)
        segments = ForeignSegments(stores.objects, runtime, stores.foreign)
        objects = LostObjects(streams, segments.objects_of, keeper.owner, runtime)
        yield _Opened(runtime, stores, streams, objects, settings, cluster.cluster_id)
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    except LogError as error:
        raise Failure(str(error)) from error
    finally:
        await stores.close()
        runtime.close()


async def _lost(settings: Settings, name: str | None, way: WayOut, *, confirmed: bool) -> list[LostRange]:
    async with _open(settings) as opened:
        topics = (await StoredTopics(opened.stores.metadata, settings.topics.defaults).live()).known
        if name is not None:
            topics = [topic for topic in topics if topic.name == name]
            if not topics:
                raise Failure(f"there is no topic {name}")
        found: list[LostRange] = []
        deleted: list[tuple[Topic, int, LostEntry]] = []
        for topic in sorted(topics, key=lambda each: each.name):
            for partition, stream in enumerate(topic.streams):
                entries = await opened.objects.of(stream)
                state = "gone"
                if entries and confirmed and way is WayOut.GIVE_UP:
                    await _give_up(opened, topic, partition, entries)
                    state = "given up"
                if entries and way is WayOut.RECOVER:
                    found += await _recover(settings, opened, topic, partition, entries, confirmed)
                elif way is WayOut.UNDELETE:
                    deleted += [(topic, partition, entry) for entry in entries]
                else:
                    found += [_range(topic, partition, entry, state) for entry in entries]
        states = await _undelete(settings, opened, [entry for *_, entry in deleted], confirmed)
        return found + [_range(*place, states[place[-1].path]) for place in deleted]


@dataclass(frozen=True)
class _FixedTopics:
    topics: Sequence[Topic]

    async def live(self) -> LiveTopics:
        return LiveTopics(list(self.topics))


async def lost_files(
    stores: Stores, cluster: ClusterInfo, settings: Settings, topics: Sequence[Topic]
) -> dict[str, str]:
    """By topic, what to say of those whose compacted files are not all in the bucket."""
    runtime = SystemRuntime()
    try:
        guard = BucketGuard(stores.objects, cluster.cluster_id)
        streams = StreamStore(stores.metadata, cluster.domains, settings.log.producer_expiry_ms)
        objects = LostObjects(
            streams, ForeignSegments(stores.objects, runtime, stores.foreign).objects_of, guard, runtime
        )
        folder = PREFIX if len(topics) != 1 else topic_prefix(topics[0].name, topics[0].topic_id)
        listed = {info.path async for info in stores.objects.list(folder)}
        found = await LostFiles(streams, objects, _FixedTopics(topics), runtime.background).find(listed, ())
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    finally:
        runtime.close()
    counts = Counter(part.topic for part in found)
    return {
        topic: f"files of the log are gone ({count}): drayd admin lost {topic} says what can be done"
        for topic, count in counts.items()
    }


async def _give_up(opened: _Opened, topic: Topic, partition: int, entries: list[LostEntry]) -> None:
    """Only what was proven just now."""
    place = StreamPlace(topic.name, topic.topic_id, partition, topic.streams[partition])

    async def write(job: Job, _: Entries) -> WrittenFile:
        return await gap_file(opened.runtime, place.stream, job)

    wanted = {entry.object_id for entry in entries}
    await opened.objects.replace(place, wanted, write, opened.retention)


async def _recover(
    settings: Settings,
    opened: _Opened,
    topic: Topic,
    partition: int,
    entries: list[LostEntry],
    confirmed: bool,
) -> list[LostRange]:
    """Bring back what compacted files of the bucket or the table still have of them, one object at a time:
    its rows are held in memory."""
    place = StreamPlace(topic.name, topic.topic_id, partition, topic.streams[partition])
    files = await _files_of(opened, place) if entries else []
    tables: IcebergTables | None = None
    found: list[LostRange] = []
    try:
        for entry in entries:
            where, rows = "files of the bucket", await _rows_in_files(opened, files, entry)
            if rows is None and settings.iceberg.enabled:
                tables = tables or make_tables(settings, opened.cluster_id, opened.runtime)
                where, rows = "the table", await tables.rows(topic.name, partition, entry.start, entry.end)
            there = 0 if rows is None else rows.num_rows
            state = f"{there} of {entry.records} rows are in {where}"
            if rows is not None and there and confirmed:

                async def write(job: Job, _: Entries, rows: pyarrow.Table = rows) -> WrittenFile:
                    return await _write_rows(opened, place, job, rows)

                await opened.objects.replace(place, {entry.object_id}, write, opened.retention)
                state = f"{there} of {entry.records} rows are back"
            found.append(_range(topic, partition, entry, state))
    except TablesError as error:
        raise Failure(str(error)) from error
    finally:
        if tables is not None:
            await tables.close()
    return found


async def _files_of(opened: _Opened, place: StreamPlace) -> list[tuple[int, ObjectInfo]]:
    """The compacted files of a partition in the bucket, the one of the highest job first. Files that a
    restore gave up have other records at these offsets."""
    given_up = {path for note in await read_notes(opened.stores.objects) for path in note.given_up}
    folder = unit_prefix(place.topic, place.topic_id, place.partition, place.stream)
    found = [
        (parsed.job, info)
        async for info in opened.stores.objects.list(f"{folder}/")
        if (parsed := parse_file_path(info.path)) is not None
        and info.path.endswith(".parquet")
        and info.path not in given_up
    ]
    return sorted(found, key=lambda each: each[0], reverse=True)


async def _rows_in_files(
    opened: _Opened, files: Sequence[tuple[int, ObjectInfo]], entry: LostEntry
) -> pyarrow.Table | None:
    """All rows of the range, from one file; None where none has them all. Metadata that was restored names
    objects that were compacted since, and deleted: the file that was made of them has their records."""
    import pyarrow
    import pyarrow.compute

    for _, info in files:
        try:
            footer = await read_footer(opened.stores.objects, info.path, info.size)
            groups = [
                (number, group)
                for number, group in enumerate(footer.row_groups())
                if group.last_offset >= entry.start and group.first_offset < entry.end
            ]
            if sum(group.record_count for _, group in groups) < entry.records:
                continue
            batches = []
            for number, group in groups:
                [data] = await opened.stores.objects.get_ranges(info.path, [(group.position, group.length)])
                part = group.position, data, group.first_offset, group.record_count, group.last_offset
                batches.append(await opened.runtime.in_thread(footer.read_group, number, *part))
        except (ParquetCorrupt, ObjectMissing, RangeOutside) as error:
            _log.warning("a file is not looked at", path=info.path, error=str(error))
            continue
        rows = pyarrow.Table.from_batches(batches)
        offset = pyarrow.compute.field("offset")
        rows = rows.filter((offset >= entry.start) & (offset < entry.end))
        if rows.num_rows == entry.records:
            return rows
    return None


def _must_undelete(url: str) -> None:
    parsed = urlsplit(url)
    if parsed.scheme in _UNDELETED_OTHERWISE:
        folder = f"{parsed.path.strip('/')}/".lstrip("/")
        way = _UNDELETED_OTHERWISE[parsed.scheme].format(bucket=parsed.netloc, folder=folder)
        raise Failure(f"--undelete: it is for S3 alone; {way}", USAGE)
    if find_spec("boto3") is None:
        raise Failure(f"--undelete: it needs the Python package boto3; install it with: {INSTALL}")


async def _undelete(
    settings: Settings, opened: _Opened, entries: Sequence[LostEntry], confirmed: bool
) -> dict[str, str]:
    """By path, what became of it. One object may be that of many entries."""
    if not entries:
        return {}
    from dray.objects.remote.store import keeps_no_versions
    from dray.objects.remote.versions import AT_ONCE, Versions

    states = {entry.path: "of another system: put it back there" for entry in entries}
    own: dict[str, list[LostEntry]] = {}
    for entry in entries:
        if entry.kind is not EntryKind.OUTSIDE:
            own.setdefault(entry.path, []).append(entry)
    versions = Versions(
        settings.objects_url, settings.objects.options, object_secrets(settings), opened.runtime
    )
    work = (_bring_back(opened, versions, path, own[path], confirmed) for path in own)
    came = dict(zip(own, await gather_some(work, AT_ONCE), strict=True))
    if keeps_no_versions(opened.stores.objects) and set(came.values()) == {_NO_VERSION}:
        raise Failure("the bucket keeps no versions: put the objects back from a copy, or try --recover")
    return states | came


async def _bring_back(
    opened: _Opened, versions: Versions, path: str, entries: Sequence[LostEntry], confirmed: bool
) -> str:
    kept = await versions.kept(path)
    if kept is None:
        return _NO_VERSION
    if not all(entry.may_have(kept.size) for entry in entries):
        return f"its newest version has {kept.size} bytes: another object"
    if not confirmed:
        return f"a version of {kept.size} bytes is there"
    await versions.uncover(path, kept)
    try:
        return "back" if (await opened.stores.objects.head(path)).size == kept.size else "still gone"
    except ObjectMissing:
        return "still gone"


async def _write_rows(opened: _Opened, place: StreamPlace, job: Job, rows: pyarrow.Table) -> WrittenFile:
    """A file of these rows, for the job that puts it in the place of what was lost."""
    writer, parts = FileWriter(), []
    columns = rows.select(schema().names).cast(schema()).combine_chunks()
    for batch in columns.to_batches(max_chunksize=_ROWS_AT_ONCE):
        parts += writer.add(batch)
    last, counted_rows = writer.finish()
    file_id = opened.runtime.uuid()
    path = file_path(
        unit_prefix(place.topic, place.topic_id, place.partition, place.stream), job.number, file_id
    )
    await opened.stores.objects.put(path, [*parts, *last])
    compaction = job.compacted
    return WrittenFile.of(
        counted_rows,
        stream=place.stream,
        job=job.number,
        path=path,
        parquet_id=file_id,
        start=compaction.start,
        end=compaction.end,
    )


def _range(topic: Topic, partition: int, entry: LostEntry, state: str) -> LostRange:
    return LostRange(topic.name, partition, entry.start, entry.end - 1, _KINDS[entry.kind], entry.path, state)
