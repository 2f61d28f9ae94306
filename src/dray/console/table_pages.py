"""A topic as a table: what the table holds, how far it is behind the log, and SQL over it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dray.base.runtime.shown import printable
from dray.console.forms import moment_ms, named
from dray.console.rendering import Content
from dray.console.security import FROM_HERE, came_from
from dray.console.text import Chart, chart_of, is_number, path
from dray.inspection.plain import as_plain
from dray.inspection.records.ranges import inert
from dray.inspection.records.reading import NoSuchTopic
from dray.inspection.sql.queries import EXPORT, PAGE, QueriesBusy, QueryColumn, RunningQuery, SqlRefused
from dray.inspection.storage.tables import ClusterTables, TableQueries, topic_table
from dray.inspection.topics.views import topic_view
from dray.kafka.client import RequestFailed

if TYPE_CHECKING:
    from dray.console.app import Console

_PIECE: Final = 64 * 1024
_LONGEST_CELL: Final = 2000
_FORMATS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@dataclass(frozen=True)
class SqlView:
    topic: str
    statement: str
    ran: bool
    """Whether it was run: a link from elsewhere shows a query, and waits for a person to run it."""
    refused: str | None
    tables: Sequence[str]
    """The names that the query reads from."""
    columns: Sequence[QueryColumn]
    rows: Sequence[Sequence[Any]]
    """Whole numbers exact; a text that is too long as `{"cut": its beginning, "size": its length}`."""
    more: bool
    milliseconds: int
    as_of_ms: int | None = None
    """The topics as they were then; None: as they are."""
    compacted: bool = False
    """Without the records that no compactor has touched."""


def routes(console: Console, tables: ClusterTables) -> list[Route]:
    pages = _TablePages(console, tables)
    page = console.pages.page
    return [
        *page("/topics/{name}/table", "topic_table.html", pages.table),
        *page("/topics/{name}/sql", "topic_sql.html", pages.sql),
        Route("/topics/{name}/sql/{format}", pages.save, methods=["GET"]),
    ]


def first_query(topic: str) -> str:
    return (
        'select partition, "offset", timestamp, decode(key) as key, decode(value) as value\n'
        f"from {quoted(topic)}\norder by timestamp desc\nlimit 100"
    )


def row_query(topic: str, partition: int, offset: int) -> str:
    """The row of one record."""
    return f'select * from {quoted(topic)} where partition = {partition} and "offset" = {offset}'


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _TablePages:
    def __init__(self, console: Console, tables: ClusterTables) -> None:
        self._console = console
        self._brokers = console.brokers
        self._tables = tables

    def _permitted(self, as_of_ms: int | None, compacted: bool) -> TableQueries:
        tails = None if compacted else self._tables.tails
        return TableQueries(self._tables.source, self._tables.locations, self._may_read, as_of_ms, tails)

    async def _may_read(self, topic: str) -> UUID:
        """A fetch with the identity that the console has says whether the topic's records may be read. If
        parts of them are hidden, a query could ask for what is behind the mask, bit by bit."""
        reader = self._console.reader(topic)
        if reader.mask is not None:
            raise SqlRefused(f"parts of {topic} are hidden here, so there is no SQL over it")
        try:
            return await reader.probe()
        except (NoSuchTopic, RequestFailed) as error:
            raise SqlRefused(str(error)) from error

    async def table(self, request: Request) -> Content:
        topic = await topic_view(self._brokers, named(request), self._console.stored)
        assert self._console.stored is not None
        now = self._brokers.runtime.wall_ms()
        why_not = await self._tables.why_not(topic.name)
        view = await topic_table(self._tables.source, topic, why_not, now, self._console.stored.time_of)
        return Content(view, {"topic": topic, "tab": "table", "statement": first_query(topic.name)})

    async def sql(self, request: Request) -> Content:
        topic = await topic_view(self._brokers, named(request), self._console.stored)
        statement = request.query_params.get("q", "")
        as_of_ms, compacted = _as_of(request), _compacted(request)
        if statement.strip() and came_from(request.scope) in FROM_HERE:
            view = await self._run(topic.name, statement, as_of_ms, compacted)
        else:
            view = SqlView(topic.name, statement, False, None, (), (), (), False, 0, as_of_ms, compacted)
        kinds = [column.kind for column in view.columns]
        names = [printable(column.name) for column in view.columns]
        return Content(
            view,
            {
                "topic": topic,
                "tab": "sql",
                "statement": statement or first_query(topic.name),
                "as_of": request.query_params.get("as_of", ""),
                "names": names,
                "numbers": [is_number(kind) for kind in kinds],
                "cells": [[_shown(value) for value in row] for row in view.rows],
                "links": _links(view),
                "chart": _chart(names, kinds, view.rows),
            },
        )

    async def _run(self, topic: str, statement: str, as_of_ms: int | None, compacted: bool) -> SqlView:
        runtime = self._brokers.runtime
        begun = runtime.monotonic()
        rows: list[list[Any]] = []
        try:
            async with self._tables.queries.run(
                statement, PAGE, self._permitted(as_of_ms, compacted), self._console.principal
            ) as running:
                async for row in running.rows:
                    rows.append([_plain(cell) for cell in row])
        except (SqlRefused, QueriesBusy) as error:
            took = round(1000 * (runtime.monotonic() - begun))
            return SqlView(topic, statement, True, str(error), (), (), (), False, took, as_of_ms, compacted)
        took = round(1000 * (runtime.monotonic() - begun))
        return SqlView(
            topic,
            statement,
            True,
            None,
            running.tables,
            running.columns,
            rows,
            running.more,
            took,
            as_of_ms,
            compacted,
        )

    async def save(self, request: Request) -> Response:
        topic = await topic_view(self._brokers, named(request), self._console.stored)
        form = request.path_params["format"]
        if form not in _FORMATS:
            raise SqlRefused(f"a result is saved as one of {', '.join(_FORMATS)}")
        if came_from(request.scope) not in FROM_HERE:
            raise SqlRefused("open the query on its own page, and run it there")
        permitted = self._permitted(_as_of(request), _compacted(request))
        return _SavedResult(
            self._tables.queries.run(
                request.query_params.get("q", ""), EXPORT, permitted, self._console.principal
            ),
            topic.name,
            form,
        )


def _as_of(request: Request) -> int | None:
    text = request.query_params.get("as_of", "").strip()
    return moment_ms(text) if text else None


def _compacted(request: Request) -> bool:
    return bool(request.query_params.get("compacted"))


class _SavedResult(Response):
    """A result as a file, row by row. The query lives as long as its answer is sent, and no longer."""

    def __init__(self, query: AbstractAsyncContextManager[RunningQuery], topic: str, form: str) -> None:
        super().__init__(status_code=200)
        self._query = query
        self._topic = topic
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._query as running:
            lines = _csv(running) if self._form == "csv" else _json(running)
            headers = {
                "Content-Disposition": saved_as(self._topic, self._form),
                "Cache-Control": "no-store",
            }
            await StreamingResponse(lines, 200, headers, _FORMATS[self._form])(scope, receive, send)


def saved_as(name: str, ending: str) -> str:
    """A name of plain characters: topics may hold others in Kafka's protocol, but no header may."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in name)
    return f'attachment; filename="{plain[:200]}.{ending}"'


