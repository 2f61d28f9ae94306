"""Compacting a topic now, from the console: asked for on a page of its own, with a line in the log."""

from __future__ import annotations

from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.unit.console.console_client import HOST, ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.base.runtime import SystemRuntime
from dray.broker.topics.compaction_requests import CompactionRequests, RequestState
from dray.broker.topics.model import Topic, TopicSettings, encode_topic
from dray.console import ConsoleSettings, make_app, make_login_app
from dray.console.login import PasswordGate
from dray.inspection.storage.stored import StoredCluster
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore


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


async def test_a_user_who_may_not_alter_the_topic_may_not_ask(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request goes to the store, so a broker is asked first, with the user's own identity."""

    def refused(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        assert (request.validate_only, request.resources[0].configs) == (True, [])
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(error_code=code)])

    monkeypatch.setattr(world.kafka, "_incrementalalterconfigs", refused)
    with capture_logs() as logs:
        answer = await world.client.post("/topics/t/compact")
    assert (answer.status, "TOPIC_AUTHORIZATION_FAILED" in answer.text) == (409, True)
    assert await world.requests.all() == {}
    [line] = [each for each in logs if each["event"] == "console action"]
    assert "TOPIC_AUTHORIZATION_FAILED" in line["outcome"]


async def test_behind_a_login_it_is_asked_for_with_the_users_identity(world: World) -> None:
    asked: list[str] = []

    async def identify(user: str, password: str) -> FakeBrokers:
        asked.append(user)
        return FakeBrokers(world.kafka)

    settings = ConsoleSettings(hosts=frozenset({HOST}), version="test", writable=True)
    runtime = SystemRuntime()
    stored = StoredCluster(world.store, 1, {}, 0)
    world.client.app, sessions = make_login_app(
        settings, lambda parts: PasswordGate(identify, parts), runtime, stored, compactions=world.requests
    )
    answer = await world.client.post("/login", {"user": "alice", "password": "secret"})
    cookie = answer.headers["set-cookie"].partition(";")[0]
    with capture_logs() as logs:
        assert (await world.client.post("/topics/t/compact", cookie=cookie)).status == 303
    [line] = [each for each in logs if each["event"] == "console action"]
    assert (line["principal"], line["outcome"], asked) == ("User:alice", "done", ["alice"])
    assert set(await world.requests.all()) == {"t"}
    await sessions.close()
