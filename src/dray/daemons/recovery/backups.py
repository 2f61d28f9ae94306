"""Backups of the metadata store: into the bucket or a file, now and then or when somebody asks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from dray.base.build import build_name
from dray.base.runtime import KeptTask, Runtime, SystemRuntime, keep_running
from dray.base.telemetry import quiet_logs
from dray.broker.cluster import TallyKeeper
from dray.broker.cluster.identity import ClusterInfo
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import Stores, open_stores, read_cluster
from dray.daemons.config import Settings
from dray.daemons.recovery.ownership import owned_bucket
from dray.metadata import keys
from dray.metadata.backup import BackedUp, BackupHeader, encode, read_all
from dray.metadata.contract import ABSENT, MetadataError, MetadataStore, Put
from dray.metadata.keys import number as padded
from dray.metadata.values import JsonCodec
from dray.objects.contract import ObjectError, ObjectStore

_log = structlog.get_logger(__name__)

BACKUPS: Final = "backups/v1/"
BACKUP_RECORD_FORMAT: Final = 1

_SUFFIX: Final = ".drayback"
_PIECE: Final = 1 << 20
_LOOK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """The key that brokers take turns by: who begins a backup puts it first."""

    begun_ms: int


_CODEC: Final = JsonCodec(StoredBackup, BACKUP_RECORD_FORMAT)


def encode_stored_backup(stored: StoredBackup) -> bytes:
    return _CODEC.encode(stored)


@dataclass(frozen=True, slots=True)
class BackupReport:
    place: str
    keys: int
    size: int
    created_ms: int


def backup_path(created_ms: int) -> str:
    return f"{BACKUPS}{padded(created_ms)}{_SUFFIX}"


def time_of_backup(path: str) -> int | None:
    """When a backup in the bucket was begun; None for a path that is none's."""
    digits = path.removeprefix(BACKUPS).removesuffix(_SUFFIX)
    return int(digits) if digits.isdecimal() and backup_path(int(digits)) == path else None


async def backups_in(objects: ObjectStore) -> list[str]:
    """The oldest first."""
    return sorted(
        [info.path async for info in objects.list(BACKUPS) if time_of_backup(info.path) is not None]
    )


class _Counted:
    """The bytes of a backup as they come, and how many there are."""

    def __init__(self, store: MetadataStore, cluster: ClusterInfo, created_ms: int) -> None:
        self.keys = 0
        self.size = 0
        self._store = store
        self._domains = cluster.domains
        self._header = BackupHeader(cluster.cluster_id, cluster.domains, created_ms, build_name())

    async def _pages(self) -> AsyncIterator[list[BackedUp]]:
        async for page in read_all(self._store, self._domains):
            self.keys += len(page)
            yield page

    async def pieces(self) -> AsyncIterator[Sequence[bytes]]:
        waiting: list[bytes] = []
        gathered = 0
        async for piece in encode(self._header, self._pages()):
            waiting.append(piece)
            gathered += len(piece)
            if gathered >= _PIECE:
                self.size += gathered
                yield waiting
                waiting, gathered = [], 0
        self.size += gathered
        yield waiting


async def back_up_to_bucket(
    store: MetadataStore, objects: ObjectStore, cluster: ClusterInfo, runtime: Runtime
) -> BackupReport:
    created_ms = runtime.wall_ms()
    counted = _Counted(store, cluster, created_ms)
    path = backup_path(created_ms)
    await objects.put_stream(path, counted.pieces())
    return BackupReport(path, counted.keys, counted.size, created_ms)


async def back_up_to_file(
    store: MetadataStore, cluster: ClusterInfo, runtime: Runtime, target: Path
) -> BackupReport:
    """Whole and durable at its name, or not there."""
    created_ms = runtime.wall_ms()
    counted = _Counted(store, cluster, created_ms)
    part = target.with_name(target.name + ".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # keys of users are in it
    with os.fdopen(descriptor, "wb") as file:
        async for pieces in counted.pieces():
            await runtime.in_thread(file.writelines, pieces)
        file.flush()
        await runtime.in_thread(os.fsync, file.fileno())
    os.replace(part, target)
    return BackupReport(str(target), counted.keys, counted.size, created_ms)


def back_up(settings: Settings, target: Path | None) -> BackupReport:
    """For the command: into the bucket, where no file is named."""
    with quiet_logs():
        return asyncio.run(_back_up(settings, target))


async def _back_up(settings: Settings, target: Path | None) -> BackupReport:
    async with opened_for_command(settings, f"write {target}") as (stores, runtime):
        cluster = await read_cluster(stores)
        await owned_bucket(stores, cluster, runtime, settings.tally_interval)
        if target is not None:
            return await back_up_to_file(stores.metadata, cluster, runtime, target)
        return await back_up_to_bucket(stores.metadata, stores.objects, cluster, runtime)


@asynccontextmanager
async def opened_for_command(settings: Settings, doing: str) -> AsyncIterator[tuple[Stores, SystemRuntime]]:
    """An error of a store or of the file is one line. `doing`: what a file is needed for."""
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        yield stores, runtime
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    except OSError as error:
        raise Failure(f"cannot {doing}: {error.strerror}") from error
    finally:
        await stores.close()
        runtime.close()


class BackupLoop:
    """Backups into the bucket, by whichever broker takes the turn; `kept` of them stay."""

    def __init__(
        self,
        stores: Stores,
        runtime: Runtime,
        cluster: ClusterInfo,
        keeper: TallyKeeper,
        interval: float,
        kept: int,
    ) -> None:
        self._stores = stores
        self._runtime = runtime
        self._cluster = cluster
        self._keeper = keeper
        self._interval = interval
        self._kept = kept
        self._task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self._runtime, "backups", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self.run_once()
            except (MetadataError, ObjectError) as error:
                _log.warning("the metadata store was not backed up", error=str(error))
            await self._runtime.sleep(min(_LOOK_SECONDS, self._interval / 4))

    async def run_once(self) -> BackupReport | None:
        """None where it is not time yet, or another broker was first."""
        if not await self._take_turn():
            return None
        report = await back_up_to_bucket(
            self._stores.metadata, self._stores.objects, self._cluster, self._runtime
        )
        _log.info("the metadata store was backed up", path=report.place, keys=report.keys, bytes=report.size)
        await self._forget_old()
        return report

    async def _take_turn(self) -> bool:
        record = await self._stores.metadata.get(keys.CLUSTER_DOMAIN, keys.BACKUP)
        now = self._runtime.wall_ms()
        if record is not None:
            since = now - _CODEC.decode("the turn of backups", record.value).begun_ms
            if 0 <= since < self._interval * 1000:
                return False
        turn = encode_stored_backup(StoredBackup(now))
        put = Put(keys.BACKUP, turn, ABSENT if record is None else record.version)
        [outcome] = await self._stores.metadata.write(keys.CLUSTER_DOMAIN, [put])
        return outcome.applied

    async def _forget_old(self) -> None:
        """Older ones go only by a process that is the cluster: a drill's backup replaces none of
        production."""
        old = (await backups_in(self._stores.objects))[: -self._kept]
        if old and (reason := await self._keeper()) is not None:
            _log.info("old backups stay", reason=reason)
            return
        for path in old:
            await self._stores.objects.delete(path)
