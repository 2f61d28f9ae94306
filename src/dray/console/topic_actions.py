"""What can be done to topics: create, change their settings, produce a record, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dray.client.admin import BROKER_DEFAULT, alter_configs, create_topic, delete_topic
from dray.console.audit import note
from dray.console.forms import BadInput, form_of, named, whole
from dray.console.rendering import Content
from dray.console.text import path
from dray.inspection.producing import produce
from dray.inspection.topics import topic_configs

if TYPE_CHECKING:
    from dray.console.app import Console

_MOST_PARTITIONS: Final = 100_000


def routes(console: Console) -> list[Route]:
    actions = _TopicActions(console)
    return [
        *console.pages.page("/new-topic", "new_topic.html", actions.ask_new),
        Route("/topics", actions.create, methods=["POST"]),
        Route("/topics/{name}/settings", actions.alter, methods=["POST"]),
        Route("/topics/{name}/records", actions.produce, methods=["POST"]),
        Route("/topics/{name}/delete", actions.delete, methods=["POST"]),
    ]


class _TopicActions:
    def __init__(self, console: Console) -> None:
        self._brokers = console.brokers
        self._principal = console.principal

    async def ask_new(self, _request: Request) -> Content:
        return Content({})

    async def create(self, request: Request) -> Response:
        form = await form_of(request)
        name = form.get("name", "").strip()
        partitions = whole(form.get("partitions"), "partitions", BROKER_DEFAULT, 1, _MOST_PARTITIONS)
        configs = _configs(form.get("configs", ""))
        async with self._brokers.fresh() as connection:
            with note(self._principal, "create topic", name, partitions=partitions, after=configs):
                await create_topic(connection, name, partitions=partitions, configs=configs)
        return RedirectResponse(f"/topics/{path(name)}", 303)

    async def alter(self, request: Request) -> Response:
        name, form = named(request), await form_of(request)
        config, value = form.get("config", ""), form.get("value", "")
        removed = form.get("act") == "remove"
        before = {row.name: row.value for row in await topic_configs(self._brokers, name)}.get(config)
        async with self._brokers.fresh() as connection:
            with note(
                self._principal,
                "alter topic",
                name,
                config=config,
                before=before,
                after=None if removed else value,
            ):
                await alter_configs(
                    connection, name, {} if removed else {config: value}, [config] if removed else []
                )
        return RedirectResponse(f"/topics/{path(name)}/settings", 303)

    async def produce(self, request: Request) -> Response:
        name, form = named(request), await form_of(request)
        partition = form.get("partition", "")
        key = None if form.get("key_null") else form.get("key", "").encode()
        value = None if form.get("value_null") else form.get("value", "").encode()
        with note(self._principal, "produce record", name, bytes=len(key or b"") + len(value or b"")):
            place = await produce(
                self._brokers,
                name,
                whole(partition, "partition", 0, 0, 2**31 - 1) if partition else None,
                key,
                value,
            )
        return RedirectResponse(f"/topics/{path(name)}/{place[0]}/{place[1]}", 303)

    async def delete(self, request: Request) -> Response:
        name, form = named(request), await form_of(request)
        if form.get("confirm") != name:
            raise BadInput("type the topic's name to confirm that it is deleted")
        async with self._brokers.fresh() as connection:
            with note(self._principal, "delete topic", name):
                await delete_topic(connection, name)
        return RedirectResponse("/topics", 303)


def _configs(text: str) -> Mapping[str, str]:
    """Lines of `name=value`."""
    configs = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"a setting is a line such as retention.ms=3600000, not {line[:80]!r}")
        configs[name.strip()] = value.strip()
    return configs
