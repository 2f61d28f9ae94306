"""The pages of topics: their list, the tabs of one of them, and what may change one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dray.broker.topics.compaction_requests import CompactionRequests, TooManyRequests
from dray.console.forms import BadInput, form_of, moment_ms, named, whole
from dray.console.rendering import Content
from dray.console.security import CONSOLE, note
from dray.console.text import path
from dray.inspection.groups.views import readers_of
from dray.inspection.records.matching import PLACES, WAYS, matcher
from dray.inspection.records.producing import produce
from dray.inspection.records.reading import NoSuchPartition, NoSuchTopic, TopicReader
from dray.inspection.records.search import (
    DEFAULT_RECORDS,
    MOST_RECORDS,
    RecordsView,
    newest,
    onwards,
    positions_in,
)
from dray.inspection.storage.costs import Prices, received_by_topic
from dray.inspection.storage.stored import StoredCluster, offset_map
from dray.inspection.topics.links import link_view
from dray.inspection.topics.views import (
    CompactionProgress,
    InspectedTopic,
    TopicFlow,
    ask_compaction,
    compaction_of,
    topic_configs,
    topic_view,
    topics_page,
)
from dray.kafka.client.admin import BROKER_DEFAULT, alter_configs, check_may_alter, create_topic, delete_topic
from dray.kafka.client.records import INT64_MAX
from dray.metadata.values import UnreadableValue

if TYPE_CHECKING:
    from dray.console.app import Console
    from dray.inspection.storage.scrape import ScrapeHistory


STARTS: Final = ("newest", "oldest", "offset", "time")


def routes(console: Console, history: ScrapeHistory | None = None) -> list[Route]:
    pages = _TopicPages(console, history)
    page = console.pages.page
    found = [
        *page("/topics", "topics.html", pages.listing),
        *page("/topics/{name}", "topic_records.html", pages.records),
        *page("/topics/{name}/groups", "topic_groups.html", pages.groups),
        *page("/topics/{name}/settings", "topic_settings.html", pages.settings),
    ]
    if console.stored is not None:
        found += page("/topics/{name}/map", "topic_map.html", pages.map)
    return found


class _TopicPages:
    def __init__(self, console: Console, history: ScrapeHistory | None) -> None:
        self._console = console
        self._brokers = console.brokers
        self._history = history

    async def listing(self, request: Request) -> Content:
        query = request.query_params
        page = whole(query.get("page"), "page", 1, 1, 10**6)
        flow = None
        if self._history is not None:
            flow = TopicFlow(received_by_topic(self._history) or {}, Prices().of_a_day)
        wanted = query.get("filter", "")[:249]
        return Content(await topics_page(self._brokers, wanted, page, flow=flow))

    async def records(self, request: Request) -> Content:
        topic = await self._topic(request)
        query = dict(request.query_params)
        asked = Asked.of(query)
        reader = self._console.reader(topic.name)
        found = await self._find(reader, topic, asked)
        return Content(
            found,
            {
                "topic": topic,
                "asked": asked,
                "tab": "records",
                "starts": STARTS,
                "places": PLACES,
                "ways": WAYS,
            },
        )

    async def _find(self, reader: TopicReader, topic: InspectedTopic, asked: Asked) -> RecordsView:
        numbers = [row.partition for row in topic.partitions]
        if asked.partition is not None and asked.partition not in numbers:
            raise NoSuchPartition(f"topic {topic.name} has no partition {asked.partition}")
        chosen = numbers if asked.partition is None else [asked.partition]
        match = matcher(asked.where, asked.way, asked.text)
        if asked.continuation:
            return await onwards(reader, positions_of(asked.continuation), asked.count, match)
        if asked.start == "newest" and match is None:
            return await newest(reader, asked.partition, asked.count)
        if asked.start == "time":
            times = await reader.at_time(asked.time_ms)
            positions = {number: times.get(number, 0) for number in chosen}
        else:
            positions = dict.fromkeys(chosen, asked.offset if asked.start == "offset" else 0)
        return await onwards(reader, positions, asked.count, match)

    async def map(self, request: Request) -> Content:
        topic = await self._topic(request)
        assert self._console.stored is not None
        found = await offset_map(self._console.stored, topic.name)
        if found is None:
            raise NoSuchTopic(f"topic {topic.name} is not in the metadata store that the console reads")
        readers = await readers_of(self._brokers, topic.name)
        return Content(found, {"topic": topic, "tab": "map", "readers": readers})

    async def groups(self, request: Request) -> Content:
        topic = await self._topic(request)
        return Content(await readers_of(self._brokers, topic.name), {"topic": topic, "tab": "groups"})

    async def settings(self, request: Request) -> Content:
        topic = await self._topic(request)
        return Content(topic, {"topic": topic, "tab": "settings"})

    async def _topic(self, request: Request) -> InspectedTopic:
        return await topic_view(self._brokers, named(request), self._console.stored)


class Asked:
    """The input of the form above the records."""

    def __init__(
        self,
        *,
        partition: int | None,
        start: str,
        offset: int,
        time: str,
        where: str,
        way: str,
        text: str,
        count: int,
        continuation: str,
    ) -> None:
        self.partition = partition
        self.start = start
        self.offset = offset
        self.time = time
        self.where = where
        self.way = way
        self.text = text
        self.count = count
        self.continuation = continuation

    @classmethod
    def of(cls, query: dict[str, str]) -> Asked:
        partition = query.get("partition", "")
        start = query.get("start", "newest")
        if start not in STARTS:
            raise BadInput(f"start must be one of {', '.join(STARTS)}")
        return cls(
            partition=whole(partition, "partition", 0, 0, 2**31 - 1) if partition else None,
            start=start,
            offset=whole(query.get("offset"), "offset", 0, 0, INT64_MAX),
            time=query.get("time", ""),
            where=query.get("where", "any"),
            way=query.get("way", "contains"),
            text=query.get("text", ""),
            count=whole(query.get("count"), "count", DEFAULT_RECORDS, 1, MOST_RECORDS),
            continuation=query.get("after", ""),
        )

    @property
    def time_ms(self) -> int:
        return moment_ms(self.time)

    def parameters(self, **changed: Any) -> dict[str, Any]:
        """For the address of the same question, some of it changed."""
        given = {
            "partition": self.partition,
            "start": self.start if self.start != "newest" else None,
            "offset": self.offset if self.start == "offset" else None,
            "time": self.time if self.start == "time" else None,
            "where": self.where if self.text and self.where != "any" else None,
            "way": self.way if self.text and self.way != "contains" else None,
            "text": self.text,
            "count": self.count if self.count != DEFAULT_RECORDS else None,
        }
        return given | changed


def positions_of(text: str) -> dict[int, int]:
    try:
        return positions_in(text)
    except ValueError as error:
        raise BadInput("the place to go on from cannot be read") from error


# --- what may change a topic: create it, alter its settings, produce a record, delete it


_MOST_PARTITIONS: Final = 100_000


def changing_routes(console: Console) -> list[Route]:
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


# --- compaction now: asked for on a page of its own, which then says how far it is
# The request goes to the metadata store, which knows no users. So a broker is asked first: to compact a
# topic, one has to be allowed to alter it.


@dataclass(frozen=True)
class CompactionPage:
    asked: CompactionProgress | None


def compaction_routes(console: Console, stored: StoredCluster, requests: CompactionRequests) -> list[Route]:
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


# --- a topic that comes from another cluster: how far it is


def link_routes(console: Console, stored: StoredCluster) -> list[Route]:
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
