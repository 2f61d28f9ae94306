"""Topics that come from another cluster, in the console: how far each is, and what a person has to know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from tests.services.two_builds import MIGRATION
from tests.unit.console.console_client import HOST, Clock, ConsoleClient, OwnBrokers
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.base.runtime import SystemRuntime
from dray.console import ConsoleSettings, make_app, make_login_app
from dray.console.login import PasswordGate
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.topics.links import (
    AFTER_FAILURE_SECONDS,
    FRESH_SECONDS,
    MOST_LOOKS,
    LinkState,
    SourceLooks,
    SourceUnknown,
    link_state,
)
from dray.kafka.client.cluster import Place
from dray.kafka.client.errors import ClientError
from dray.log.entries import HighWatermark
from dray.log.origins import CLASSIC, Origin
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore
from dray.migration.groups.copy import CopiedTopic, CopyState, GroupCopy, encode_copy
from dray.migration.record import (
    NO_TIER,
    MigrationRecord,
    MigrationState,
    SkippedOffsets,
    encode_migration,
)

LINKED = replace(
    MIGRATION,
    state=MigrationState.MIRRORING,
    layout=NO_TIER,
    source="kafka:9092",
    store="",
    upstream="old",
    source_topic_id=UUID(int=6),
    attempt=0,
    streams=(11, 12),
    partitions=2,
)


class Source:
    """The cluster that topics come from."""

    def __init__(self) -> None:
        self.ends: dict[Place, int] = {}
        self.failure: Exception | None = None
        self.asked: list[tuple[str, Sequence[str]]] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, upstream: str, topics: Sequence[str]) -> Mapping[Place, int]:
        self.asked.append((upstream, topics))
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        return {place: end for place, end in self.ends.items() if place[0] in topics}


class World:
    def __init__(self) -> None:
        self.runtime = SystemRuntime()
        self.store = MemoryStore(self.runtime)
        self.source = Source()
        self.kafka = FakeKafka({"orders": [_partition(90), _partition(40)], "plain": [_partition(1)]})
        self.stored = StoredCluster(self.store, 1, {}, 0)
        self.client = ConsoleClient(self.kafka, self.stored)
        self.client.app = make_app(
            ConsoleSettings(hosts=frozenset({HOST}), version="test"),
            FakeBrokers(self.kafka),
            self.stored,
            looks=SourceLooks(self.source.ask, self.runtime),
        )

    async def link(self, record: MigrationRecord, topic: str = "orders") -> None:
        await self.store.write(keys.CLUSTER_DOMAIN, [Put(keys.migration(topic), encode_migration(record))])

    async def stream(self, number: int, end: int, boundary: int) -> None:
        mark = HighWatermark(end, origin=Origin(boundary, 0, 7))
        await self.store.write(0, [Put(keys.high_watermark(number), mark.encode())])

    async def follow(self, group: str, state: CopyState) -> None:
        copy = GroupCopy(state, "old", {"orders": CopiedTopic(UUID(int=5), ())})
        await self.store.write(0, [Put(keys.followed_group(group), encode_copy(copy))])


def _partition(count: int) -> FakePartition:
    found = FakePartition()
    found.produce(count)
    return found


@pytest.fixture
async def world() -> World:
    world = World()
    await world.link(LINKED)
    await world.stream(11, 90, CLASSIC)
    await world.stream(12, 40, CLASSIC)
    world.source.ends = {("orders", 0): 100, ("orders", 1): 40}
    return world


async def test_a_topic_that_is_mirrored_says_how_far(world: World) -> None:
    await world.follow("billing", CopyState.FOLLOWED)
    await world.follow("audit", CopyState.MOVED)
    view = (await world.client.get("/api/topics/orders/link")).json
    assert view["link"] == {
        "topic": "orders",
        "state": "mirroring",
        "upstream": "old",
        "concern": "good",
        "troubles": [],
        "stopped": 0,
        "stragglers": 0,
        "lag": 10,
    }
    assert [(row["here"], row["source_end"], row["lag"], row["boundary"]) for row in view["partitions"]] == [
        (90, 100, 10, None),
        (40, 40, 0, None),
    ]
    assert view["groups"] == {"followed": ["billing"], "moved": ["audit"]}
    page = (await world.client.get("/topics/orders/link")).text
    assert "The source owns it" in page
    assert "kafka:9092" in page
    assert (
        'href="/topics/orders/link">mirroring from old</a>'
        in (await world.client.get("/topics/orders/settings")).text
    )


async def test_what_is_wrong_is_said_on_both_pages(world: World) -> None:
    await world.link(
        replace(
            LINKED,
            stopped={1: "the source's <history> differs"},
            why="partition 0 was not ready",
            undo={"allows_rest": "true"},
        )
    )
    cluster = await world.client.get("/")
    for page in (cluster.text, (await world.client.get("/topics/orders/link")).text):
        assert "1 partition is not mirrored any more: the source&#39;s &lt;history&gt; differs" in page
        assert "he last switch went back: partition 0 was not ready" in page
        assert "he fence at the source is not lifted yet" in page
    view = (await world.client.get("/api/cluster")).json
    [check] = [each for each in view["health"] if each["what"] == "Links"]
    assert check["state"] == "bad"
    assert check["said"].startswith("orders: 1 partition is not mirrored")


async def test_the_cluster_shows_what_is_on_its_way(world: World) -> None:
    await world.link(replace(LINKED, state=MigrationState.MOVED), "plain")
    view = (await world.client.get("/api/cluster")).json
    assert view["links"]["states"] == {"mirroring": 1}
    [row] = view["links"]["rows"]
    assert (row["topic"], row["state"], row["lag"]) == ("orders", "mirroring", 10)
    assert [each["said"] for each in view["health"] if each["what"] == "Links"] == ["1 mirroring"]
    assert world.source.asked == [("old", ["orders"])]


async def test_a_switched_topic_has_no_lag_and_names_its_stragglers(world: World) -> None:
    await world.link(replace(LINKED, state=MigrationState.SWITCHED, switched_ms=5, stragglers={0: 3}))
    await world.stream(11, 120, 100)
    await world.stream(12, 40, 40)
    view = (await world.client.get("/api/topics/orders/link")).json
    assert [(row["boundary"], row["lag"], row["stragglers"]) for row in view["partitions"]] == [
        (100, 0, 3),
        (40, 0, 0),
    ]
    assert (view["link"]["lag"], view["link"]["concern"]) == (0, "unsure")
    [row] = (await world.client.get("/api/cluster")).json["links"]["rows"]
    assert (row["lag"], row["stragglers"]) == (0, 3)
    assert "drayd migrate stragglers orders" in (await world.client.get("/topics/orders/link")).text
    assert world.source.asked == [], "what is Dray's is not asked for at the source"


async def test_a_source_that_does_not_answer_takes_nothing_but_its_numbers(world: World) -> None:
    world.source.failure = ClientError("cannot reach kafka:9092")
    view = (await world.client.get("/api/topics/orders/link")).json
    assert (view["link"]["lag"], view["source_unknown"]) == (None, "cannot reach kafka:9092")
    assert [row["here"] for row in view["partitions"]] == [90, 40]
    cluster = await world.client.get("/")
    assert cluster.status == 200
    assert "old: cannot reach kafka:9092" in cluster.text


async def test_topics_that_are_not_linked_have_no_such_page(world: World) -> None:
    assert (await world.client.get("/topics/plain/link")).status == 404
    assert "/link" not in (await world.client.get("/topics/plain")).text
    await world.store.write(keys.CLUSTER_DOMAIN, [Put(keys.migration("plain"), encode_migration(MIGRATION))])
    assert (await world.client.get("/topics/plain/link")).status == 404, "it was attached, not linked"


async def test_links_of_topics_that_a_user_may_not_see_are_not_shown(world: World) -> None:
    await world.link(LINKED, "hidden")
    assert "hidden" not in (await world.client.get("/api/cluster")).text


async def test_names_of_groups_are_not_shown_behind_a_login(world: World) -> None:
    """Brokers judge who may know of a group, and the store knows no users."""
    await world.follow("billing", CopyState.FOLLOWED)

    async def dial(_name: str, _password: str) -> OwnBrokers:
        return OwnBrokers(world.kafka)

    world.client.app, sessions = make_login_app(
        ConsoleSettings(hosts=frozenset({HOST}), version="test"),
        lambda parts: PasswordGate(dial, parts),
        world.runtime,
        world.stored,
        looks=SourceLooks(world.source.ask, world.runtime),
    )
    answer = await world.client.post("/login", {"user": "ann", "password": "secret"})
    cookie = answer.headers["set-cookie"].split(";")[0]
    view = await world.client.get("/api/topics/orders/link", cookie=cookie)
    assert view.json["group_counts"] == {"followed": 1}
    assert "billing" not in view.text
    await sessions.close()


@pytest.mark.parametrize(
    ("changed", "concern"),
    [
        ({}, "good"),
        ({"skipped": {0: SkippedOffsets(4, 9)}}, "good"),
        ({"why": "w"}, "unsure"),
        ({"undo": {}}, "unsure"),
        ({"stragglers": {0: 1}}, "unsure"),
        ({"stopped": {0: "s"}, "why": "w"}, "bad"),
    ],
)
def test_how_bad_it_is(changed: dict[str, object], concern: str) -> None:
    found: LinkState = link_state("orders", replace(LINKED, **changed))  # type: ignore[arg-type]
    assert found.concern == concern
    assert bool(found.troubles) == bool(changed)


# --- looks at a source


async def test_a_page_does_not_wait_for_a_slow_source() -> None:
    source = Source()
    source.ends = {("t", 0): 5}
    source.answers.clear()
    looks = SourceLooks(source.ask, SystemRuntime())
    assert (await looks.ends("old", ["t"])).unknown == "the source is being asked"
    source.answers.set()
    assert (await looks.ends("old", ["t"])).ends == {("t", 0): 5}
    assert len(source.asked) == 1, "the look that was under way goes on"
    looks.stop()


async def test_a_source_is_asked_now_and_then() -> None:
    source, clock = Source(), Clock()
    looks = SourceLooks(source.ask, clock)
    for seconds, asked in ((0.0, 1), (FRESH_SECONDS - 0.1, 1), (FRESH_SECONDS, 2)):
        clock.now = seconds
        await looks.ends("old", ["t"])
        assert len(source.asked) == asked
    source.failure = SourceUnknown("no such upstream")
    clock.now = 100.0
    assert (await looks.ends("old", ["t"])).unknown == "no such upstream"
    clock.now += AFTER_FAILURE_SECONDS - 0.1
    await looks.ends("old", ["t"])
    assert len(source.asked) == 3, "one that is away is not asked all the time"


async def test_looks_are_bounded() -> None:
    source = Source()
    looks = SourceLooks(source.ask, Clock())
    for number in range(3 * MOST_LOOKS):
        await looks.ends("old", [f"t{number}"])
    await looks.ends("old", ["t0"])
    assert len(source.asked) == 3 * MOST_LOOKS + 1, "the oldest was forgotten"
