"""SQL over the topics' tables, each query in a process of its own (`sql_child`), one at a time.

A query is bounded in rows, bytes, memory and seconds. When it is over, or its time is, or its reader is gone,
the process is killed: nothing of it is left.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from dray.base.runtime import FairTurns, Runtime

LONGEST_STATEMENT: Final = 20_000
WAITING: Final = 4
"""So many queries of a user wait for the one that runs; one more is refused. Users take turns."""

_LINE: Final = 64 * 1024 * 1024
_END_SECONDS: Final = 5.0


class SqlRefused(Exception):
    """The query is not run, or not to its end. The message is one line."""


class QueriesBusy(Exception):
    """Too many queries wait already."""


@dataclass(frozen=True)
class QueryLimits:
    rows: int
    bytes: int
    """Of all rows, as JSON."""
    cell: int
    """Characters of a text: what is longer is cut."""
    seconds: float = 20.0
    memory: int = 512 * 1024 * 1024


PAGE: Final = QueryLimits(rows=1000, bytes=8 * 1024 * 1024, cell=2000)
EXPORT: Final = QueryLimits(rows=1_000_000, bytes=1024 * 1024 * 1024, cell=16 * 1024 * 1024, seconds=120.0)


@dataclass(frozen=True)
class QuerySource:
    """A table, for the child: the statement that makes its view, and where its files are."""

    view: str
    paths: Sequence[str] = ()
    """Local files."""
    name: str = ""
    locations: Sequence[str] = ()
    """Files in a cloud, to be registered under `name`."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    tail_name: str = ""
    tail: str = field(default="", repr=False)
    """The rows behind the table, as a stream of Arrow in base64, to be registered under `tail_name`."""


class QuerySources(Protocol):
    """The tables that a query may read."""

    needs_network: bool

    async def sources(self, names: Sequence[str]) -> list[QuerySource]:
        """Of those names that are tables. Raises `SqlRefused` for one that may not be read."""


@dataclass(frozen=True)
class QueryColumn:
    name: str
    kind: str
    """In DuckDB's words."""


@dataclass
class RunningQuery:
    tables: Sequence[str]
    """The names that it reads from."""
    columns: Sequence[QueryColumn]
    rows: AsyncIterator[list[Any]]
    """Cells as `sql_child` writes them."""
    more: bool = False
    """After the last row: whether there were more."""


class SqlQueries:
    def __init__(self, runtime: Runtime, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: of the processes; credentials of a cloud may be in it."""
        self._runtime = runtime
        self._environment = {"MALLOC_ARENA_MAX": "2", "LANG": "C.UTF-8", **(environment or {})}
        self._turns = FairTurns(1)

    @asynccontextmanager
    async def run(
        self, statement: str, limits: QueryLimits, sources: QuerySources, user: str = ""
    ) -> AsyncIterator[RunningQuery]:
        """Raises `SqlRefused` and `QueriesBusy`; so do its rows. The time of a query is also that of its
        reader: others wait for both."""
        if len(statement) > LONGEST_STATEMENT:
            raise SqlRefused(f"a query is at most {LONGEST_STATEMENT} characters long")
        if not statement.strip():
            raise SqlRefused("there is no query")
        if self._turns.waiting_of(user) >= WAITING:
            raise QueriesBusy(f"{WAITING} queries wait already: try again in a moment")
        async with self._turns.turn(user):
            child = _Child(self._runtime, limits, self._environment)
            try:
                async with (
                    asyncio.timeout(limits.seconds),
                    child.started(network=sources.needs_network) as started,
                ):
                    yield await _begin(started, statement, limits, sources)
            except TimeoutError as error:
                raise _took_too_long(limits) from error


def _took_too_long(limits: QueryLimits) -> SqlRefused:
    return SqlRefused(f"the query took longer than {limits.seconds:g} s")


async def _begin(child: _Child, statement: str, limits: QueryLimits, permitted: QuerySources) -> RunningQuery:
    await child.tell(
        {
            "statement": statement,
            "rows": limits.rows,
            "bytes": limits.bytes,
            "cell": limits.cell,
            "memory": limits.memory,
            "seconds": round(limits.seconds) * 2 + 1,
        }
    )
    tables = list((await child.heard())["tables"])
    sources = await permitted.sources(tables)
    await child.tell(
        {
            "paths": [path for source in sources for path in source.paths],
            "sources": [
                {
                    "view": source.view,
                    "name": source.name,
                    "locations": list(source.locations),
                    "properties": dict(source.properties),
                    "tail_name": source.tail_name,
                    "tail": source.tail,
                }
                for source in sources
            ],
        }
    )
    columns = [QueryColumn(each["name"], each["kind"]) for each in (await child.heard())["columns"]]
    running = RunningQuery(tables, columns, _no_rows())
    running.rows = _rows(child, running)
    return running


async def _no_rows() -> AsyncIterator[list[Any]]:
    return
    yield


async def _rows(child: _Child, running: RunningQuery) -> AsyncIterator[list[Any]]:
    while True:
        message = await child.heard()
        if isinstance(message, list):
            yield message
        else:
            running.more = bool(message["more"])
            return


class _Child:
    def __init__(self, runtime: Runtime, limits: QueryLimits, environment: Mapping[str, str]) -> None:
        self._runtime = runtime
        self._limits = limits
        self._environment = environment
        self._deadline = runtime.monotonic() + limits.seconds
        self._process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def started(self, *, network: bool) -> AsyncIterator[_Child]:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-B",
            "-m",
            "dray.inspection.sql.child",
            *(["--network"] if network else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environment,
            limit=_LINE,
        )
        try:
            yield self
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def tell(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        with suppress(ConnectionError):  # it has refused already, and is heard next
            await self._process.stdin.drain()

    async def heard(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        left = self._deadline - self._runtime.monotonic()
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), max(left, 0))
        except TimeoutError as error:
            raise _took_too_long(self._limits) from error
        except ValueError as error:
            raise SqlRefused("a row is too large to be shown") from error
        if not line.endswith(b"\n"):
            await asyncio.wait_for(self._process.wait(), _END_SECONDS)
            raise SqlRefused("the query needs more memory or time than it may have")
        message = json.loads(line)
        if isinstance(message, dict) and "refused" in message:
            raise SqlRefused(message["refused"])
        return message
