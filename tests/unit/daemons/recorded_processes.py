"""The processes of Dray, started by their commands on stores in memory, and what their rooms then hold.

Nothing here knows how a config is translated. A room is found by its class, and a process by its command.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from tests.unit.daemons.held_values import HeldValues
from typer.testing import CliRunner

from dray.base.runtime import Runtime
from dray.base.telemetry import configure_logging
from dray.broker.cluster import ClockGuard, TallyKeeper
from dray.broker.server import HttpServer
from dray.cli.commands import compactor, up
from dray.cli.commands.admin import bucket, finish_compactions, table
from dray.cli.main import COMMANDS as CLI_COMMANDS
from dray.cli.main import app, load_command
from dray.daemons.assembly.process import raise_file_limit, settle_garbage_collector, tune_memory
from dray.daemons.assembly.stores import open_metadata_store
from dray.daemons.broker.node import Node
from dray.daemons.compactor.catalogs import OpenTables
from dray.log.life.collector import Collector
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.factory import open_store as open_object_store
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.tables.compaction.cycle import Compactor
from dray.tables.compaction.planning.job_board import WaitingCompactions
from dray.tables.compaction.spark.session import open_session
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.upkeep.rounds import Upkeep
from dray.tables.iceberg.tables import IcebergTables

LOADED = (bucket, compactor, finish_compactions, table, up)
"""The modules of the commands. They are loaded when asked for, and what they import is replaced here."""

COMMANDS = {
    "broker": ["broker"],
    "compactor": ["compactor", "--once"],
    "gc": ["admin", "gc"],
    "finish-compactions": ["admin", "finish-compactions"],
    "table": ["admin", "table", "orders"],
    "query": ["query", "SELECT 1"],
}


@cache
def _load_all() -> None:
    for name in CLI_COMMANDS:
        load_command(name)


def replace_everywhere(
    patch: pytest.MonkeyPatch, function: Callable[..., Any], by: Callable[..., Any]
) -> None:
    """Whichever module has imported it, and under whichever name. All commands are loaded first: one that is
    loaded meanwhile would keep what stands in for the function, for every later test of the process."""
    _load_all()
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("dray."):
            for name, value in list(vars(module).items()):
                if value is function:
                    patch.setattr(module, name, by)


class Recorder:
    """One process from its start to when its rooms are there."""

    def __init__(self, patch: pytest.MonkeyPatch, state: MemoryState, bucket: MemoryBucket) -> None:
        self._state = state
        self._bucket = bucket
        self._roots: list[object] = []
        self._handed: list[tuple[tuple[str, str], object]] = []
        self.held: HeldValues | None = None
        for what_a_process_does_to_itself in (tune_memory, raise_file_limit, settle_garbage_collector):
            replace_everywhere(patch, what_a_process_does_to_itself, lambda: None)
        replace_everywhere(patch, open_metadata_store, self._open_metadata)
        replace_everywhere(patch, open_object_store, self._open_objects)
        replace_everywhere(patch, open_session, self._open_session)
        replace_everywhere(patch, configure_logging, self._configure_logging)
        patch.setattr(ClockGuard, "until_certain", _certain)
        patch.setattr(TallyKeeper, "__call__", _certain)
        self._capture(patch)

    def _capture(self, patch: pytest.MonkeyPatch) -> None:
        recorder, start, listen, close = self, Node.start, HttpServer.start, OpenTables.close

        async def listening(server: HttpServer) -> None:
            recorder._roots.append(server)
            await listen(server)

        async def started(node: Node) -> None:
            await start(node)
            recorder._write_down(node)
            os.kill(os.getpid(), signal.SIGTERM)

        async def cycle(compactor: Compactor, **_: object) -> CycleSummary:
            recorder._write_down(compactor)
            return CycleSummary()

        async def collected(collector: Collector, **_: object) -> object:
            recorder._write_down(collector)
            raise RecordedEnd

        async def upkept(upkeep: Upkeep, *_: object, **__: object) -> None:
            recorder._roots.append(upkeep)

        async def waiting(waiting: WaitingCompactions) -> list[object]:
            recorder._write_down(waiting)
            return []

        async def let_go(opened: OpenTables) -> None:
            """There is no topic, so the command has not asked for tables. They are made now, to be seen."""
            if recorder.held is None:
                recorder._write_down(opened.tables)
            await close(opened)

        async def closed(_: IcebergTables) -> None:
            return None

        patch.setattr(HttpServer, "start", listening)
        patch.setattr(Node, "start", started)
        patch.setattr(Compactor, "run_cycle", cycle)
        patch.setattr(Collector, "run", collected)
        patch.setattr(Upkeep, "collect", upkept)
        patch.setattr(Upkeep, "drop_dead_tables", upkept)
        patch.setattr(WaitingCompactions, "waiting", waiting)
        patch.setattr(OpenTables, "close", let_go)
        patch.setattr(IcebergTables, "close", closed)

    def _write_down(self, root: object) -> None:
        """Now: when the process stops, its rooms let go of what they hold."""
        self.held = HeldValues([root, *self._roots])
        for place, value in self._handed:
            self.held.add(place, value)

    async def _open_metadata(self, engine: object, runtime: Runtime) -> MemoryStore:
        self._roots.append(engine)
        return MemoryStore(runtime, self._state)

    async def _open_objects(
        self,
        url: str,
        options: Mapping[str, str],
        runtime: Runtime,
        secrets: Mapping[str, str] | None = None,
        **_: object,
    ) -> MemoryObjects:
        for name, value in (("url", url), ("options", options), ("secrets", secrets or {})):
            self._handed.append((("object store", name), value))
        return MemoryObjects(runtime, self._bucket)

    def _open_session(self, wanted: object) -> object:
        self._roots.append(wanted)
        return _NoSession()

    def _configure_logging(self, format: str, level: str, *_: object, **__: object) -> None:
        self._handed += [(("logging", "format"), format), (("logging", "level"), level)]


async def _certain(_: ClockGuard) -> None:
    """At once: it is not the clock that is looked at."""


class _NoSession:
    def stop(self) -> None:
        return None


class RecordedEnd(Exception):
    """The rooms are there; nothing of their work is wanted."""


def run_process(
    process: str, environment: Mapping[str, str], state: MemoryState, bucket: MemoryBucket
) -> HeldValues:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DRAY_")]:
            patch.delenv(name)
        recorder = Recorder(patch, state, bucket)
        result = CliRunner().invoke(app, COMMANDS[process], env=dict(environment))
    if recorder.held is None:
        raise AssertionError(f"{process}: {result.output} {result.exception!r}") from result.exception
    return recorder.held


def run_all(
    environment: Mapping[str, str], processes: Iterable[str] = tuple(COMMANDS)
) -> dict[str, HeldValues]:
    """On one pair of stores, the broker first: it makes the cluster."""
    state, bucket = MemoryState(), MemoryBucket()
    return {process: run_process(process, environment, state, bucket) for process in processes}
