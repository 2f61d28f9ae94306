"""A compactor without Spark: the daemon's own, with units written in its process. `python -m` this file.

For tests that need tables, and ask nothing of Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

from dray.base.runtime import Runtime
from dray.daemons.assembly.stores import open_stores
from dray.daemons.compactor import process as compactor
from dray.daemons.config import Settings, load
from dray.migration.entries.rows import ForeignRows
from dray.tables.compaction.model import UnitWriter
from dray.tables.compaction.writing.executor import LocalUnitWriter
from tests.services.dray import OPENER, DrayProcess
from tests.services.process import ServerProcess, free_port


class LocalCompactor(ServerProcess):
    """On the stores of a broker. It compacts everything that it finds, at once."""

    def __init__(self, directory: Path, broker: DrayProcess) -> None:
        super().__init__("local-compactor", directory)
        self._broker = broker
        self.port = free_port()

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "tests.services.local_compactor"]

    def environment(self) -> Mapping[str, str]:
        return dict(self._broker.environment()) | {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DRAY_DATA_DIR": str(self._broker.data_directory),
            "DRAY_COMPACTION__HTTP": f"127.0.0.1:{self.port}",
            "DRAY_COMPACTION__WAL_MAX_AGE": "1s",
            "DRAY_COMPACTION__INTERVAL": "1s",
        }

    def is_ready(self) -> bool:
        try:
            with OPENER.open(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                return 'dray_compaction_cycles_total{outcome="done"}' in answer.read().decode()
        except OSError:
            return False


async def _open_writer(settings: Settings, runtime: Runtime, *_: object) -> UnitWriter:
    stores = await open_stores(settings, runtime)
    return LocalUnitWriter(stores.objects, runtime, ForeignRows(stores.objects, runtime, stores.foreign))


if __name__ == "__main__":
    with mock.patch.object(compactor, "_open_writer", _open_writer):
        settings = load(None, os.environ).settings
        compactor.compact(settings, once=False, again=lambda: settings)
