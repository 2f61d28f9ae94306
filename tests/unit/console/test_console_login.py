"""A console with a login: nothing without a session, and each session with its own identity."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from starlette.requests import Request
from structlog.testing import capture_logs
from tests.unit.console.console_client import HOST, Answer, Clock, ConsoleClient, OwnBrokers
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition

from dray.broker.security.failed_logins import FREE
from dray.console import ConsoleSettings, login, make_login_app
from dray.console.login import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    MOST_OF_A_USER,
    MOST_SESSIONS,
    SWEEP_SECONDS,
    GateParts,
    PasswordGate,
)
from dray.console.security import hosts_of
from dray.inspection.brokers import Brokers, BrokerUnreachable
from dray.kafka.client import AuthenticationFailed

PASSWORD = "correct-horse"


class LoginClient(ConsoleClient):
    """Two users, each of whom sees a cluster of their own."""

    def __init__(self, *, secure: bool = False, behind_proxy: bool = False) -> None:
        self.clock = Clock()
        self.opened: list[OwnBrokers] = []
        self.failure: Exception | None = None
        settings = ConsoleSettings(
            hosts=frozenset({HOST}),
            version="test",
            writable=True,
            scheme="https" if secure else "http",
            behind_proxy=behind_proxy,
        )
        self.app, self.sessions = make_login_app(
            settings, lambda parts: PasswordGate(self.identify, parts), self.clock, None
        )

    async def identify(self, user: str, password: str) -> Brokers:
        if self.failure is not None:
            raise self.failure
        if password != PASSWORD:
            raise AuthenticationFailed(f"broker refused user {user}")
        brokers = OwnBrokers(FakeKafka({f"topic-of-{user}": [FakePartition()]}))
        self.opened.append(brokers)
        return brokers

    async def log_in(
        self, user: str, password: str = PASSWORD, x_forwarded_for: str = "", **form: str
    ) -> Answer:
        given = {"user": user, "password": password, **form}
        return await self.post("/login", given, x_forwarded_for=x_forwarded_for)


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize(
    "address",
    ["/", "/topics", "/topics/t", "/groups", "/topics/t/0/0/value", "/nothing", "/replays/1", "/logout"],
)
async def test_without_a_session_there_is_only_the_login(address: str) -> None:
    client = LoginClient()
    answer = await client.get(address)
    assert answer.status == 303
    assert answer.headers["location"].startswith("/login")
    assert (await client.get(f"/api{address}")).status == 401
    assert (await client.post(address, {"confirm": "t"})).headers["location"] == "/login"
    for cookie in ("dray-session=", "dray-session=" + "0" * 64, "dray-session", "x=y; ;=", '"'):
        assert (await client.get(address, cookie=cookie)).status == 303
    page = await client.get("/login")
    assert (page.status, page.headers["cache-control"]) == (200, "no-store")
    assert "/topics" not in page.text
    assert (await client.get("/static/console.css")).status == 200


async def test_each_user_sees_with_their_own_eyes() -> None:
    client = LoginClient()
    alice, bob = cookie_of(await client.log_in("alice")), cookie_of(await client.log_in("bob"))
    for user, cookie in (("alice", alice), ("bob", bob)):
        view = (await client.get("/api/topics", cookie=cookie)).json
        assert [row["name"] for row in view["rows"]] == [f"topic-of-{user}"]
    assert 'title="You are logged in as User:alice"' in (await client.get("/", cookie=alice)).text
    with capture_logs() as logs:
        await client.post("/topics", {"name": "new"}, cookie=bob)
    [line] = [each for each in logs if each["event"] == "console action"]
    assert (line["principal"], line["action"]) == ("User:bob", "create topic")


@pytest.mark.parametrize("secure", [False, True])
async def test_the_cookie_says_nothing_and_is_for_this_host_alone(secure: bool) -> None:
    client = LoginClient(secure=secure)
    with capture_logs() as logs:
        answer = await client.log_in("alice")
    given = answer.headers["set-cookie"]
    name = "__Host-dray" if secure else "dray-session"
    assert re.fullmatch(rf"{name}=[0-9a-f]{{64}}; HttpOnly; Path=/; SameSite=strict(; Secure)?", given)
    assert given.endswith("; Secure") == secure
    token = cookie_of(answer).partition("=")[2]
    assert token not in repr(vars(client.sessions))
    assert PASSWORD not in repr(logs)
    assert token not in repr(logs)


async def test_a_foreign_page_cannot_log_in_or_out() -> None:
    client = LoginClient()
    cookie = cookie_of(await client.log_in("alice"))
    form = {"user": "mallory", "password": PASSWORD}
    assert (await client.post("/login", form, sec_fetch_site="cross-site")).status == 403
    assert (await client.post("/logout", {}, cookie=cookie, sec_fetch_site="cross-site")).status == 403
    assert (await client.get("/", cookie=cookie)).status == 200


async def test_a_wrong_password_is_refused_and_slowed() -> None:
    client = LoginClient()
    for number in range(FREE):
        answer = await client.log_in("alice", f"guess-{number}")
        assert answer.status == 401
        assert "set-cookie" not in answer.headers
        assert "guess" not in answer.text
    assert (await client.log_in("alice")).status == 429
    client.clock.now += 1.1
    assert (await client.log_in("alice", "guess")).status == 401
    client.clock.now += 1.1
    assert (await client.log_in("alice")).status == 429, "the pause grows"
    client.clock.now += 1.1
    assert (await client.log_in("alice")).status == 303


async def test_who_guesses_locks_nobody_else_out() -> None:
    """20 failures of anybody kept all out: one request in three seconds was enough."""
    client = LoginClient(behind_proxy=True)
    for number in range(50):
        await client.log_in("alice", f"guess-{number}", x_forwarded_for="198.51.100.7")
        await client.log_in(f"user-{number}", "guess", x_forwarded_for="192.0.2.1, 198.51.100.7")
    refused = await client.log_in("alice", x_forwarded_for="192.0.2.1, 198.51.100.7")
    assert refused.status == 429, "what a browser claims to be forwarded for is not believed"
    assert (await client.log_in("alice", x_forwarded_for="198.51.100.7, 192.0.2.1")).status == 303
    assert (await client.log_in("bob", x_forwarded_for="198.51.100.7")).status == 303


async def test_a_proxy_may_say_so_in_a_header_of_its_own() -> None:
    """As HAProxy does. The header before it is the browser's own, and was believed."""
    client, gates = LoginClient(), []

    def gate_of(parts: GateParts) -> PasswordGate:
        gates.append(PasswordGate(client.identify, parts))
        return gates[0]

    settings = ConsoleSettings(hosts=frozenset({HOST}), version="test", behind_proxy=True)
    make_login_app(settings, gate_of, client.clock, None)
    told = [(b"x-forwarded-for", b"192.0.2.1, 192.0.2.2"), (b"x-forwarded-for", b"198.51.100.7")]
    request = Request({"type": "http", "headers": told, "client": ("127.0.0.1", 1)})
    assert gates[0]._address(request) == "198.51.100.7"


