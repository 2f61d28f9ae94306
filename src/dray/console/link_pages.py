"""The page of a topic that comes from another cluster: how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.routing import Route

from dray.console.audit import CONSOLE
from dray.console.forms import named
from dray.console.rendering import Content
from dray.inspection.links import link_view
from dray.inspection.reading import NoSuchTopic
from dray.inspection.stored import StoredCluster
from dray.inspection.topics import topic_view

if TYPE_CHECKING:
    from dray.console.app import Console


def routes(console: Console, stored: StoredCluster) -> list[Route]:
    async def link(request: Request) -> Content:
        topic = await topic_view(console.brokers, named(request), stored)
        # Brokers judge who may know of a group; the store, which is read here, knows no users.
        found = await link_view(
            console.brokers,
            stored,
            console.looks,
            topic.name,
            names_groups=console.principal == CONSOLE,
        )
        if found is None:
            raise NoSuchTopic(f"topic {topic.name} does not come from another cluster")
        return Content(found, {"topic": topic, "tab": "link"})

    return console.pages.page("/topics/{name}/link", "topic_link.html", link)
