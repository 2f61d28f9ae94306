"""Pages of records: one of them with its bytes, and a range of them, as a file or sent once more."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dray.console.forms import BadInput, form_of, moment_ms, named, whole
from dray.console.rendering import Content
from dray.console.security import FROM_HERE, came_from, note
from dray.console.table_pages import row_query, saved_as
from dray.inspection.brokers import Brokers
from dray.inspection.records.matching import PLACES, WAYS, Match, matcher
from dray.inspection.records.passport import NoRecord, passport, raw_record
from dray.inspection.records.producing import MOST_OFFSETS, Replays, ReplayView
from dray.inspection.records.ranges import (
    RangeCount,
    Spans,
    count,
    csv_lines,
    json_lines,
    offsets_in,
    spans_in,
    spans_text,
)
from dray.inspection.records.reading import FetchedRecord, NoSuchPartition, TopicReader
from dray.inspection.topics.views import topic_view
from dray.kafka.client import RequestFailed
from dray.kafka.client.records import INT64_MAX

if TYPE_CHECKING:
    from dray.console.app import Console


# --- a record's own page, and its bytes to save


def record_routes(console: Console) -> list[Route]:
    async def record(request: Request) -> Content:
        reader, partition, offset = _asked(request)
        found = await passport(reader, partition, offset, console.stored, console.settings.wal_max_age_ms)
        return Content(
            found,
            {
                "now": console.brokers.runtime.wall_ms(),
                "row_query": row_query,
                "command": kcat_of(console.brokers.bootstrap, found.topic, partition, offset),
            },
        )

    async def key(request: Request) -> Response:
        return _saved(await _bytes(request), request, "key")

    async def value(request: Request) -> Response:
        return _saved(await _bytes(request), request, "value")

    async def _bytes(request: Request) -> FetchedRecord:
        reader, partition, offset = _asked(request)
        found = await raw_record(reader, partition, offset)
        if not isinstance(found, FetchedRecord):
            raise NoRecord(f"the batch of offset {offset} cannot be decoded", 0, 0)
        return found

    def _asked(request: Request) -> tuple[TopicReader, int, int]:
        partition = whole(str(request.path_params["partition"]), "partition", 0, 0, 2**31 - 1)
        offset = whole(str(request.path_params["offset"]), "offset", 0, 0, INT64_MAX)
        return console.reader(named(request)), partition, offset

    place = "/topics/{name}/{partition:int}/{offset:int}"
    return [
        *console.pages.page(place, "record.html", record),
        Route(f"{place}/key", key, methods=["GET"]),
        Route(f"{place}/value", value, methods=["GET"]),
    ]


def kcat_of(bootstrap: Sequence[tuple[str, int]], topic: str, partition: int, offset: int) -> str:
    """A command that prints the same record, for a shell."""
    brokers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in bootstrap)
    return shlex.join(
        ["kcat", "-C", "-b", brokers, "-t", topic, "-p", str(partition), "-o", str(offset), "-c", "1", "-J"]
    )


def _saved(found: FetchedRecord, request: Request, part: str) -> Response:
    """As a file, whatever it holds: a browser never shows it as a page of ours."""
    record = found.record
    data = record.key if part == "key" else record.value
    name = f"{request.path_params['partition']}-{record.offset}-{part}.bin"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    if data is None:
        raise NoRecord(f"the {part} of offset {record.offset} is null", 0, 0)
    return Response(data, 200, headers, "application/octet-stream")


# --- a range: what is in it, as a file, and sent once more


BEGINNINGS: Final = {"oldest": "the first record", "offset": "an offset", "time": "a time"}
ENDINGS: Final = {
    "end": "the end as it is now",
    "until_offset": "before an offset",
    "until_time": "before a time",
}
MOST_EXPORTS: Final = 4
"""At once."""
_FORMATS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
_FIELDS: Final = (
    "partition",
    "start",
    "offset",
    "time",
    "end",
    "until_offset",
    "until_time",
    "where",
    "way",
    "text",
)


class ExportsBusy(Exception):
    """Too many files are written already."""


@dataclass(frozen=True)
class SpanRow:
    partition: int
    start: int
    stop: int


@dataclass(frozen=True)
class RangeView:
    topic: str
    asked: bool
    """Whether a range was asked for: before that there is nothing to preview."""
    spans: Sequence[SpanRow]
    range: str
    """The same as one text, for the next request."""
    count: RangeCount | None
    most_replayed: int
    masked: bool
    """Whether parts of the records are hidden: then they are not replayed."""


def routes(console: Console) -> list[Route]:
    pages = _RangePages(console)
    return [
        *console.pages.page("/topics/{name}/range", "topic_range.html", pages.preview),
        Route("/topics/{name}/range/{format}", pages.export, methods=["GET"]),
    ]


def changing_routes(console: Console, replays: Replays) -> list[Route]:
    acts = _ReplayActs(console, replays)
    return [
        *console.pages.page("/replays/{number:int}", "replay.html", acts.replay),
        Route("/topics/{name}/replay", acts.begin, methods=["POST"]),
        Route("/replays/{number:int}/stop", acts.stop, methods=["POST"]),
    ]


class _RangePages:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._open = 0

    async def preview(self, request: Request) -> Content:
        topic = await topic_view(self._console.brokers, named(request), self._console.stored)
        query = dict(request.query_params)
        reader = self._console.reader(topic.name)
        asked = bool(query.get("start"))
        spans: Spans = {}
        found = None
        if asked:
            spans = await _spans(reader, query)
            found = await count(reader, spans, _match(query))
        rows = [SpanRow(number, start, stop) for number, (start, stop) in sorted(spans.items())]
        view = RangeView(
            topic.name, asked, rows, spans_text(spans), found, MOST_OFFSETS, reader.mask is not None
        )
        given = {name: query.get(name, "") for name in _FIELDS}
        more = {"beginnings": BEGINNINGS, "endings": ENDINGS, "places": PLACES, "ways": WAYS}
        return Content(view, {"topic": topic, "tab": "range", "asked": given, **more})

    async def export(self, request: Request) -> Response:
        form = request.path_params["format"]
        if form not in _FORMATS:
            raise BadInput(f"records are saved as one of {', '.join(_FORMATS)}")
        if came_from(request.scope) not in FROM_HERE:
            raise BadInput("open the range on its own page, and save it from there")
        if self._open >= MOST_EXPORTS:
            raise ExportsBusy(f"{MOST_EXPORTS} files are written already: try again in a moment")
        name, query = named(request), dict(request.query_params)
        spans, match = _given_spans(query), _match(query)
        reader = self._console.reader(name)
        await _known(reader, spans)
        return _SavedRange(self, self._console, name, spans, match, form)

    def opened(self, change: int) -> None:
        self._open += change


class _SavedRange(Response):
    """Records as a file, over connections of their own, which live as long as the answer is sent."""

    def __init__(
        self, pages: _RangePages, console: Console, topic: str, spans: Spans, match: Match | None, form: str
    ) -> None:
        super().__init__(status_code=200)
        self._pages = pages
        self._console = console
        self._topic = topic
        self._spans = spans
        self._match = match
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        brokers = self._console.brokers.apart(30.0)
        self._pages.opened(1)
        try:
            reader = self._console.reader(self._topic, brokers)
            lines = csv_lines if self._form == "csv" else json_lines
            headers = {
                "Content-Disposition": saved_as(self._topic, self._form),
                "Cache-Control": "no-store",
            }
            content = lines(reader, self._spans, self._match)
            await StreamingResponse(content, 200, headers, _FORMATS[self._form])(scope, receive, send)
        finally:
            self._pages.opened(-1)
            await brokers.close()


class _ReplayActs:
    def __init__(self, console: Console, replays: Replays) -> None:
        self._console = console
        self._replays = replays

    async def replay(self, request: Request) -> Content:
        return Content(self._replays.view(request.path_params["number"]))

    async def begin(self, request: Request) -> Response:
        """Sends exactly the range of the preview: what came since is not part of it."""
        name, form = named(request), await form_of(request)
        target = form.get("target", "").strip()
        spans, match = _given_spans(form), _match(form)
        if not target or form.get("confirm") != target:
            raise BadInput("type the name of the topic that the records go to, to confirm the replay")
        reader = self._console.reader(name)
        if reader.mask is not None:
            raise RequestFailed(f"parts of {name} are hidden here: its records are not sent elsewhere")
        await topic_view(self._console.brokers, target)
        await _known(reader, spans)
        view = self._start(name, spans, match, target, form.get("text", ""))
        return RedirectResponse(f"/replays/{view.number}", 303)

    def _start(self, name: str, spans: Spans, match: Match | None, target: str, text: str) -> ReplayView:
        brokers: Brokers = self._console.brokers.apart(30.0)
        about = {"source": name, "range": spans_text(spans), "search": text, "offsets": offsets_in(spans)}
        principal = self._console.principal
        return self._replays.start(
            brokers,
            self._console.reader(name, brokers),
            spans,
            match,
            target,
            lambda: note(principal, "replay records", target, **about),
        )

    async def stop(self, request: Request) -> Response:
        number = request.path_params["number"]
        with note(self._console.principal, "stop replay", str(number)):
            self._replays.stop(number)
        return RedirectResponse(f"/replays/{number}", 303)


async def _spans(reader: TopicReader, query: Mapping[str, str]) -> Spans:
    bounds = await reader.bounds()
    partition = query.get("partition", "")
    chosen = whole(partition, "partition", 0, 0, 2**31 - 1) if partition else None
    if chosen is not None and chosen not in bounds:
        raise NoSuchPartition(f"topic {reader.name} has no partition {chosen}")
    start, end = query.get("start", "oldest"), query.get("end", "end")
    if start not in BEGINNINGS or end not in ENDINGS:
        raise BadInput(f"a range is from {', '.join(BEGINNINGS)} up to {', '.join(ENDINGS)}")
    first: Mapping[int, int] = {}
    last: Mapping[int, int] = {}
    if start == "time":
        first = await reader.at_time(moment_ms(query.get("time", "")))
    elif start == "offset":
        first = dict.fromkeys(bounds, whole(query.get("offset"), "offset", 0, 0, INT64_MAX))
    if end == "until_time":
        last = await reader.at_time(moment_ms(query.get("until_time", "")))
    elif end == "until_offset":
        last = dict.fromkeys(bounds, whole(query.get("until_offset"), "offset", 0, 0, INT64_MAX))
    found = {}
    for number, bound in bounds.items():
        if chosen in (None, number):
            begin = min(max(first.get(number, bound.start), bound.start), bound.end)
            found[number] = begin, max(begin, min(last.get(number, bound.end), bound.end))
    return found


async def _known(reader: TopicReader, spans: Spans) -> None:
    known = await reader.partitions()
    for number in spans:
        if number not in known:
            raise NoSuchPartition(f"topic {reader.name} has no partition {number}")


def _given_spans(query: Mapping[str, str]) -> Spans:
    try:
        return spans_in(query.get("range", ""))
    except ValueError as error:
        raise BadInput("the range cannot be read: look at its preview again") from error


def _match(query: Mapping[str, str]) -> Match | None:
    return matcher(query.get("where") or "any", query.get("way") or "contains", query.get("text", ""))
