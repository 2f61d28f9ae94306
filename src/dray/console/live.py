"""Records as they come, as server-sent events. The id of each event says where every partition stands, so a
browser that was cut off goes on at exactly that place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dray.console.forms import BadInput, named
from dray.console.rendering import as_json
from dray.console.text import moment
from dray.console.topic_pages import Asked, positions_of
from dray.inspection.brokers import BrokerUnreachable
from dray.inspection.plain import as_plain
from dray.inspection.records.matching import Match, matcher
from dray.inspection.records.reading import NoSuchPartition, NoSuchTopic
from dray.inspection.records.search import MOST_PARTITIONS, RecordRow, follow
from dray.kafka.client import ClientError, RequestFailed

if TYPE_CHECKING:
    from dray.console.app import Console

_log = structlog.get_logger(__name__)

MOST_STREAMS: Final = 16
"""At once, over all browsers."""
RETRY_MS: Final = 1000
PARTITIONS_SECONDS: Final = 10.0
"""How often it is asked whether the topic has more partitions."""


def routes(console: Console) -> list[Route]:
    tails = _Tails(console)
    return [Route("/api/topics/{name}/tail", tails.tail, methods=["GET"])]


class _Tails:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._brokers = console.brokers
        self._open = 0

    async def tail(self, request: Request) -> Response:
        if self._open >= MOST_STREAMS:
            return as_json({"error": "Too many live views are open", "reason": "close one first"}, 429)
        name = named(request)
        asked = Asked.of(dict(request.query_params))
        match = matcher(asked.where, asked.way, asked.text)
        positions = await self._positions(name, asked, request.headers.get("last-event-id", ""))
        return StreamingResponse(
            self._events(name, positions, match, whole=asked.partition is None),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def _positions(self, name: str, asked: Asked, last_event: str) -> dict[int, int]:
        reader = self._console.reader(name)
        bounds = await reader.bounds()
        if asked.partition is not None and asked.partition not in bounds:
            raise NoSuchPartition(f"topic {name} has no partition {asked.partition}")
        chosen = list(bounds) if asked.partition is None else [asked.partition]
        if len(chosen) > MOST_PARTITIONS:
            raise BadInput(f"a live view follows at most {MOST_PARTITIONS} partitions: choose one")
        place = last_event or asked.continuation
        if not place:
            return {number: bounds[number].end for number in chosen}
        known = positions_of(place)
        # A partition that is not among them was added since: none of its records have been seen.
        return {number: known.get(number, bounds[number].start) for number in chosen}

    async def _events(
        self, name: str, positions: dict[int, int], match: Match | None, *, whole: bool
    ) -> AsyncIterator[str]:
        """`whole`: of all partitions, also of those that are added. For these it ends: the browser comes back
        at once, and gets a reader for each."""
        self._open += 1
        apart = self._brokers.apart(30.0)
        looked = apart.runtime.monotonic()
        # One that waits holds up what comes after it on its connection: each partition has its own.
        each = {number: self._brokers.apart(30.0) for number in positions}
        readers = {number: self._console.reader(name, brokers) for number, brokers in each.items()}
        try:
            yield f"retry: {RETRY_MS}\n\n" + _event("begun", {"positions": positions}, positions)
            async for piece in follow(readers, positions, apart.runtime, match):
                if piece.gone is not None:
                    yield _event("gone", {"reason": piece.gone}, piece.positions)
                data = {"rows": [_row(row) for row in piece.rows]}
                yield (
                    _event("records", data, piece.positions)
                    if piece.rows
                    else f"id: {_id(piece.positions)}\n:\n\n"
                )
                if whole and apart.runtime.monotonic() - looked >= PARTITIONS_SECONDS:
                    looked = apart.runtime.monotonic()
                    if len(await self._console.reader(name, apart).partitions()) > len(positions):
                        return
        except (ClientError, RequestFailed, BrokerUnreachable, NoSuchTopic, NoSuchPartition) as error:
            yield _event("failed", {"reason": str(error)}, None)
        finally:
            self._open -= 1
            for brokers in (apart, *each.values()):
                await brokers.close()


def _event(kind: str, data: Any, positions: Any) -> str:
    line = json.dumps(as_plain(data), ensure_ascii=True, separators=(",", ":"))
    place = "" if positions is None else f"id: {_id(positions)}\n"
    return f"{place}event: {kind}\ndata: {line}\n\n"


def _id(positions: Any) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in positions.items())


def _row(row: RecordRow) -> dict[str, Any]:
    """Offsets are text, so that a browser shows every digit."""
    return {**as_plain(row), "offset": str(row.offset), "time": moment(row.timestamp)}