async def test_without_a_proxy_nobody_says_where_they_come_from() -> None:
    client = LoginClient()
    for number in range(FREE):
        await client.log_in("alice", "guess", x_forwarded_for=f"192.0.2.{number}")
    assert (await client.log_in("alice", x_forwarded_for="192.0.2.99")).status == 429


async def test_who_logs_in_again_and_again_ends_no_session_of_another() -> None:
    client = LoginClient()
    other = cookie_of(await client.log_in("bob"))
    cookies = [cookie_of(await client.log_in("alice")) for _ in range(MOST_SESSIONS + 10)]
    assert (await client.get("/", cookie=other)).status == 200
    statuses = [(await client.get("/", cookie=cookie)).status for cookie in cookies]
    assert statuses == [303] * (len(cookies) - MOST_OF_A_USER) + [200] * MOST_OF_A_USER
    assert len(client.sessions) == MOST_OF_A_USER + 1


async def test_a_cluster_that_does_not_answer_is_no_wrong_password() -> None:
    client = LoginClient()
    client.failure = BrokerUnreachable("cannot reach broker:9092")
    answer = await client.log_in("alice")
    assert (answer.status, "does not answer" in answer.text) == (503, True)


@pytest.mark.parametrize("form", [{"user": ""}, {"password": ""}, {"user": "a\0b"}, {"user": "x" * 501}])
async def test_a_login_needs_a_user_and_a_password(form: dict[str, str]) -> None:
    client = LoginClient()
    answer = await client.post("/login", {"user": "alice", "password": PASSWORD, **form})
    assert (answer.status, client.opened) == (400, [])


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("/topics/a%2Fb?start=oldest", "/topics/a%2Fb?start=oldest"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/logout", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("", "/"),
    ],
)
async def test_a_login_leads_to_where_one_was_going_and_nowhere_else(after: str, expected: str) -> None:
    answer = await LoginClient().log_in("alice", next=after)
    assert answer.headers["location"] == expected


