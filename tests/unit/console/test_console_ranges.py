"""A range of records: its preview, as files, sent once more; and what is hidden of it."""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import json
import re
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition

from dray.console.table_pages import _cell
from dray.inspection.records import producing
from dray.inspection.records.ranges import _cells, inert
from dray.kafka.protocol import ErrorCode
from dray.kafka.records import Record

HOSTILE = b"<script>alert(1)</script>"
BIG = 2**63 - 2


def kafka() -> FakeKafka:
    first, second = FakePartition(), FakePartition()
    first.append(Record(0, 1000, b"k0", HOSTILE, [("h", b"\xff"), ("n", None)]), Record(1, BIG, None, None))
    first.append(Record(2, 2000, b"", b"\x00\xfe"), Record(3, 3000, b"k3", b"x" * 1_000_000))
    second.append(Record(5, 1500, b"k5", b'{"a": 9223372036854775807}'))
    second.start = 5
    return FakeKafka({"t": [first, second], "copy": [FakePartition()], "empty": [FakePartition()]})


async def spans(client: ConsoleClient, query: str) -> Any:
    return (await client.get(f"/api/topics/t/range?{query}")).json


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("start=oldest&end=end", "0:0-4,1:5-6"),
        ("start=oldest&end=until_offset&until_offset=2", "0:0-2,1:5-5"),
        ("start=offset&offset=3&end=end", "0:3-4,1:5-6"),
        ("start=time&time=1500&end=end", "0:1-4,1:5-6"),
        ("start=time&time=1970-01-01T00:00:01.5&end=until_time&until_time=2500&partition=1", "1:5-6"),
        ("start=offset&offset=9223372036854775807&end=end", "0:4-4,1:6-6"),
    ],
)
async def test_a_range_is_what_was_asked_for(query: str, expected: str) -> None:
    view = await spans(ConsoleClient(kafka()), query)
    assert view["range"] == expected


async def test_a_search_is_counted() -> None:
    view = await spans(ConsoleClient(kafka()), "start=oldest&end=end&text=k&where=key")
    assert (view["count"]["matching"], view["count"]["offsets"], view["count"]["looked_at"]) == (3, 5, 5)


async def test_records_are_saved_as_json_lines() -> None:
    saved = await ConsoleClient(kafka()).get("/topics/t/range/jsonl?range=0:0-4,1:5-6")
    assert saved.headers["content-disposition"] == 'attachment; filename="t.jsonl"'
    rows = [json.loads(line) for line in saved.text.splitlines()]
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 5)]
    assert rows[0]["value"] == HOSTILE.decode()
    assert rows[0]["headers"] == [{"key": "h", "value_base64": "/w=="}, {"key": "n", "value": None}]
    assert rows[1]["timestamp"] == str(BIG)
    assert (rows[1]["key"], rows[1]["value"]) == (None, None)
    assert rows[2]["key"] == ""
    assert base64.b64decode(rows[2]["value_base64"]) == b"\x00\xfe"
    assert len(rows[3]["value"]) == 1_000_000
    assert "9223372036854775807" in rows[4]["value"]


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_table_is_a_formula(begin: str) -> None:
    """Spreadsheets would run it, with the rights of whoever opens the file."""
    text = f'{begin}cmd|" /C calc"!A0'
    assert inert(text) == f"'{text}"
    assert _cells(text.encode()) == (f"'{text}", "text")
    assert _cells(None) == ("", "null")
    assert _cells(b"\xff\xef") == ("/+8=", "base64")
    assert _cell(text) == f"'{text}"
    assert (_cell(-1), _cell(-1.5), _cell(None), _cell("a=b")) == ("-1", "-1.5", "", "a=b")


async def test_records_are_saved_as_csv() -> None:
    saved = await ConsoleClient(kafka()).get("/topics/t/range/csv?range=0:0-3&text=k&where=key")
    rows = list(csv.DictReader(io.StringIO(saved.text)))
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [("0", "k0", HOSTILE.decode())]
    saved = await ConsoleClient(kafka()).get("/topics/t/range/csv?range=0:1-3")
    rows = list(csv.DictReader(io.StringIO(saved.text)))
    assert [(row["key_encoding"], row["value_encoding"]) for row in rows] == [
        ("null", "null"),
        ("text", "base64"),
    ]


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/topics/t/range/jsonl?range=x", 400),
        ("/topics/t/range/jsonl?range=0:5-2", 400),
        ("/topics/t/range/jsonl?range=9:0-1", 404),
        ("/topics/t/range/exe?range=0:0-1", 400),
        ("/topics/none/range/csv?range=0:0-1", 404),
        ("/topics/t/range?start=nowhere", 400),
        ("/topics/t/range?start=time&time=x", 400),
        ("/topics/t/range?start=oldest&partition=7", 404),
        ("/topics/t/range?start=oldest&text=(&way=regex", 400),
        ("/topics/t/range", 200),
        ("/topics/empty/range?start=oldest", 200),
    ],
)
async def test_mistakes_are_said(address: str, status: int) -> None:
    assert (await ConsoleClient(kafka(), writable=True).get(address)).status == status


