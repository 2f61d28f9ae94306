"""Compacting a topic now: asked for on a page of its own, which then says how far it is.

The request goes to the metadata store, which knows no users. So a broker is asked first: to compact a topic,
one has to be allowed to alter it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dray.client.admin import check_may_alter
from dray.console.audit import note
from dray.console.forms import BadInput, form_of, named
from dray.console.rendering import Content
from dray.console.text import path
from dray.inspection.compactions import CompactionProgress, ask_compaction, compaction_of
from dray.inspection.stored import StoredCluster
from dray.inspection.topics import topic_view
from dray.metadata.values import UnreadableValue
from dray.topics.compaction_requests import CompactionRequests, TooManyRequests

if TYPE_CHECKING:
    from dray.console.app import Console


@dataclass(frozen=True)
class CompactionPage:
    asked: CompactionProgress | None


def routes(console: Console, stored: StoredCluster, requests: CompactionRequests) -> list[Route]:
    async def look(request: Request) -> Content:
        topic = await topic_view(console.brokers, named(request), console.stored)
        found = await compaction_of(stored, requests, topic.name)
        return Content(CompactionPage(found), {"topic": topic, "tab": "map"})

    async def ask(request: Request) -> Response:
        name = named(request)
        await form_of(request)
        with note(console.principal, "compact topic", name):
            async with console.brokers.fresh() as connection:
                await check_may_alter(connection, name)
            try:
                await ask_compaction(stored, requests, name)
            except (TooManyRequests, UnreadableValue) as error:
                raise BadInput(str(error)) from error
        return RedirectResponse(f"/topics/{path(name)}/compact", 303)

    return [
        *console.pages.page("/topics/{name}/compact", "topic_compact.html", look),
        Route("/topics/{name}/compact", ask, methods=["POST"]),
    ]
