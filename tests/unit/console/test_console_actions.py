"""What can be changed, and what comes before it: a preview, a name that is typed, a line in the log."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition


def kafka() -> FakeKafka:
    first, second = FakePartition(), FakePartition()
    first.produce(10)
    second.produce(4)
    found = FakeKafka({"t": [first, second]})
    found.groups = {"g/1": {("t", 0): 6, ("t", 1): 4}}
    return found


def fields(text: str) -> dict[str, str]:
    return dict(re.findall(r'name="(move\.\d+)" value="([^"]*)"', text))


async def test_a_reset_does_what_its_preview_shows() -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True)
    page = await client.get("/groups/g%2F1/reset?to=shift&by=-5")
    assert cluster.groups["g/1"] == {("t", 0): 6, ("t", 1): 4}, "a preview changes nothing"
    view = (await client.get("/api/groups/g%2F1/reset?to=shift&by=-5")).json
    assert [(move["old"], move["new"]) for move in view["moves"]] == [(6, 1), (4, 0)]
    assert (view["read_again"], view["passed_over"]) == (9, 0)
    with capture_logs() as logs:
        answer = await client.post("/groups/g%2F1/reset", {"confirm": "g/1", **fields(page.text)})
    assert (answer.status, answer.headers["location"]) == (303, "/groups/g%2F1")
    assert cluster.groups["g/1"] == {("t", 0): 1, ("t", 1): 0}
    [line] = [each for each in logs if each["event"] == "console action"]
    assert (line["action"], line["resource"], line["outcome"]) == ("reset group", "g/1", "done")
    assert (line["before"], line["after"]) == ({"t-0": 6, "t-1": 4}, {"t-0": 1, "t-1": 0})
    json.dumps(line)


@pytest.mark.parametrize("change", ["moved", "live", "unconfirmed"])
async def test_a_reset_that_is_not_what_was_seen_is_refused(change: str) -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True)
    form = {"confirm": "g/1", **fields((await client.get("/groups/g%2F1/reset?to=earliest")).text)}
    assert len(form) == 3
    if change == "moved":
        cluster.groups["g/1"]["t", 1] = 3
    elif change == "live":
        cluster.states["g/1"] = "Stable"
    else:
        form["confirm"] = "g"
    before = dict(cluster.groups["g/1"])
    answer = await client.post("/groups/g%2F1/reset", form)
    assert answer.status in (400, 409)
    assert cluster.groups["g/1"] == before


async def test_a_live_group_is_not_offered_a_reset() -> None:
    cluster = kafka()
    cluster.states["g/1"] = "Stable"
    text = (await ConsoleClient(cluster, writable=True).get("/groups/g%2F1/reset?to=earliest")).text
    assert "live members" in text
    assert 'action="/groups/g%2F1/reset"' in text, "the preview itself"
    assert "move.1" not in text


async def test_topics_are_created_changed_and_deleted() -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True)
    made = await client.post("/topics", {"name": "new", "partitions": "3", "configs": "a=b\n\nc = d=e"})
    assert (made.status, made.headers["location"], len(cluster.topics["new"])) == (303, "/topics/new", 3)
    created: Any = next(each for each in cluster.asked if type(each).__name__ == "CreateTopicsRequest")
    assert [(each.name, each.value) for each in created.topics[0].configs] == [("a", "b"), ("c", "d=e")]
    assert (await client.post("/topics", {"name": "new"})).status == 409
    assert (await client.post("/topics", {"name": "x", "configs": "nonsense"})).status == 400

    await client.post("/topics/new/settings", {"config": "retention.ms", "value": "5", "act": "set"})
    await client.post("/topics/new/settings", {"config": "retention.ms", "act": "remove"})
    altered = [each for each in cluster.asked if type(each).__name__ == "IncrementalAlterConfigsRequest"]
    changes = [each.resources[0].configs[0] for each in altered]
    assert [(each.name, each.config_operation, each.value) for each in changes] == [
        ("retention.ms", 0, "5"),
        ("retention.ms", 1, None),
    ]

    assert (await client.post("/topics/new/delete", {"confirm": "nwe"})).status == 400
    assert "new" in cluster.topics
    assert (await client.post("/topics/new/delete", {"confirm": "new"})).status == 303
    assert "new" not in cluster.topics


async def test_a_record_is_produced_and_shown() -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True)
    answer = await client.post("/topics/t/records", {"partition": "1", "key": "k", "value": "<v>"})
    assert answer.headers["location"] == "/topics/t/1/4"
    view = (await client.get("/api/topics/t/1/4")).json
    assert (view["key"]["text"], view["value"]["text"]) == ("k", "<v>")
    answer = await client.post("/topics/t/records", {"partition": "1", "key_null": "1", "value_null": "1"})
    view = (await client.get(f"/api{answer.headers['location']}")).json
    assert (view["key"]["kind"], view["value"]["kind"]) == ("null", "null")
    assert (await client.post("/topics/t/records", {"partition": "7"})).status == 404


async def test_a_group_is_deleted_only_by_its_name() -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True)
    assert (await client.post("/groups/g%2F1/delete", {"confirm": ""})).status == 400
    assert (await client.post("/groups/g%2F1/delete", {"confirm": "g/1"})).status == 303
    assert cluster.groups == {}


async def test_what_fails_is_in_the_log_too() -> None:
    with capture_logs() as logs:
        await ConsoleClient(kafka(), writable=True).post("/topics", {"name": "t"})
    [line] = [each for each in logs if each["event"] == "console action"]
    assert "TOPIC_ALREADY_EXISTS" in line["outcome"]
