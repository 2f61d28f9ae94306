"""`drayd restore`: an empty metadata store gets a backup, or the one that is there is said to be the cluster.

Nothing is changed by a look. Its answer is made on a copy in memory, where a backup is to be loaded. To
execute, no broker may run on the metadata store, and nobody may raise the tally of the bucket: where
somebody does, a living cluster is there, which the restore would lock out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.base.runtime import Runtime
from dray.base.telemetry import quiet_logs
from dray.broker.cluster.bucket_owner import read_owner
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.cluster.tally import QUIET_INTERVALS, Mark
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.stores import Stores, decode_readable
from dray.daemons.config import Settings
from dray.daemons.recovery.backups import backups_in, opened_for_command, time_of_backup
from dray.daemons.recovery.brought_back import read_notes
from dray.daemons.recovery.restored import (
    LostOffsets,
    NewerTopics,
    bring_all_back,
    find_lost,
    later_restore,
    newest_mark,
    plan_bringing_back,
    put_right,
    raise_tally,
    read_topics,
)
from dray.log.jobs.values import Input, Job, with_versions
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.backup import BackedUp, BackupDecoder, BackupHeader, read_all
from dray.metadata.contract import MetadataStore, Put
from dray.metadata.memory import MemoryStore
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectStore

NEWEST: Final = "newest"

_PIECE: Final = 4 << 20
_KEYS_PER_WRITE: Final = 200
_LONGEST_SESSION: Final = 60.0


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    file: Path | None = None
    from_bucket: str | None = None  # the path of a backup, or `NEWEST`
    execute: bool = False
    take_over: bool = False
    """Though somebody raises the tally of the bucket: that one is locked out."""

    @property
    def has_backup(self) -> bool:
        return self.file is not None or self.from_bucket is not None


@dataclass(slots=True)
class RestoreReport:
    cluster_id: str
    backup: str | None  # None: the metadata store as it is
    created_ms: int | None
    keys: int
    topics: int
    partitions: int
    mark: int  # the newest in the bucket; 0: none
    lost: list[LostOffsets] = field(default_factory=list)
    number: int = 0  # of the tally, once it was raised
    later: int | None = (
        None  # the number of a restore that the metadata does not know: nothing is brought back
    )
    newer: NewerTopics = field(default_factory=NewerTopics)
    below: Mapping[str, int] = field(default_factory=dict)
    """By topic, the files that were made since of what the log names in other objects, which may be gone."""


def restore(
    settings: Settings, order: RestoreOrder, tell: Callable[[str], None] = lambda _: None
) -> RestoreReport:
    with quiet_logs():
        return asyncio.run(_restore(settings, order, tell))


async def _restore(settings: Settings, order: RestoreOrder, tell: Callable[[str], None]) -> RestoreReport:
    async with opened_for_command(settings, f"read {order.file}") as (stores, runtime):
        return await Restorer(settings, stores, runtime, order, tell).run()


class Restorer:
    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        runtime: Runtime,
        order: RestoreOrder,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._stores = stores
        self._runtime = runtime
        self._order = order
        self._tell = tell
        self._interval = settings.tally_interval

    async def run(self) -> RestoreReport:
        mark = await newest_mark(self._stores.objects)
        header, place, count = None, None, 0
        store = self._stores.metadata
        await self._no_broker_may_run()
        if self._order.has_backup:
            await self._must_be_empty()
            backup = await self._backup()
            place = backup.place
            header = await backup.verify()
            await self._must_own(header.cluster_id)
            await self._must_lack_what_is_no_part_of(backup, header)
            if not self._order.execute:
                store = MemoryStore(self._runtime)
        if self._order.execute and mark is not None and not self._order.take_over:
            await self._nobody_may_raise(mark)
        if header is not None:
            self._tell(f"loading {place}")
            count = await backup.load(store)
        return await self._decide(store, header, place, count, mark)

    async def _decide(
        self,
        store: MetadataStore,
        header: BackupHeader | None,
        place: str | None,
        count: int,
        mark: Mark | None,
    ) -> RestoreReport:
        cluster = await self._cluster_of(store)
        topics = await read_topics(store)
        streams = StreamStore(store, cluster.domains, log_settings(self._settings).producer_expiry_ms)
        created_ms = None if header is None else header.created_ms
        self._tell("looking through the bucket for what is newer")
        objects, runtime = self._stores.objects, self._runtime
        notes = await read_notes(objects)
        later = await later_restore(store, notes, mark)
        lost, newer = await find_lost(store, objects, streams, topics, created_ms)
        if later is None:
            await plan_bringing_back(streams, lost, notes)
        if self._order.execute:
            self._tell("bringing back what compacted files have")
            await bring_all_back(objects, streams, runtime, lost, mark)
        report = RestoreReport(
            cluster.cluster_id,
            place,
            created_ms,
            count,
            len(topics),
            sum(len(topic.streams) for topic in topics),
            0 if mark is None else mark.number,
            [each for each in lost if each.is_lost or each.brought_to > each.end],
            later=later,
            newer=newer,
            below=Counter(each.topic for each in lost for _ in range(len(each.below) + each.unread)),
        )
        if self._order.execute:
            await put_right(store, streams, runtime, topics, mark)
            report.number = await raise_tally(store, objects, runtime, cluster.cluster_id, mark)
        return report

    async def _cluster_of(self, store: MetadataStore) -> ClusterInfo:
        record = await store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        if record is None:
            raise Failure(
                "the metadata store is empty: name a backup, with --from FILE or --from-bucket"
                + await self._what_there_is()
            )
        return decode_readable(record.value)

    async def _what_there_is(self) -> str:
        found = await backups_in(self._stores.objects)
        return f"; the newest of {len(found)} in the bucket is {found[-1]}" if found else ""

    async def _must_be_empty(self) -> None:
        """The cluster's record is loaded last: one that is not there may be of a load that was
        interrupted."""
        if await self._stores.metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER) is not None:
            raise Failure(
                "the metadata store has a cluster: a backup is loaded into an empty one. Give it another "
                "file, namespace or prefix; or leave the backup out, if this store is to be the cluster"
            )

    async def _must_lack_what_is_no_part_of(self, backup: _Backup, header: BackupHeader) -> None:
        """What is there without the cluster's record is of a load that was interrupted. Of another backup it
        would lie among the keys of this one: entries behind the ends of streams, for offsets to come."""
        there: set[tuple[int, str]] = set()
        async for page in read_all(self._stores.metadata, header.domains):
            there |= {(record.domain, record.key) for record in page}
        if there and (strange := await backup.lacks(there)):
            raise Failure(
                f"the metadata store has {len(strange)} keys that are not in {backup.place}, as a load of "
                "another backup leaves them that was interrupted. Give it another file, namespace or prefix"
            )

    async def _must_own(self, cluster_id: str) -> None:
        owner = await read_owner(self._stores.objects)
        if owner is not None and owner.cluster_id != cluster_id:
            raise Failure(
                f"the object store belongs to cluster {owner.cluster_id}, and the backup is of {cluster_id}"
            )

    async def _no_broker_may_run(self) -> None:
        """A copy of a file lists the brokers of its original until their sessions are over."""
        waited = 0.0
        while found := await self._stores.metadata.scan(
            keys.CLUSTER_DOMAIN, keys.BROKERS, keys.prefix_end(keys.BROKERS)
        ):
            if not self._order.execute:
                return
            if waited >= _LONGEST_SESSION:
                raise Failure(f"{len(found)} brokers run on this metadata store: stop them first")
            if not waited:
                self._tell("waiting until no broker is registered any more")
            await self._runtime.sleep(1.0)
            waited += 1.0

    async def _nobody_may_raise(self, mark: Mark) -> None:
        seconds = QUIET_INTERVALS * max(self._interval, mark.interval_ms / 1000)
        self._tell(f"looking for {seconds:.0f} s whether another cluster lives on this bucket")
        ends_at = self._runtime.monotonic() + seconds
        while (left := ends_at - self._runtime.monotonic()) > 0:
            await self._runtime.sleep(min(left, seconds / 4))
            if (found := await newest_mark(self._stores.objects)) != mark:
                raise Failure(
                    f"another metadata store raises the tally of this bucket (mark "
                    f"{0 if found is None else found.number}): a cluster lives there. Give a drill a copy of "
                    "the bucket; or stop that cluster; or lock it out with --take-over"
                )

    # --- the backup

    async def _backup(self) -> _Backup:
        objects = self._stores.objects
        if self._order.file is not None:
            return _Backup(
                str(self._order.file), lambda: _pieces_of_file(self._order.file or Path(), self._runtime)
            )
        path = self._order.from_bucket or NEWEST
        if path == NEWEST:
            found = await backups_in(objects)
            if not found:
                raise Failure("there is no backup in the bucket (below backups/)")
            path = found[-1]
        elif time_of_backup(path) is None:
            raise Failure(f"{path} is no backup: they are below backups/")
        return _Backup(path, lambda: _pieces_of_object(objects, path))


async def _pieces_of_file(file: Path, runtime: Runtime) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await runtime.in_thread(opened.read, _PIECE):
            yield piece


async def _pieces_of_object(objects: ObjectStore, path: str) -> AsyncIterator[bytes]:
    size = (await objects.head(path)).size
    for start in range(0, size, _PIECE):
        [piece] = await objects.get_ranges(path, [(start, min(_PIECE, size - start))])
        yield bytes(piece)


class _Backup:
    """Read twice: once to know that it is whole, and which entries its jobs stand on; once to load it. Once
    more before that, where something is in the store."""

    def __init__(self, place: str, pieces: Callable[[], AsyncIterator[bytes]]) -> None:
        self.place = place
        self._pieces = pieces
        self._inputs: dict[tuple[int, str], int] = {}  # index entries that jobs name, with their versions

    async def verify(self) -> BackupHeader:
        decoder = BackupDecoder()
        async for piece in self._pieces():
            for record in decoder.feed(piece):
                for each in _inputs_of(record):
                    stream = keys.stream_of_job(record.key) or 0
                    self._inputs[record.domain, _key_of(stream, each)] = 0
        return decoder.finish()

    async def lacks(self, names: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """Those of these keys, each with its domain, that it does not have."""
        decoder = BackupDecoder()
        async for piece in self._pieces():
            names -= {(record.domain, record.key) for record in decoder.feed(piece)}
        return names

    async def load(self, store: MetadataStore) -> int:
        """How many keys. The jobs come last, with the versions that their inputs have here, and then the
        cluster's record: with it the store is whole."""
        decoder, loader, count = BackupDecoder(), _Loader(store), 0
        held_back: list[BackedUp] = []
        async for piece in self._pieces():
            for record in decoder.feed(piece):
                count += 1
                if (record.domain, record.key) in self._inputs:
                    self._inputs[record.domain, record.key] = record.version
                if record.key == keys.CLUSTER or _inputs_of(record):
                    held_back.append(record)
                else:
                    await loader.add(record)
        decoder.finish()
        await loader.flush()
        for record in sorted(held_back, key=lambda each: each.key == keys.CLUSTER):
            await loader.add(record._replace(value=await self._with_versions(store, record)))
            await loader.flush()
        return count

    async def _with_versions(self, store: MetadataStore, record: BackedUp) -> bytes:
        if record.key == keys.CLUSTER:
            return record.value
        stream = keys.stream_of_job(record.key) or 0
        versions: dict[Input, int] = {}
        for each in _inputs_of(record):
            key = _key_of(stream, each)
            if self._inputs[record.domain, key] == each.version:
                found = await store.get(record.domain, key)
                versions[each] = 0 if found is None else found.version
        # One that had moved before the backup matches nothing here either.
        return with_versions(Job.decode(record.value), lambda each: versions.get(each, 0)).encode()


class _Loader:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._domain = 0
        self._puts: list[Put] = []
        self._size = 0

    async def add(self, record: BackedUp) -> None:
        full = self._size + len(record.value) > self._store.limits.value_bytes // 2
        if record.domain != self._domain or full or len(self._puts) >= self._most:
            await self.flush()
        self._domain = record.domain
        self._puts.append(Put(record.key, record.value))
        self._size += len(record.value)

    @property
    def _most(self) -> int:
        return min(_KEYS_PER_WRITE, self._store.limits.operations)

    async def flush(self) -> None:
        if self._puts:
            await self._store.write(self._domain, self._puts)
        self._puts, self._size = [], 0


def _inputs_of(record: BackedUp) -> tuple[Input, ...]:
    """The index entries that a job which is under way goes by."""
    if keys.stream_of_job(record.key) is None:
        return ()
    with suppress(UnreadableValue):  # of a newer build: it stays as it is
        job = Job.decode(record.value)
        if job.packing is not None:
            return (job.packing.last,)
        if job.compaction is not None:
            return job.compaction.inputs
    return ()


def _key_of(stream: int, each: Input) -> str:
    return keys.index_entry(stream, each.end, each.cumulative_size)
