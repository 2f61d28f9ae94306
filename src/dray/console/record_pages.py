"""A record's own page, and its bytes to save."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dray.console.forms import named, whole
from dray.console.rendering import Content
from dray.console.table_pages import row_query
from dray.inspection.passport import NoRecord, passport, raw_record
from dray.inspection.reading import FetchedRecord, TopicReader

if TYPE_CHECKING:
    from dray.console.app import Console

INT64_MAX = 2**63 - 1


def routes(console: Console) -> list[Route]:
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
