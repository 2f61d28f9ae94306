"""Keeps the level of a cluster: each broker looks at it once per beat, and one of them raises it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.cluster.clock_guard import MIGRATOR, decode_beat
from dray.broker.cluster.identity import ClusterInfo, decode_cluster, encode_cluster
from dray.broker.cluster.levels import (
    ClusterLevel,
    LevelTooNew,
    Reader,
    check_level,
    looked_at,
    read_by_all,
)
from dray.broker.cluster.membership import decode_broker
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore, Put, StoredValue
from dray.metadata.values import UnreadableValue

_log = structlog.get_logger(__name__)

_TASK: Final = "keep the cluster's level"


class LevelKeeper:
    """`start` and `stop` it. `may_raise`: whether this is the broker that does it; `now_ms`: the time, None
    while it is doubted; `followed` hears the level after each look."""

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        *,
        reads: int,
        look_seconds: float,
        wait_seconds: float,
        may_raise: Callable[[], bool],
        now_ms: Callable[[], int | None],
        followed: Callable[[ClusterLevel], None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._reads = reads
        self._look_seconds = look_seconds
        self._wait_ms = int(wait_seconds * 1000)
        self._may_raise = may_raise
        self._now_ms = now_ms
        self._followed = followed
        self._task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self._runtime, _TASK, self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def look(self) -> None:
        """Raises `LevelTooNew`, where another build raised it meanwhile, and the store's errors."""
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        found = await self._store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        if found is None:
            return
        cluster = decode_cluster(found.value)
        check_level(cluster.level, self._reads)
        level = cluster.level
        if self._may_raise() and level.number < self._reads:
            level = await self._raised(cluster, found.version)
        self._followed(level)

    async def _raised(self, cluster: ClusterInfo, version: int) -> ClusterLevel:
        """No higher than this build reads."""
        readable = read_by_all([*await read_readers(self._store), Reader("this broker", self._reads)])
        level = looked_at(cluster.level, readable, self._now_ms(), self._wait_ms)
        if level == cluster.level or not await write_level(self._store, cluster, level, version):
            return cluster.level
        if level.number != cluster.level.number:
            _log.info("the cluster's level is raised", level=level.number, before=cluster.level.number)
        elif level.next is not None:
            _log.info(
                "every process reads a higher level: the cluster is raised to it later by itself, or now by "
                "drayd admin level raise",
                level=level.number,
                next=level.next,
                hours=round(self._wait_ms / 3_600_000, 1),
            )
        return level

    async def _run(self) -> None:
        is_told = False
        while True:
            try:
                await self.look()
                is_told = False
            except (MetadataError, LevelTooNew) as error:
                tell = _log.debug if is_told else _log.error
                tell("the cluster's level is not followed", error=str(error))
                is_told = True
            await self._runtime.sleep(self._look_seconds)


async def write_level(store: MetadataStore, cluster: ClusterInfo, level: ClusterLevel, version: int) -> bool:
    """Whether it is certain to be stored: a reply that does not come is settled by the next look."""
    put = Put(keys.CLUSTER, encode_cluster(replace(cluster, level=level)), version)
    [outcome] = await store.write(keys.CLUSTER_DOMAIN, [put])
    return outcome.applied


async def read_readers(store: MetadataStore) -> list[Reader]:
    """All processes of the cluster, as far as anything of them is stored. Raises the store's errors."""
    await store.barrier(keys.CLUSTER_DOMAIN)
    found = [_registered(record) for record in await _scan(store, keys.BROKERS)]
    beats = [(_beating(record), _is_migrator(record)) for record in await _scan(store, keys.CLOCKS)]
    if not any(is_migrator for _, is_migrator in beats) and await _scan(store, keys.MIGRATION_LEASES):
        found.append(Reader("a migrator of an older build", None))
    return found + [reader for reader, _ in beats]


async def _scan(store: MetadataStore, prefix: str) -> list[StoredValue]:
    return await store.scan(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix))


def _registered(record: StoredValue) -> Reader:
    """One that cannot be read has said nothing, and so has an older build."""
    broker_id = keys.broker_of(record.key)
    name = f"broker {broker_id}"
    try:
        broker = decode_broker(-1 if broker_id is None else broker_id, record.value)
    except UnreadableValue:
        return Reader(name, None, is_registered=True)
    return Reader(f"{name} ({broker.build})", broker.reads, is_registered=True)


def _beating(record: StoredValue) -> Reader:
    process = keys.process_of_clock(record.key)[:8]
    try:
        beat = decode_beat(record.value)
    except UnreadableValue:
        return Reader(f"beat {process}, unreadable", None)
    if beat.process is not None:
        return Reader(f"{beat.process.role} {process} ({beat.process.build})", beat.reads, beat.writes)
    return Reader(f"beat {process}{' of a broker' if beat.writes else ''}", beat.reads, beat.writes)


def _is_migrator(record: StoredValue) -> bool:
    try:
        process = decode_beat(record.value).process
    except UnreadableValue:
        return False
    return process is not None and process.role == MIGRATOR