async def test_a_link_from_elsewhere_saves_nothing() -> None:
    client = ConsoleClient(kafka())
    answer = await client.get("/topics/t/range/csv?range=0:0-1", sec_fetch_site="cross-site")
    assert answer.status == 400


async def ended(client: ConsoleClient, location: str) -> Any:
    for _ in range(60_000):
        view = (await client.get(f"/api{location}")).json
        if view["state"] != "running":
            return view
        await asyncio.sleep(0.001)  # it reads in a thread, so turns of the loop say nothing
    raise AssertionError("it does not end")


async def test_a_replay_sends_what_its_preview_showed() -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True)
    page = (await client.get("/topics/t/range?start=oldest&end=end")).text
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
    assert form["range"] == "0:0-4,1:5-6"
    cluster.topics["t"][0].append(Record(4, 1, b"later", b"later"))
    with capture_logs() as logs:
        answer = await client.post("/topics/t/replay", {**form, "target": "copy", "confirm": "copy"})
        assert answer.status == 303
        view = await ended(client, answer.headers["location"])
    assert (view["state"], view["written"], view["looked_at"], view["trouble"]) == ("done", 5, 5, None)
    saved = await client.get("/topics/copy/range/jsonl?range=0:0-5")
    rows = [json.loads(line) for line in saved.text.splitlines()]
    assert [row["timestamp"] for row in rows] == [1000, str(BIG), 2000, 3000, 1500]
    assert rows[0]["headers"] == [{"key": "h", "value_base64": "/w=="}, {"key": "n", "value": None}]
    [line] = [each for each in logs if each["event"] == "console action"]
    assert (line["action"], line["resource"], line["source"], line["range"], line["outcome"]) == (
        "replay records",
        "copy",
        "t",
        "0:0-4,1:5-6",
        "done",
    )
    assert "done" in (await client.get(answer.headers["location"])).text


@pytest.mark.parametrize("change", ["unconfirmed", "no target", "absent", "no range", "too much", "masked"])
async def test_a_replay_that_is_not_what_was_seen_is_refused(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = kafka()
    client = ConsoleClient(cluster, writable=True, masked={"t": "key"} if change == "masked" else None)
    form = {"range": "0:0-4", "target": "copy", "confirm": "copy"}
    if change == "unconfirmed":
        form["confirm"] = "cop"
    elif change == "no target":
        form["target"] = form["confirm"] = ""
    elif change == "absent":
        form["target"] = form["confirm"] = "absent"
    elif change == "no range":
        form["range"] = ""
    elif change == "too much":
        monkeypatch.setattr(producing, "MOST_OFFSETS", 3)
    answer = await client.post("/topics/t/replay", form)
    assert answer.status in (400, 404, 409)
    assert cluster.topics["copy"][0].end == 0


async def test_a_replay_that_fails_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = kafka()
    monkeypatch.setattr(producing, "BATCH_RECORDS", 2)
    sent = 0
    real = cluster._produce

    def failing(request: Any) -> Any:
        nonlocal sent
        sent += 1
        answer = real(request)
        if sent == 2:
            answer.responses[0].partition_responses[0].error_code = ErrorCode.MESSAGE_TOO_LARGE
        return answer

    cluster._produce = failing  # type: ignore[method-assign]
    client = ConsoleClient(cluster, writable=True)
    form = {"range": "0:0-4", "target": "copy", "confirm": "copy"}
    answer = await client.post("/topics/t/replay", form)
    view = await ended(client, answer.headers["location"])
    assert (view["state"], view["written"], view["looked_at"]) == ("failed", 2, 2)
    assert "MESSAGE_TOO_LARGE" in view["trouble"]


async def test_one_replay_at_a_time_and_it_can_be_stopped() -> None:
    cluster = kafka()
    cluster.fetch_bytes = 1
    client = ConsoleClient(cluster, writable=True)
    form = {"range": "0:0-4", "target": "copy", "confirm": "copy"}
    first = await client.post("/topics/t/replay", form)
    assert (await client.post("/topics/t/replay", form)).status == 409
    assert (await client.post(f"{first.headers['location']}/stop")).status == 303
    view = await ended(client, first.headers["location"])
    assert (view["state"], view["written"] < 4) == ("stopped", True)
    assert (await client.get("/replays/99")).status == 404


async def test_what_is_hidden_is_hidden_everywhere() -> None:
    client = ConsoleClient(kafka(), masked={"t": "value; header.h; ~k[0-9]"})
    for address in (
        "/topics/t",
        "/topics/t/0/0",
        "/api/topics/t",
        "/api/topics/t/0/0",
        "/topics/t/0/0/value",
        "/topics/t/0/0/key",
        "/topics/t/range/jsonl?range=0:0-4,1:5-6",
        "/topics/t/range/csv?range=0:0-4,1:5-6",
    ):
        body = (await client.get(address)).body
        assert b"***" in body
        assert not re.search(rb"alert\(1|k0|k5|xxxx|/w==|9223372036854775807|\"ff\"", body), address
    found = (await client.get("/api/topics/t?start=oldest&text=alert")).json
    assert found["rows"] == [], "a search does not find what is behind the mask"
    assert (await spans(client, "start=oldest&text=k5&where=key"))["count"]["matching"] == 0
