"""The level of a cluster, seen, raised and lowered straight in its metadata store. A fault is one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.cluster.level_keeper import read_readers, write_level
from dray.broker.cluster.levels import (
    BASE,
    NEWEST,
    ClusterLevel,
    Reader,
    lowered,
    read_by_all,
    stops_writing,
    writes_above,
)
from dray.broker.topics.live import StoredTopics
from dray.broker.topics.model import EPOCH_FORMAT
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.stores import NoCluster, decode_readable, open_metadata
from dray.daemons.config import Settings
from dray.log.append.carried_hints import CarriedSurvey, survey_carried
from dray.log.life.format_survey import GAPS, HOLES, ORIGINS, OUTSIDE, survey_formats
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.migration.record import MIGRATION_FORMAT

T = TypeVar("T")
Tell = Callable[[str], None]

LOOK_SECONDS: Final = 2.0
SETTLED_SECONDS: Final = 15.0
"""Between two looks that find nothing: what was under way when a broker said that it stops is there then."""
PATIENCE_SECONDS: Final = 600.0
"""Without any progress: a process that died counts for as long as its beat is kept, ten minutes."""

EPOCHS: Final = "topics with a leader epoch"
MIGRATIONS: Final = "live migrations"
SINCE_16: Final = "builds since 16 November 2026"
READ_SINCE: Final[Mapping[str, str]] = {
    HOLES: SINCE_16,
    OUTSIDE: SINCE_16,
    ORIGINS: SINCE_16,
    EPOCHS: SINCE_16,
    MIGRATIONS: SINCE_16,
    GAPS: "builds since 20 November 2026",
}
"""Formats that no level gates, and the builds that read each."""


@dataclass(frozen=True, slots=True)
class LevelView:
    cluster_id: str
    level: ClusterLevel
    readers: Sequence[Reader]
    carried: CarriedSurvey
    """Values that builds below level 2 do not read."""
    kept: Mapping[str, Sequence[str]]
    """Values that no command undoes: topics, by what is stored."""

    @property
    def read_by_all(self) -> int:
        return read_by_all(self.readers)


def look_at_level(settings: Settings) -> LevelView:
    return _with(settings, lambda stored: stored.look())


def raise_level(settings: Settings) -> ClusterLevel:
    """To the highest level that every process reads."""
    return _with(settings, lambda stored: stored.raise_level())


def lower_level(settings: Settings, to: int, tell: Tell) -> None:
    """`tell` hears how far it is. Ended in the middle, it goes on where it was when it is begun again."""
    _with(settings, lambda stored: stored.lower(to, tell))


def check_lowering(level: ClusterLevel, to: int) -> None:
    """Raises `Failure`."""
    if not BASE <= to <= level.number:
        raise Failure(f"--to {to}: the cluster is at level {level.number}, and the lowest is {BASE}", USAGE)


class StoredLevel:
    def __init__(self, store: MetadataStore, runtime: Runtime, settings: Settings) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = settings

    async def look(self) -> LevelView:
        cluster, _ = await self._read()
        streams = self._streams(cluster)
        readers = await read_readers(self._store)
        return LevelView(
            cluster.cluster_id,
            cluster.level,
            readers,
            await survey_carried(streams),
            await self._kept(streams),
        )

    async def raise_level(self) -> ClusterLevel:
        readers = await read_readers(self._store)
        cluster, version = await self._read()
        wanted = max(min(read_by_all(readers), NEWEST), cluster.level.number)
        if not readers:
            raise Failure("no process is there that could say what it reads: start a broker first")
        if ClusterLevel(wanted) == cluster.level:
            behind = [each.name for each in readers if not each.can_read(wanted + 1)]
            why = "no process reads more" if wanted >= NEWEST else f"more is not read by {', '.join(behind)}"
            raise Failure(f"the cluster stays at level {wanted}: {why}")
        await self._write(cluster, ClusterLevel(wanted), version)
        return ClusterLevel(wanted)

    async def lower(self, to: int, tell: Tell) -> None:
        cluster, version = await self._read()
        check_lowering(cluster.level, to)
        await self._write(cluster, stops_writing(cluster.level, to), version)
        await self._until_nothing_is_above(cluster, to, tell)
        cluster, version = await self._read()
        if cluster.level.ceiling != to:
            raise Failure("somebody raised the level meanwhile: nothing was lowered")
        await self._write(cluster, lowered(cluster.level), version)

    async def _until_nothing_is_above(self, cluster: ClusterInfo, to: int, tell: Tell) -> None:
        streams, told = self._streams(cluster), ""
        moved = self._runtime.monotonic()
        clean_since: float | None = None
        while True:
            waiting = _still_writing(await read_readers(self._store), to)  # before the survey begins
            survey = await survey_carried(streams, hint_ms=self._runtime.wall_ms())
            now = self._runtime.monotonic()
            line = _progress(waiting, survey)
            if line != told:
                told, moved = line, now
                tell(line or "nothing is left: looking once more, for what was under way")
            if line:
                clean_since = None
            elif clean_since is None:
                clean_since = now
            elif now - clean_since >= SETTLED_SECONDS:
                return
            if now - moved >= PATIENCE_SECONDS:
                raise Failure(
                    f"nothing has moved for ten minutes: {line}; run it again, it goes on from there (marks "
                    "of packs that stay: drayd admin gc --now)"
                )
            await self._runtime.sleep(LOOK_SECONDS)

    async def _read(self) -> tuple[ClusterInfo, int]:
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        if record is None:
            raise NoCluster("there is no cluster on these stores yet: start one with drayd up")
        return decode_readable(record.value), record.version

    async def _write(self, cluster: ClusterInfo, level: ClusterLevel, version: int) -> None:
        if not await write_level(self._store, cluster, level, version):
            raise Failure("the cluster's record was changed at the same moment: run it again")

    def _streams(self, cluster: ClusterInfo) -> StreamStore:
        return StreamStore(self._store, cluster.domains, log_settings(self._settings).producer_expiry_ms)

    async def _kept(self, streams: StreamStore) -> dict[str, list[str]]:
        live = await StoredTopics(self._store, self._settings.topics.defaults).live()
        names = {stream: topic.name for topic in live.known for stream in topic.streams}
        found = {
            what: sorted({names.get(stream, f"stream {stream} of no known topic") for stream in each})
            for what, each in (await survey_formats(streams)).items()
        }
        found[EPOCHS] = await self._of_format(keys.TOPICS, EPOCH_FORMAT, keys.topic_of)
        found[MIGRATIONS] = await self._of_format(keys.MIGRATIONS, MIGRATION_FORMAT, keys.topic_of_migration)
        return {what: topics for what, topics in found.items() if topics}

    async def _of_format(self, prefix: str, number: int, name: Callable[[str], str | None]) -> list[str]:
        records = await self._store.scan(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix))
        return sorted(name(each.key) or each.key for each in records if each.value[:1] == bytes([number]))


def _still_writing(readers: Sequence[Reader], to: int) -> list[str]:
    """Those that may yet write above a level: so does a broker whose beat is not there yet. One from before
    levels says nothing, ever; what it writes is found."""
    brokers = [each for each in readers if each.is_registered and each.reads is not None]
    saying = [each for each in readers if each.writes is not None]
    silent = [] if len(saying) >= len(brokers) else ["a broker that has not beaten yet"]
    return [each.name for each in writes_above(readers, to)] + silent


def _progress(waiting: Sequence[str], survey: CarriedSurvey) -> str:
    """Empty: nothing is left."""
    left = {
        "carried entries": survey.carried_entries,
        "jobs": survey.carried_jobs,
        "marks of packs": survey.pack_marks,
    }
    said = [f"{count} {what}" for what, count in left.items() if count]
    if waiting:
        said.append(f"waiting for {', '.join(waiting)} to stop writing them")
    return "; ".join(said)


def _with(settings: Settings, work: Callable[[StoredLevel], Awaitable[T]]) -> T:
    with quiet_logs():
        return asyncio.run(_opened(settings, work))


async def _opened(settings: Settings, work: Callable[[StoredLevel], Awaitable[T]]) -> T:
    if settings.metadata.engine == "sqlite" and not settings.metadata_path.exists():
        raise NoCluster("there is no cluster on these stores yet: start one with drayd up")
    runtime = SystemRuntime()
    try:
        store = await open_metadata(settings, runtime)
        try:
            return await work(StoredLevel(store, runtime, settings))
        except MetadataError as error:
            raise Failure(f"the metadata store: {error}") from error
        finally:
            await store.close()
    finally:
        runtime.close()