async def test_a_session_ends() -> None:
    client = LoginClient()
    cookie = cookie_of(await client.log_in("alice"))
    answer = await client.post("/logout", {}, cookie=cookie)
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    assert (await client.get("/", cookie=cookie)).status == 303
    assert client.opened[0].closed, "and its connections"

    idle, old = cookie_of(await client.log_in("bob")), cookie_of(await client.log_in("carol"))
    for _ in range(int(LONGEST_SECONDS / IDLE_SECONDS) * 2 - 1):
        client.clock.now += IDLE_SECONDS / 2
        assert (await client.get("/", cookie=old)).status == 200
    assert (await client.get("/", cookie=idle)).status == 303
    client.clock.now += IDLE_SECONDS
    assert (await client.get("/", cookie=old)).status == 303


async def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "MOST_SESSIONS", 3)
    client = LoginClient()
    cookies = []
    for number in range(3):
        client.clock.now += 1
        cookies.append(cookie_of(await client.log_in(f"user-{number}")))
    assert (await client.get("/", cookie=cookies[0])).status == 200, "used last"
    cookies.append(cookie_of(await client.log_in("user-3")))
    statuses = [(await client.get("/", cookie=cookie)).status for cookie in cookies]
    assert statuses == [200, 303, 200, 200]
    assert [brokers.closed for brokers in client.opened] == [False, True, False, False]


async def test_a_live_view_ends_with_its_session() -> None:
    client = LoginClient()
    cookie = cookie_of(await client.log_in("alice"))
    sent: list[Any] = []
    session = client.sessions.find(cookie.partition("=")[2])
    assert session is not None

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(1)
            if len(sent) == 3:
                await client.sessions.close()

    session.pages = endless
    with pytest.raises(OSError, match="ended"):
        await client.get("/", cookie=cookie)
    assert len(sent) == 3


def test_names_of_a_console_that_others_reach() -> None:
    named = hosts_of("10.0.0.1", 9640, ["Console.example", "other:8443", "[::2]"])
    assert {"10.0.0.1:9640", "console.example", "console.example:9640", "other:8443", "[::2]:9640"} <= named
    assert "other" not in named
    assert "10.0.0.1" not in named


async def test_a_session_samples_the_lag_of_the_groups_it_looked_at_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = LoginClient()
    cookie = cookie_of(await client.log_in("alice"))
    other = cookie_of(await client.log_in("bob"))
    kafka = client.opened[0].kafka
    kafka.topics["topic-of-alice"][0].produce(9)
    for group in ("seen", "not-seen"):
        kafka.groups[group] = {("topic-of-alice", 0): 2}
    assert (await client.get("/groups/seen", cookie=cookie)).status == 200
    [session] = [each for each in client.sessions._known.values() if each.user == "alice"]
    monkeypatch.setattr(session.lags._runtime, "wall_ms", lambda: 2**42)
    kafka.topics["topic-of-alice"][0].produce(4)
    await session.lags.sample()
    history = (await client.get("/api/groups/seen/lag", cookie=cookie)).json["points"]
    assert [point["lag"] for point in history] == [7, 11]
    assert session.lags.points("not-seen") == []
    assert (await client.get("/api/groups/seen/lag", cookie=other)).status == 404, "each has their own"
    task = session.lags._task
    assert task is not None
    await client.sessions.close()
    assert session.lags._task is None


async def test_sessions_that_are_over_end_though_nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LoginClient()
    await client.log_in("alice")
    slept = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == SWEEP_SECONDS:
            slept.set()
        await asyncio.Event().wait()

    client.clock.now += IDLE_SECONDS + 1
    monkeypatch.setattr(client.clock, "sleep", sleep)
    client.sessions.start()
    await slept.wait()
    assert (len(client.sessions), client.opened[0].closed) == (0, True)
    await client.sessions.close()
