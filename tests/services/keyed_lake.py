"""A compacted topic and its table while both grow: for every snapshot, the state that its log stands for.

The statements are those of docs/tables.md, so that what is documented is what is tested.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from dray.tables.compaction.settings import CompactionSettings
from dray.tables.contract import parse_ends
from dray.tables.iceberg.view import ENDS
from dray_simulation.kernel.runtime import SimulatedRuntime
from tests.services.compaction_cluster import ALL
from tests.services.keyed_log import append_keyed
from tests.services.lake import Lake

PARTITIONS = 2
KEYS = (b"", b"a", b"b", b"c", b"d", b"e")
RETENTION_MS = 100_000
# Nothing that an older snapshot names is deleted.
KEPT = replace(ALL, snapshot_keep_ms=10**9, collect_grace=1e9, wal_max_age=0.0)
# Any stream is too large for one merge, and files stay small: it is cleaned in rounds.
BY_ROUNDS = replace(KEPT, bottom_raw_bytes=0, target_file_bytes=1)
_DOCUMENT = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()

State = Mapping[tuple[int, bytes], tuple[int, bytes]]
"""By partition and key: the offset and value of its last record, without keys that were deleted."""


class CatalogRuntime(SimulatedRuntime):
    """Its wall clock is that of the catalog, which stamps some versions of a table: Iceberg's readers refuse
    a table whose versions are not in order."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class SnapshotState:
    snapshot_id: int
    operation: str
    state: State
    least_clean_point: int | None  # of all partitions, where the snapshot was the newest and all had one


def documented(place: int, table: str, *, clean_point: int | None = None, spark: bool = False) -> str:
    """A statement of the chapter on the latest row of every key: 0 for any topic, 1 with a clean point. In
    Spark's SQL names are quoted in another way."""
    chapter = _DOCUMENT.partition("## The latest row of every key")[2].partition("\n## ")[0]
    statement: str = re.findall(r"```sql\n(.*?)```", chapter, re.DOTALL)[place]
    statement = statement.replace(" orders", f" {table}")
    if clean_point is not None:
        assert statement.count("84213") == 2
        statement = statement.replace("84213", str(clean_point))
    return statement.replace('"', "`") if spark else statement


class KeyedLake:
    """`random` chooses what is written, and which merges are made of it."""

    def __init__(self, folder: Path, topic: str, random: Random, settings: CompactionSettings = KEPT) -> None:
        self._settings = settings
        self.lake = Lake(folder, CatalogRuntime)
        self.topic = topic
        self._random = random
        self._rows: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(PARTITIONS)]
        self.found: list[SnapshotState] = []

    async def grow(self, turns: int) -> list[SnapshotState]:
        cluster = self.lake.cluster
        config = {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(RETENTION_MS),
            "min.cleanable.dirty.ratio": "0.7",
        }
        made = await cluster.topic(self.topic, PARTITIONS, config)
        try:
            for turn in range(turns):
                for partition, stream in enumerate(made.streams):
                    rows = [self._row() for _ in range(self._random.randint(1, 6))]
                    self._rows[partition] += rows
                    await append_keyed(cluster, stream, list(rows))
                    await cluster.seal(stream)
                await self._compact(turn)
                await asyncio.sleep(self._random.choice((1, RETENTION_MS / 1000)))
                await self._look()
        finally:
            await self.lake.close()
        return self.found

    async def _compact(self, turn: int) -> None:
        """Files of new records, sometimes merges of some, sometimes all that there is, down to the start."""
        files = self._random.choice((1, 1000))
        settings = replace(self._settings, parquet_max_files=files)
        worker = self.lake.cluster.worker(settings)
        if turn % 4 == 3:
            await worker.once()
        else:
            await worker.compactor.run_cycle(everything=False)
        if worker.runtime.failures:
            raise worker.runtime.failures[0]

    def _row(self) -> tuple[bytes, bytes | None]:
        value = None if self._random.random() < 0.3 else b"%d" % self._random.getrandbits(30)
        return self._random.choice(KEYS), value

    async def _look(self) -> None:
        self.lake.put_files()
        table = await self.lake.tables.load(self.topic)
        assert table is not None
        view = await self.lake.tables.view(self.topic)
        assert view is not None
        known = {each.snapshot_id for each in self.found}
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id in known:
                continue
            assert snapshot.summary is not None
            ends = parse_ends(snapshot.summary.get(ENDS))
            assert ends is not None
            is_newest = snapshot.snapshot_id == table.metadata.current_snapshot_id
            points = [view.clean_points.get(partition) for partition in range(PARTITIONS)]
            clean = None
            if is_newest and None not in points:
                clean = min(point for point in points if point is not None)
            operation = snapshot.summary.operation.value
            self.found.append(SnapshotState(snapshot.snapshot_id, operation, self._state(ends), clean))

    def _state(self, ends: Mapping[int, int]) -> State:
        state: dict[tuple[int, bytes], tuple[int, bytes]] = {}
        for partition, rows in enumerate(self._rows):
            for offset, (key, value) in enumerate(rows[: ends.get(partition, 0)]):
                state.pop((partition, key), None)
                if value is not None:
                    state[partition, key] = offset, value
        return state
