"""Compacting a topic now, from the console: asked for on a page of its own, with a line in the log."""

from __future__ import annotations

from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.unit.console.console_client import HOST, ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.console import ConsoleSettings, make_app
from dray.inspection.stored import StoredCluster
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore
from dray.runtime import SystemRuntime
from dray.topics.compaction_requests import CompactionRequests, RequestState
from dray.topics.model import Topic, encode_topic
from dray.topics.settings import TopicSettings


class World:
    def __init__(self) -> None:
        runtime = SystemRuntime()
        self.store = MemoryStore(runtime)
        self.requests = CompactionRequests(self.store, runtime)
        partition = FakePartition()
        partition.produce(3)
        self.kafka = FakeKafka({"t": [partition]})
        stored = StoredCluster(self.store, 1, {}, 0)
        self.client = ConsoleClient(self.kafka, stored, writable=True)
        self.client.app = make_app(
            ConsoleSettings(hosts=frozenset({HOST}), version="test", writable=True),
            FakeBrokers(self.kafka),
            stored,
            None,
            compactions=self.requests,
        )


@pytest.fixture
async def world() -> World:
    world = World()
    topic = Topic("t", UUID(int=5), (1,), {}, 0, TopicSettings.of({}, {}))
    await world.store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("t"), encode_topic(topic))])
    return world


async def test_it_is_asked_for_and_shows_how_far_it_is(world: World) -> None:
    client = world.client
    page = await client.get("/topics/t/compact")
    assert "Compact t now" in page.text
    assert "Nothing was asked for lately" in page.text
    assert await world.requests.all() == {}, "looking asks for nothing"
    with capture_logs() as logs:
        answer = await client.post("/topics/t/compact")
    assert (answer.status, answer.headers["location"]) == (303, "/topics/t/compact")
    [line] = [each for each in logs if each["event"] == "console action"]
    assert (line["action"], line["resource"], line["outcome"]) == ("compact topic", "t", "done")
    page = await client.get("/topics/t/compact")
    assert "waiting" in page.text
    assert 'type="submit" class="primary">Compact t now' not in page.text, "it is under way"
    [found] = (await world.requests.all()).values()
    await world.requests.move("t", found, RequestState.RUNNING, why="the catalog <is> down")
    view = (await client.get("/api/topics/t/compact")).json["asked"]
    assert (view["state"], view["partitions"], view["done"]) == ("running", 1, 0)
    assert "the catalog &lt;is&gt; down" in (await client.get("/topics/t/compact")).text


async def test_a_topic_that_the_store_does_not_know(world: World) -> None:
    assert (await world.client.post("/topics/nothing/compact")).status == 404
    assert await world.requests.all() == {}


async def test_another_site_cannot_ask(world: World) -> None:
    answer = await world.client.post("/topics/t/compact", sec_fetch_site="cross-site")
    assert answer.status == 403
    assert await world.requests.all() == {}


async def test_a_console_that_only_shows_has_no_such_address(world: World) -> None:
    client = ConsoleClient(world.kafka, StoredCluster(world.store, 1, {}, 0))
    assert (await client.get("/topics/t/compact")).status == 404
    assert (await client.post("/topics/t/compact")).status in (404, 405)
