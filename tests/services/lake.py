"""A small cluster to compact whose tables are real ones of Iceberg, in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dray.broker.topics.model import Topic
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray_simulation.kernel.runtime import SimulatedRuntime
from tests.services.compaction_cluster import Cluster


class Lake:
    """A cluster whose workers share a SQL catalog."""

    def __init__(
        self, folder: Path, catalog_runtime: Callable[[int], SimulatedRuntime] | None = None
    ) -> None:
        """`catalog_runtime`: what tables run on, where that is not their compactor's own."""
        self.folder = folder
        self._catalog_runtime = catalog_runtime
        self.cluster = Cluster(real_tables=self.open)
        self._opened: list[IcebergTables] = []
        self.tables = self.open(self.cluster.runtime)

    def open(self, runtime: SimulatedRuntime) -> IcebergTables:
        settings = CatalogSettings("sql", f"sqlite:///{self.folder / 'catalog.sqlite'}", "lake")
        places = locations(f"file:{self.folder / 'objects'}", {}, {})
        if self._catalog_runtime is not None:
            runtime = self._catalog_runtime(runtime.random.getrandbits(30))
        self._opened.append(IcebergTables(settings, places, "cluster-one", runtime))
        return self._opened[-1]

    async def close(self) -> None:
        for tables in self._opened:
            await tables.close()

    def put_files(self) -> None:
        """Put the files where queries look for them. None is ever taken away, as older snapshots name it."""
        for path in self.cluster.files():
            target = self.folder / "objects" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bytes(self.cluster.bucket.objects[path].data))

    async def rows(self, topic: Topic) -> dict[int, list[tuple[int, bytes]]]:
        """What a query sees."""
        self.put_files()
        table = await self.tables.load(topic.name)
        assert table is not None
        rows: dict[int, list[tuple[int, bytes]]] = {place: [] for place in range(len(topic.streams))}
        for row in table.scan().to_arrow().to_pylist():
            rows[row["partition"]].append((row["offset"], row["value"]))
        return {partition: sorted(found) for partition, found in rows.items()}

    async def check(self, topic: Topic) -> None:
        rows = await self.rows(topic)
        for partition, stream in enumerate(topic.streams):
            assert rows[partition] == await self.cluster.read(stream)
