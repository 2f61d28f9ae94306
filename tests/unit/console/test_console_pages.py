"""Every page, in every state that it has, with values that nobody would choose."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition

from dray.base.runtime import SystemRuntime
from dray.console.range_pages import kcat_of
from dray.console.rendering import Templates
from dray.console.text import duration, moment, number, price, size
from dray.inspection.cluster import BrokerRow, ClusterSummary, CompactorRow
from dray.inspection.groups.views import (
    ASKED_FOR_TOPIC,
    GroupDetail,
    GroupPartition,
    GroupRow,
    GroupsPage,
    MemberRow,
    TopicReaderRow,
    TopicReaders,
)
from dray.inspection.health import HealthCheck
from dray.inspection.storage.costs import flow_of, stores_view
from dray.inspection.storage.scrape import Sample, ScrapeHistory
from dray.inspection.storage.stored import JobRange, MapPiece, OffsetMap, PartitionMap
from dray.inspection.topics.views import ConfigRow, InspectedTopic, PartitionRow, TopicRow, TopicsPage
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from dray.kafka.records import Record

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;{{ 7 * 7 }}"
BIG = 2**63 - 1


def kafka() -> FakeKafka:
    partition = FakePartition()
    partition.append(
        Record(0, 5, HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode()), ("n", None)]),
        Record(1, BIG, b"\x00\x1b[31m", b'{"big": 9223372036854775807}'),
        Record(2, -1, None, None),
        Record(3, 6, b"", b"x" * 1_000_000),
    )
    found = FakeKafka({"t": [partition, FakePartition()], "empty": [FakePartition()]})
    found.groups = {"g": {("t", 0): 1}, f"a/b {HOSTILE}": {}}
    return found


def tags(text: str) -> list[str]:
    return re.findall(r"<\s*(script|img|iframe|style)\b[^>]*>", text)


@pytest.mark.parametrize(
    "address",
    ["/topics/t", "/topics/t/0/0", "/topics/t?text=script", "/groups", "/topics?filter=%3Cscript%3E"],
)
async def test_hostile_values_are_text(address: str) -> None:
    text = (await ConsoleClient(kafka(), writable=True).get(address)).text
    assert sorted(tags(text)) in (["img", "script", "script"], ["img", "script", "script", "script"]), (
        "only our own"
    )
    assert "49" not in re.sub(r"\?v=\w+", "", text)
    assert "\x1b" not in text
    assert "\x00" not in text


async def test_numbers_are_exact_on_pages_and_in_json() -> None:
    client = ConsoleClient(kafka())
    assert "9223372036854775807" in (await client.get("/topics/t/0/1")).text
    answer = (await client.get("/api/topics/t/0/1")).json
    assert answer["row"]["timestamp"] == str(BIG)
    assert "9223372036854775807" in answer["value"]["text"]


async def test_a_large_record_is_cut_on_the_page_and_whole_as_a_file() -> None:
    client = ConsoleClient(kafka())
    page = await client.get("/topics/t/0/3")
    assert len(page.body) < 400_000
    assert "Only the beginning is shown" in page.text
    saved = await client.get("/topics/t/0/3/value")
    assert saved.body == b"x" * 1_000_000
    assert saved.headers["content-disposition"].startswith("attachment")
    assert saved.headers["content-type"] == "application/octet-stream"
    assert (await client.get("/topics/t/0/2/value")).status == 404


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/topics/none", 404),
        ("/topics/t/0/99", 404),
        ("/topics/t/9/0", 404),
        ("/topics/t/0/99999999999999999999999", 400),
        ("/topics/t?partition=x", 400),
        ("/topics/t?partition=99", 404),
        ("/topics/t?start=offset&offset=-1", 400),
        ("/topics/t?start=time&time=yesterday", 400),
        ("/topics/t?start=nowhere", 400),
        ("/topics/t?after=0:x", 400),
        ("/topics/t?after=7:0", 404),
        ("/topics/t?text=(&way=regex", 400),
        ("/topics/t?count=0", 400),
        ("/topics?page=0", 400),
        ("/groups/none/x/y", 404),
        ("/topics/t/map", 404),
        ("/%ff%fe", 404),
        ("/topics/%00", 404),
    ],
)
async def test_mistakes_have_a_page_that_says_so(address: str, status: int) -> None:
    client = ConsoleClient(kafka())
    assert (await client.get(address)).status == status
    answer = await client.get(f"/api{address}")
    assert answer.status == status
    assert set(answer.json) == {"error", "reason"}


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/topics",
        "/topics?page=99",
        "/topics/t",
        "/topics/empty",
        "/topics/t?start=oldest&text=nothing-like-it",
        "/topics/t?start=time&time=2026-01-31T18:00",
        "/topics/t?start=time&time=9223372036854775807",
        "/topics/t?start=offset&offset=2&partition=0",
        "/topics/t/groups",
        "/topics/empty/groups",
        "/topics/t/settings",
        "/groups",
        "/groups?filter=zzz",
    ],
)
@pytest.mark.parametrize("writable", [True, False])
async def test_every_page_is_html_and_json(address: str, writable: bool) -> None:
    client = ConsoleClient(kafka(), writable=writable)
    page = await client.get(address)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (await client.get(address, if_none_match=page.headers["etag"])).status == 304
    plain = await client.get("/api/cluster" if address == "/" else f"/api{address}")
    assert plain.headers["content-type"] == "application/json"
    assert plain.json


async def test_sensitive_settings_are_never_sent() -> None:
    client = ConsoleClient(kafka(), writable=True)
    for address in ("/topics/t/settings", "/api/topics/t/settings", "/topics/t", "/topics/t/groups"):
        assert b"hunter2" not in (await client.get(address)).body


async def test_ten_thousand_topics_ask_for_the_numbers_of_one_page() -> None:
    many = FakeKafka({f"topic-{n:05d}": [FakePartition()] for n in range(10_000)})
    view = (await ConsoleClient(many).get("/api/topics?filter=99&page=2")).json
    assert (view["total"], view["page"], len(view["rows"])) == (10_000, 2, 50)
    asked = [request for request in many.asked if type(request).__name__ == "ListOffsetsRequest"]
    assert sum(len(request.topics) for request in asked) == 100, "starts and ends of fifty"


async def test_ten_thousand_groups_ask_for_the_offsets_of_one_page() -> None:
    many = FakeKafka({"t": [FakePartition()]})
    many.groups = {f"group-{n:05d}": {("t", 0): 0} for n in range(10_000)}
    view = (await ConsoleClient(many).get("/api/groups")).json
    assert (view["total"], len(view["rows"])) == (10_000, 50)
    [asked] = [request for request in many.asked if type(request).__name__ == "OffsetFetchRequest"]
    assert len(asked.groups) == 50


# --- states that need no cluster: templates from views


class _NoCurves(dict[str, None]):
    def __missing__(self, name: str) -> None:
        return None


def rendered(template: str, view: object, **more: object) -> str:
    more = {
        "curves": _NoCurves(),
        "behind": _NoCurves(),
        "points": [],
        "lag_curve": None,
        "age_curve": None,
    } | more
    shown = dict.fromkeys(("writable", "has_stores", "has_history", "has_tables", "has_runs"), True)
    templates = Templates({"version": "test", "principal": HOSTILE, "bare": False, **shown})
    return templates.render(template, {"view": view, "here": "/", **more})


TOPIC = InspectedTopic(
    HOSTILE,
    "id",
    True,
    [PartitionRow(0, -1, [], None, None, None)],
    [ConfigRow("c", HOSTILE, "topic", True, False, True, HOSTILE)],
)


def test_a_cluster_with_everything_and_with_nothing() -> None:
    row = BrokerRow(BIG, HOSTILE, 1, HOSTILE, BIG, HOSTILE, HOSTILE, 1, "h:1")
    text = rendered(
        "cluster.html",
        ClusterSummary(
            HOSTILE,
            0,
            [row],
            BIG,
            BIG,
            BIG,
            {"Stable": BIG, HOSTILE: 1},
            [CompactorRow(HOSTILE, HOSTILE, 0), CompactorRow("", None, BIG)],
            True,
            [HOSTILE],
        ),
        now=BIG,
    )
    assert number(BIG) in text
    assert html.escape(HOSTILE, quote=False)[:20] in text
    rendered("cluster.html", ClusterSummary("", -1, [], 0, 0, 0, {}, [], False, []), now=0)


def test_a_topic_shows_what_comes_in_and_what_it_costs() -> None:
    row = TopicRow("orders", 1, 1, False, 5, 10**12, None, 2_500_000.0, 0.7561)
    text = rendered("topics.html", TopicsPage([row], 1, 1, 1, 1, ""))
    assert f"{size(2_500_000)}/s" in text
    assert "$0.76" in text


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [(None, "–"), (0.0, "$0"), (0.0001, "under $0.01"), (0.01, "$0.01"), (1234.5, "$1\u202f234.50")],
)
def test_a_price_hides_no_cent(dollars: float | None, shown: str) -> None:
    assert price(dollars) == shown


def test_lists_with_gaps() -> None:
    row = TopicRow("t" * 249, 0, 0, True, None, None, HOSTILE)
    rendered("topics.html", TopicsPage([row], 1, 1, 1, 3, "", HOSTILE))
    rendered("topics.html", TopicsPage([], 0, 0, 1, 1, ""))
    rendered(
        "groups.html",
        GroupsPage([GroupRow(HOSTILE, "classic", "Dead", None, [HOSTILE] * 5, HOSTILE)], 1, 1, 2, 3, HOSTILE),
    )
    rendered("groups.html", GroupsPage([], 0, 0, 1, 1, ""))


def test_a_topic_and_a_map_in_every_state() -> None:
    readers = TopicReaders([TopicReaderRow(HOSTILE, "consumer", "Stable", None, {0: BIG, 1: 0})], 1, 500)
    pieces = [
        MapPiece("parquet", 0, 5, BIG, 1, HOSTILE, 0),
        MapPiece("wal", 5, 7, 1, 9, "", 0),
        MapPiece("newest", 7, 9, 1, 1, "x", 0),
    ]
    full = PartitionMap(0, 1, 0, 9, pieces, JobRange(-4, 7, "CREATED"), 1, 1, 1, 1, 5)
    text = rendered(
        "topic_map.html",
        OffsetMap("t", [full, replace(full, partition=1, pieces=[], start=9, job=None)], 99),
        topic=TOPIC,
        tab="map",
        readers=readers,
    )
    widths = [float(found) for found in re.findall(r'width="([0-9.-]+)"', text)]
    assert all(0 <= width <= 1000 for width in widths)
    assert sum(widths[-6:-3]) <= 1001
    rendered("topic_groups.html", readers, topic=TOPIC, tab="groups")
    rendered("topic_settings.html", TOPIC, topic=TOPIC, tab="settings")


def test_a_group_in_every_state() -> None:
    member = MemberRow(HOSTILE, HOSTILE, HOSTILE, HOSTILE, BIG, BIG)
    rows = [
        GroupPartition("t", 0, BIG, BIG, 0, 0, HOSTILE),
        GroupPartition("t", 1, None, None, None, None, None),
        GroupPartition("t", 2, 5, 9, 4, BIG, None),
    ]
    rendered(
        "group.html",
        GroupDetail(
            HOSTILE, "consumer", "Reconciling", "", -1, HOSTILE, BIG, [member], rows, BIG, BIG, False
        ),
    )
    rendered("group.html", GroupDetail("g", "classic", "Empty", "", 0, "", None, [], [], 0, None, True))


def test_numbers_and_times_for_people() -> None:
    thin = "\u202f"
    assert number(BIG).replace(thin, "") == str(BIG)
    assert [size(n) for n in (0, 999, 1000, 999_999, 1_500_000, BIG)] == [
        f"0{thin}B",
        f"999{thin}B",
        f"1{thin}kB",
        f"1{thin}MB",
        f"1.5{thin}MB",
        f"9.22{thin}EB",
    ]
    assert [moment(n) for n in (0, 1_700_000_000_123, -1, BIG, -5)] == [
        "1970-01-01 00:00:00.000",
        "2023-11-14 22:13:20.123",
        "–",
        str(BIG),
        "-5",
    ]
    assert [duration(n) for n in (None, 0, 999, 61_000, 90_061_000)] == [
        "–",
        "0",
        f"999{thin}ms",
        f"1{thin}min 1{thin}s",
        f"1{thin}d 1{thin}h",
    ]


def test_traffic_and_stores_in_every_state() -> None:
    history = ScrapeHistory(None, SystemRuntime())  # type: ignore[arg-type]
    assert "Nothing is measured yet" in rendered("stores.html", stores_view(history))
    series = {
        ("dray_object_store_seconds_count", (("operation", HOSTILE),)): 5.0,
        ("dray_object_store_failures_total", (("error", "x"), ("operation", HOSTILE))): 2.0,
        ("dray_received_bytes_total", ()): 0.0,
    }
    history.take(Sample(0.0, {"a": {}}, [HOSTILE]))
    history.take(Sample(5.0, {"a": series}, [HOSTILE]))
    text = rendered("stores.html", stores_view(history))
    assert "nothing was sent" in text
    assert tags(text).count("img") == 1
    flow = flow_of(history)
    view = ClusterSummary("c", 0, [], 0, 0, 0, {}, [], True, [], flow)
    assert 'class="curve"' in rendered("cluster.html", view, now=0)
    assert "All is well" in rendered("cluster.html", view, now=0)
    wrong = replace(
        view, health=[HealthCheck(HOSTILE, "bad", HOSTILE), HealthCheck("Stores", "good", "well")]
    )
    text = rendered("cluster.html", wrong, now=0)
    assert "Something is wrong" in text
    assert tags(text).count("img") == 1


async def test_who_may_read_a_topic_sees_it_though_not_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = FakePartition()
    partition.produce(3)
    kafka = FakeKafka({"t": [partition]})

    def refused(_request: object) -> DescribeConfigsResponse:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DescribeConfigsResponse(results=[DescribeConfigsResult(error_code=code)])

    monkeypatch.setattr(kafka, "_describeconfigs", refused)
    client = ConsoleClient(kafka)
    page = await client.get("/topics/t")
    assert (page.status, "key-2" in page.text) == (200, True)
    page = await client.get("/topics/t/settings")
    assert (page.status, "TOPIC_AUTHORIZATION_FAILED" in page.text) == (200, True)


async def test_topics_name_the_groups_that_read_them() -> None:
    found = kafka()
    found.groups = {"slow <b>": {("t", 0): 0}, "quick": {("t", 0): 4}, "elsewhere": {("gone", 0): 1}}
    client = ConsoleClient(found)
    rows = {row["name"]: row["readers"] for row in (await client.get("/api/topics")).json["rows"]}
    assert rows == {"t": [{"group": "slow <b>", "lag": 4}, {"group": "quick", "lag": 0}], "empty": []}
    page = (await client.get("/topics")).text
    assert "slow &lt;b&gt;" in page
    assert "slow <b>" not in page


async def test_some_of_too_many_groups_are_not_taken_for_all() -> None:
    found = kafka()
    found.groups = {f"group-{number}": {("t", 0): 0} for number in range(ASKED_FOR_TOPIC + 1)}
    client = ConsoleClient(found)
    assert (await client.get("/api/topics")).json["rows"][0]["readers"] is None
    assert "Groups, lag" not in (await client.get("/topics")).text


async def test_a_record_can_be_read_and_sent_elsewhere() -> None:
    page = html.unescape((await ConsoleClient(kafka(), writable=True).get("/topics/t/0/1")).text)
    assert "kcat -C -b fake:9092 -t t -p 0 -o 1 -c 1 -J" in page
    [address] = re.findall(r'href="(/topics/t/range[^"]*)"', page)
    view = (await ConsoleClient(kafka(), writable=True).get(f"/api{address}")).json
    assert view["count"]["offsets"] == 1


def test_a_command_for_a_shell_is_quoted() -> None:
    assert kcat_of([("::1", 9092), ("b", 1)], "t; rm -rf *", 0, 5) == (
        "kcat -C -b '[::1]:9092,b:1' -t 't; rm -rf *' -p 0 -o 5 -c 1 -J"
    )
