"""What stands before every page."""

from __future__ import annotations

import pytest
from tests.unit.console.console_client import HOST, ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition

from dray.console.security import hosts_of

CHANGING = [
    "/topics",
    "/topics/t/settings",
    "/topics/t/records",
    "/topics/t/delete",
    "/groups/g/reset",
    "/groups/g/delete",
    "/topics/t/replay",
    "/replays/1/stop",
]


def client(*, writable: bool = False) -> ConsoleClient:
    kafka = FakeKafka({"t": [FakePartition()]})
    kafka.groups["g"] = {("t", 0): 0}
    return ConsoleClient(kafka, writable=writable)


@pytest.mark.parametrize(
    "host", ["evil.example:9640", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:9640", ""]
)
async def test_another_host_is_refused(host: str) -> None:
    """A name that somebody made point to this machine would read everything."""
    for address in ("/", "/api/cluster", "/static/app.js"):
        answer = await client().get(address, host=host)
        assert answer.status == 400
        assert b"fake-cluster" not in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "", "origin": "http://evil.example"},
        {"sec_fetch_site": "", "origin": "null"},
        {"sec_fetch_site": "", "origin": f"https://{HOST}"},
        {"sec_fetch_site": "", "origin": ""},
        {"sec_fetch_site": "cross-site", "origin": f"http://{HOST}"},
    ],
)
@pytest.mark.parametrize("address", CHANGING)
async def test_a_foreign_page_changes_nothing(address: str, headers: dict[str, str]) -> None:
    console = client(writable=True)
    answer = await console.post(address, {"confirm": "t", "name": "x"}, **headers)
    assert answer.status == 403


async def test_a_page_of_the_console_may_change_something() -> None:
    for headers in ({"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "", "origin": f"http://{HOST}"}):
        answer = await client(writable=True).post("/topics/t/delete", {"confirm": "other"}, **headers)
        assert answer.status == 400
        assert "type the topic&#39;s name" in answer.text


@pytest.mark.parametrize("address", CHANGING)
async def test_read_only_means_that_there_is_no_such_route(address: str) -> None:
    assert (await client().post(address, {"confirm": "t"})).status in (404, 405)
    form = {"confirm": "?", "name": "new", "config": "retention.ms", "value": "1"}
    assert (await client(writable=True).post(address, form)).status in (303, 400, 404)


async def test_a_read_only_page_offers_nothing_that_changes() -> None:
    for address in (
        "/",
        "/topics",
        "/topics/t",
        "/topics/t/settings",
        "/groups",
        "/groups/g/reset?to=earliest",
    ):
        text = (await client().get(address)).text
        assert 'method="post"' not in text
        assert "/new-topic" not in text
    assert (await client().get("/new-topic")).status == 404
    assert 'method="post"' in (await client(writable=True).get("/topics/t/settings")).text


@pytest.mark.parametrize(
    "address", ["/", "/api/cluster", "/nothing", "/static/console.css", "/topics/none", "/topics/t/0/0/value"]
)
async def test_every_answer_says_what_a_page_may_do(address: str) -> None:
    headers = (await client().get(address)).headers
    policy = headers["content-security-policy"]
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert part in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("address", ["/", "/topics", "/api/topics", "/search?topic=orders"])
async def test_a_browser_keeps_no_page(address: str) -> None:
    """What a user saw is not there for the next one at the same browser."""
    assert "no-store" in (await client().get(address)).headers["cache-control"]


@pytest.mark.parametrize(
    "address", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"]
)
async def test_only_our_files_are_served(address: str) -> None:
    answer = await client().get(address)
    assert answer.status == 404
    assert b"import" not in answer.body


def test_what_a_browser_may_call_the_console() -> None:
    assert hosts_of("127.0.0.1", 9640) == {"127.0.0.1:9640", "localhost:9640", "[::1]:9640"}


async def test_a_form_is_bounded_and_of_its_kind() -> None:
    console = client(writable=True)
    answer = await console.send(
        "POST",
        "/topics",
        b"name=" + b"x" * 2_000_000,
        {"sec_fetch_site": "same-origin", "content-type": "application/x-www-form-urlencoded"},
    )
    assert (answer.status, "bytes" in answer.text) == (400, True)
    answer = await console.post("/topics", {"name": "x"}, **{"content-type": "text/plain"})
    assert answer.status == 400