async def _csv(running: RunningQuery) -> AsyncIterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([inert(column.name) for column in running.columns])
    async for row in running.rows:
        writer.writerow([_cell(value) for value in map(_plain, row)])
        if text.tell() > _PIECE:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()
    if running.more:
        raise SqlRefused("the result has more rows than a file may have")  # the browser sees a broken file


def _cell(value: Any) -> str:
    """Numbers may begin with a sign: they are what they look like."""
    text = "" if value is None else _text(value)
    return text if isinstance(value, int | float) else inert(text)


async def _json(running: RunningQuery) -> AsyncIterator[str]:
    columns = [{"name": column.name, "kind": column.kind} for column in running.columns]
    pieces = ['{"columns":' + json.dumps(columns) + ',"rows":[']
    size, first = 0, True
    async for row in running.rows:
        line = ("\n" if first else ",\n") + json.dumps([as_plain(_plain(cell)) for cell in row])
        pieces.append(line)
        size, first = size + len(line), False
        if size > _PIECE:
            yield "".join(pieces)
            pieces, size = [], 0
    yield "".join([*pieces, '\n],"more":' + json.dumps(running.more) + "}\n"])


def _plain(cell: Any) -> Any:
    """A cell of the child as this room has it."""
    if not isinstance(cell, list):
        return cell
    return cell[1] if cell[0] == "json" else {"cut": cell[1], "size": cell[2]}


def _text(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str | None:
    """On one line, and nothing in it that moves what stands beside it. None stays None."""
    if value is None:
        return None
    if isinstance(value, dict) and value.keys() == {"cut", "size"}:
        return printable(f"{value['cut']}… ({value['size']} characters)")
    text = _text(value)
    cut = text[:_LONGEST_CELL] + "…" if len(text) > _LONGEST_CELL else text
    return printable(cut)


def _links(view: SqlView) -> list[str | None]:
    """The link to each row's record: known if the query reads one table, and says partition and offset."""
    places = {column.name.lower(): number for number, column in enumerate(view.columns)}
    if len(view.tables) != 1 or not {"partition", "offset"} <= places.keys():
        return [None] * len(view.rows)
    base = f"/topics/{path(view.tables[0])}"
    found: list[str | None] = []
    for row in view.rows:
        partition, offset = row[places["partition"]], row[places["offset"]]
        known = all(
            isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in (partition, offset)
        )
        found.append(f"{base}/{partition}/{offset}" if known else None)
    return found


def _chart(names: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[Any]]) -> Chart | None:
    return chart_of(names, kinds, [[_shown(row[0]), *row[1:]] for row in rows] if names else ())
