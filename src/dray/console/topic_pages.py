"""The pages of topics: their list, and the tabs of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.routing import Route

from dray.console.forms import BadInput, moment_ms, named, whole
from dray.console.rendering import Content
from dray.inspection.costs import Prices, received_by_topic
from dray.inspection.groups import readers_of
from dray.inspection.matching import PLACES, WAYS, matcher
from dray.inspection.offset_map import offset_map
from dray.inspection.reading import NoSuchPartition, NoSuchTopic, TopicReader
from dray.inspection.records import DEFAULT_RECORDS, MOST_RECORDS, RecordsView, newest, onwards, positions_in
from dray.inspection.topics import InspectedTopic, TopicFlow, topic_view, topics_page

if TYPE_CHECKING:
    from dray.console.app import Console
    from dray.inspection.scrape import ScrapeHistory

INT64_MAX: Final = 2**63 - 1
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
    """What the form above the records says."""

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
