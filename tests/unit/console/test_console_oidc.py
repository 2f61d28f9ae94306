"""A console with a login at an OpenID provider: what is believed of it, and how long a session lasts."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs
from tests.services.openid import SECRET, OpenIdServer
from tests.unit.console.console_client import HOST, Answer, Clock, ConsoleClient, OwnBrokers
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition

from dray.base.https import HttpsAddress, HttpsFailed
from dray.broker.security.failed_logins import FREE
from dray.broker.security.oidc import KEPT_SECONDS, LEAST_SECONDS, OidcClient, OpenIdProvider
from dray.broker.security.sasl import REFUSAL_DELAY_SECONDS
from dray.console import ConsoleSettings, make_login_app, oidc_login
from dray.console.login import SWEEP_SECONDS, GateParts
from dray.console.oidc_login import LONGEST_LOGIN, RENEWAL_PAUSE, RENEWED_BEFORE, OidcGate
from dray.inspection.brokers import Brokers, BrokerUnreachable
from dray.kafka.client import AuthenticationFailed
from dray.kafka.client.tokens import HeldToken, TokenCredential, Tokens

ISSUER = "https://login.example"
NOT_BEGUN = "was not begun in this browser"


class OidcClock(Clock):
    def wall_ms(self) -> int:
        return 1_800_000_000_000 + round(self.now * 1000)


class OidcClientOfTests(ConsoleClient):
    """A browser, a console, and a provider without a socket."""

    def __init__(self, *, secure: bool = False, secret: str | None = SECRET, scopes: str = "openid") -> None:
        self.clock = OidcClock()
        self.server = OpenIdServer(ISSUER, secret=secret)
        self.server.now = lambda: self.clock.wall_ms() / 1000
        self.held: list[HeldToken] = []
        self.opened: list[OwnBrokers] = []
        self.failure: Exception | None = None
        client = OidcClient(ISSUER, self.server.client_id, secret, scopes)
        self.provider = OpenIdProvider(client, self.ask, self.clock)
        settings = ConsoleSettings(
            hosts=frozenset({HOST}), version="test", writable=True, scheme="https" if secure else "http"
        )
        self.app, self.sessions = make_login_app(settings, self.gate_of, self.clock, None)

    def gate_of(self, parts: GateParts) -> OidcGate:
        self.gate = OidcGate(self.provider, self.identify, parts)
        return self.gate

    async def ask(self, at: HttpsAddress, form: bytes | None, headers: tuple[tuple[str, str], ...]) -> bytes:
        await asyncio.sleep(0)
        status, body = self.server.answer(at.path, form, dict(headers).get("Authorization"))
        if status != 200:
            raise HttpsFailed(f"it answered with status {status}")
        return body

    async def identify(self, held: HeldToken) -> Brokers:
        if self.failure is not None:
            raise self.failure
        self.held.append(held)
        brokers = OwnBrokers(FakeKafka({f"topic-of-{self.server.user}": [FakePartition()]}))
        self.opened.append(brokers)
        return brokers

    async def begin(self, address: str = "/login/begin", **headers: str) -> tuple[str, str]:
        """Where the browser is sent to, and its cookie."""
        answer = await self.get(address, **headers)
        assert answer.status == 303, answer.text
        return answer.headers["location"], cookie_of(answer)

    async def come_back(self, address: str, cookie: str, **headers: str) -> Answer:
        parts = urlsplit(address)
        return await self.get(f"{parts.path}?{parts.query}", cookie=cookie, **headers)

    async def log_in(self, address: str = "/login/begin") -> Answer:
        there, cookie = await self.begin(address)
        return await self.come_back(self.server.authorize(there), cookie, sec_fetch_site="cross-site")


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def session_of(client: OidcClientOfTests) -> Any:
    [session] = client.sessions._known.values()
    return session


async def logged_in(client: OidcClientOfTests) -> str:
    """The cookie of a session."""
    answer = await client.log_in()
    assert answer.status == 200, answer.text
    return cookie_of(answer)


@pytest.mark.parametrize("secret", [SECRET, None])
async def test_a_login_goes_to_the_provider_and_back(secret: str | None) -> None:
    client = OidcClientOfTests(secret=secret, scopes="openid profile")
    page = await client.get("/login?next=/topics")
    assert "Log in with login.example" in page.text
    assert 'href="/login/begin?next=%2Ftopics"' in page.text
    assert "Password" not in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    with capture_logs() as logs:
        there, cookie = await client.begin("/login/begin?next=/topics")
        assert there.startswith(f"{ISSUER}/authorize?")
        asked = parse_qs(urlsplit(there).query)
        assert asked["redirect_uri"] == [f"http://{HOST}/login/callback"]
        assert asked["scope"] == ["openid profile"]
        answer = await client.come_back(client.server.authorize(there), cookie, sec_fetch_site="cross-site")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    assert 'content="0; url=/topics"' in answer.text, "led on by our own page: the cookie is for those alone"
    assert [held.text for held in client.held] == [client.server.given[-1]]
    assert (session_of(client).user, len(client.gate.under_way)) == ("app", 0)
    for secret_text in (
        *client.server.given,
        SECRET,
        cookie.partition("=")[2],
        *asked["state"],
        *asked["nonce"],
    ):
        assert secret_text not in repr(logs)
    assert {each.get("principal") for each in logs} == {"User:app"}


async def test_a_session_is_the_users_own_until_they_leave() -> None:
    client = OidcClientOfTests()
    assert (await client.get("/topics")).status == 303
    cookie = await logged_in(client)
    view = (await client.get("/api/topics", cookie=cookie)).json
    assert [row["name"] for row in view["rows"]] == ["topic-of-app"]
    answer = await client.post("/logout", {}, cookie=cookie)
    assert answer.headers["location"] == "/login?left=1"
    assert (await client.get("/api/topics", cookie=cookie)).status == 401
    assert client.opened[0].closed


async def test_a_user_who_left_can_leave_the_provider_too() -> None:
    client = OidcClientOfTests(secure=True)
    client.server.discovered = {"end_session_endpoint": f"{ISSUER}/end?tenant=a"}
    page = (await client.get("/login?left=1")).text
    assert "You are logged out here" in page
    assert 'href="/login/end"' in page
    answer = await client.get("/login/end", sec_fetch_site="same-origin")
    there = urlsplit(answer.headers["location"])
    assert (answer.status, there.netloc, there.path) == (303, "login.example", "/end")
    assert parse_qs(there.query) == {
        "tenant": ["a"],
        "client_id": [client.server.client_id],
        "post_logout_redirect_uri": [f"https://{HOST}/login"],
    }
    answer = await client.get("/login/end", sec_fetch_site="cross-site")
    assert (answer.status, "location" in answer.headers) == (200, False), "another site ends nothing"
    assert "You are logged out here" not in (await client.get("/login")).text


@pytest.mark.parametrize("named", [{}, {"end_session_endpoint": "http://login.example/end"}])
async def test_a_provider_without_a_logout_says_so_and_takes_logins(named: dict[str, str]) -> None:
    client = OidcClientOfTests()
    client.server.discovered = named
    answer = await client.get("/login/end", sec_fetch_site="same-origin")
    assert (answer.status, "end_session_endpoint" in answer.text) == (503, True)
    assert (await client.log_in()).status == 200


@pytest.mark.parametrize("secure", [False, True])
async def test_the_cookie_of_a_login_is_short_lived_and_for_this_host_alone(secure: bool) -> None:
    client = OidcClientOfTests(secure=secure)
    answer = await client.get("/login/begin")
    given = answer.headers["set-cookie"]
    name = "__Host-dray-login" if secure else "dray-login"
    assert given.startswith(f"{name}=")
    for part in ("HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax"):
        assert part in given
    assert given.endswith("; Secure") == secure
    scheme = "https" if secure else "http"
    assert f"redirect_uri={scheme}%3A%2F%2F" in answer.headers["location"]


async def test_only_who_began_a_login_ends_it() -> None:
    client = OidcClientOfTests()
    there, cookie = await client.begin()
    back = client.server.authorize(there)
    _, of_another = await client.begin()
    state = parse_qs(urlsplit(back).query)["state"][0]
    for address, given in (
        (back, ""),
        (back, of_another),
        (back, "dray-login="),
        (back.replace(state, "0" * 64), cookie),
        ("/login/callback?code=x", cookie),
        ("/login/callback?error=access_denied&state=x", cookie),
    ):
        answer = await client.come_back(address, given)
        assert (answer.status, NOT_BEGUN in answer.text) == (400, True)
        assert "set-cookie" not in answer.headers
    assert "/token" not in client.server.asked
    assert (await client.come_back(back, cookie)).status == 200, "and the others have not spoiled it"
    answer = await client.come_back(back, cookie)
    assert (answer.status, len(client.sessions)) == (400, 1), "once"


async def test_a_login_that_takes_too_long_is_over() -> None:
    client = OidcClientOfTests()
    there, cookie = await client.begin()
    client.clock.now += LONGEST_LOGIN + 1
    assert (await client.come_back(client.server.authorize(there), cookie)).status == 400


async def test_logins_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc_login, "MOST_UNDER_WAY", 3)
    client = OidcClientOfTests()
    begun = [await client.begin() for _ in range(5)]
    assert len(client.gate.under_way) == 3
    statuses = [(await client.come_back(client.server.authorize(there), c)).status for there, c in begun]
    assert statuses == [400, 400, 200, 200, 200]


async def test_a_foreign_page_begins_no_login() -> None:
    client = OidcClientOfTests()
    answer = await client.get("/login/begin", sec_fetch_site="cross-site")
    assert (answer.status, client.server.asked, len(client.gate.under_way)) == (200, [], 0)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another-client"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"azp": "another-client"}, "another client"),
        ({"iss": "https://login.example/"}, "another issuer"),
        ({"exp": 1_800_000_000 - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "has no sub"),
        ({"sub": ""}, "has no sub"),
    ],
)
async def test_an_id_token_must_be_for_this_login(said: dict[str, Any], reason: str) -> None:
    client = OidcClientOfTests()
    client.server.said = said
    answer = await client.log_in()
    assert (answer.status, reason in answer.text, client.held) == (401, True, [])
    assert (len(client.sessions), "set-cookie" in answer.headers) == (0, False)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_an_id_token_must_be_signed_by_a_key_of_the_provider(algorithm: str) -> None:
    client = OidcClientOfTests()
    client.server.algorithm = algorithm
    answer = await client.log_in()
    assert (answer.status, "not good" in answer.text, client.held) == (401, True, [])


async def test_a_key_that_is_new_is_fetched_at_a_bounded_rate() -> None:
    client = OidcClientOfTests()
    assert (await client.log_in()).status == 200
    client.server.signed_by = "two"
    client.clock.now += LEAST_SECONDS + 1
    assert (await client.log_in()).status == 401, "not published"
    fetched = client.server.asked.count("/keys")
    assert (await client.log_in()).status == 401
    assert client.server.asked.count("/keys") == fetched
    client.server.published = ["one", "two"]
    client.clock.now += LEAST_SECONDS + 1
    assert (await client.log_in()).status == 200
    fetched = client.server.asked.count("/keys")
    assert (await client.log_in()).status == 200
    assert client.server.asked.count("/keys") == fetched
    client.clock.now += KEPT_SECONDS
    assert (await client.log_in()).status == 200
    assert client.server.asked.count("/keys") == fetched + 1


@pytest.mark.parametrize(
    ("answered", "reason"),
    [
        ({"id_token": None}, "no id token"),
        ({"access_token": None}, "no access token"),
        ({"access_token": "x" * 70_000}, "no access token"),
        ({"token_type": "DPoP"}, "no bearer token"),
        ({"expires_in": "soon"}, "how long"),
        ({"expires_in": -1}, "how long"),
    ],
)
async def test_an_answer_without_a_usable_token_is_no_login(answered: dict[str, Any], reason: str) -> None:
    client = OidcClientOfTests()
    client.server.answered = answered
    answer = await client.log_in()
    assert (answer.status, reason in answer.text, client.held) == (401, True, [])


async def test_a_code_of_another_login_is_refused() -> None:
    """PKCE: the code was given to who has the verifier."""
    client = OidcClientOfTests()
    first, _ = await client.begin()
    second, cookie = await client.begin()
    code = parse_qs(urlsplit(client.server.authorize(first)).query)["code"][0]
    state = parse_qs(urlsplit(second).query)["state"][0]
    answer = await client.get(f"/login/callback?code={code}&state={state}", cookie=cookie)
    assert (answer.status, "status 400" in answer.text, "script>" in answer.text.partition("alert")[2]) == (
        401,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("discovered", "reason"),
    [
        ({"issuer": "https://login.example/"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"authorization_endpoint": "http://login.example/authorize"}, "authorization_endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({"authorization_endpoint": "https://login.example/\r\nX: y"}, "authorization_endpoint"),
        ({"token_endpoint": "http://127.0.0.1/token"}, "token_endpoint"),
        ({"jwks_uri": None}, "jwks_uri"),
    ],
)
async def test_a_provider_must_be_the_configured_one_and_have_tls(
    discovered: dict[str, Any], reason: str
) -> None:
    client = OidcClientOfTests()
    client.server.discovered = discovered
    answer = await client.get("/login/begin")
    assert (answer.status, reason in answer.text) == (503, True)
    assert "location" not in answer.headers


async def test_a_provider_that_is_down_is_one_line_and_asked_seldom() -> None:
    client = OidcClientOfTests()
    client.server.down = True
    for _ in range(3):
        answer = await client.get("/login/begin?next=/topics")
        assert (answer.status, "status 503" in answer.text, "down</b>" in answer.text) == (503, True, False)
        assert "next=%2Ftopics" in answer.text, "and the next attempt leads where this one did"
    assert len(client.server.asked) == 1
    client.server.down = False
    client.clock.now += LEAST_SECONDS + 1
    there, cookie = await client.begin()
    client.server.down = True
    assert (await client.come_back(client.server.authorize(there), cookie)).status == 401


@pytest.mark.parametrize("error", ["access_denied", "<script>alert(1)</script>"])
async def test_what_the_provider_refuses_is_said_in_our_own_words(error: str) -> None:
    client = OidcClientOfTests()
    there, cookie = await client.begin()
    state = parse_qs(urlsplit(there).query)["state"][0]
    with capture_logs() as logs:
        answer = await client.get(
            f"/login/callback?error={error}&error_description=%3Cb%3Eevil&state={state}", cookie=cookie
        )
    assert (answer.status, "refused the login" in answer.text) == (401, True)
    for said in (answer.text, repr(logs)):
        assert "evil" not in said
        assert "alert(1)" not in said


async def test_the_cluster_judges_the_token() -> None:
    client = OidcClientOfTests()
    client.failure = AuthenticationFailed("broker refused the token")
    answer = await client.log_in()
    assert (answer.status, "The cluster refused" in answer.text, len(client.sessions)) == (401, True, 0)
    client.failure = BrokerUnreachable("cannot reach broker:9092")
    answer = await client.log_in()
    assert (answer.status, "does not answer" in answer.text) == (503, True)


async def test_logins_that_fail_lock_nobody_out() -> None:
    """Their address has one turn at a time; others, and its own next one, come in."""
    client = OidcClientOfTests()
    client.server.said = {"aud": "another"}
    for _ in range(FREE + 20):
        assert (await client.log_in()).status == 401
    assert client.gate._turns._most_of("") == 1
    assert client.gate._turns._most_of("192.0.2.1") > 1
    client.server.said = {}
    assert (await client.log_in()).status == 200


async def test_refused_logins_take_turns_and_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a line of the log, which anybody could write as fast as they like."""
    client = OidcClientOfTests()
    pausing, paused = 0, []

    async def sleep(seconds: float) -> None:
        nonlocal pausing
        pausing += 1
        paused.append((pausing, seconds))
        for _ in range(10):
            await asyncio.sleep(0)
        pausing -= 1

    monkeypatch.setattr(client.clock, "sleep", sleep)
    begun = [await client.begin() for _ in range(FREE + 5)]
    states = [parse_qs(urlsplit(there).query)["state"][0] for there, _ in begun]
    answers = await asyncio.gather(
        *(
            client.get(f"/login/callback?error=access_denied&state={state}", cookie=cookie)
            for state, (_, cookie) in zip(states, begun, strict=True)
        )
    )
    assert [answer.status for answer in answers] == [401] * (FREE + 5)
    assert len(paused) == FREE + 5
    assert max(at_once for at_once, _ in paused) <= 4
    assert {seconds for _, seconds in paused} == {REFUSAL_DELAY_SECONDS}


async def test_a_session_ends_with_its_token() -> None:
    client = OidcClientOfTests()
    cookie = await logged_in(client)
    client.clock.now += client.server.seconds - 1
    assert (await client.get("/", cookie=cookie)).status == 200
    client.clock.now += 1
    assert (await client.get("/", cookie=cookie)).status == 303
    await client.sessions.sweep()
    assert (len(client.sessions), client.opened[0].closed) == (0, True)


async def test_a_refresh_token_lets_a_session_go_on() -> None:
    client = OidcClientOfTests()
    client.server.refreshes = True
    cookie = await logged_in(client)
    [held] = client.held
    tokens = Tokens(TokenCredential(held), client.clock)
    first = await tokens.token()
    client.clock.now += client.server.seconds - RENEWED_BEFORE - 1
    assert (await client.get("/", cookie=cookie)).status == 200
    assert client.server.asked.count("/token") == 1, "not before it is time"
    client.clock.now += 2
    both = await asyncio.gather(client.get("/", cookie=cookie), client.get("/topics", cookie=cookie))
    assert [answer.status for answer in both] == [200, 200]
    assert client.server.asked.count("/token") == 2, "once for both"
    second = await tokens.token()
    assert second not in (first, "")
    client.clock.now += client.server.seconds - 1
    await client.sessions.renew()
    assert await tokens.token() not in (first, second)


async def test_a_live_view_needs_no_request_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    client = OidcClientOfTests()
    client.server.refreshes = True
    await logged_in(client)
    slept = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds == SWEEP_SECONDS:
            slept.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(client.clock, "sleep", sleep)
    client.clock.now += client.server.seconds - 1
    client.sessions.start()
    await slept.wait()
    assert (client.server.asked.count("/token"), len(client.sessions)) == (2, 1)
    await client.sessions.close()


async def test_a_refresh_that_takes_long_is_not_begun_twice() -> None:
    """A refresh token is often good once."""
    client = OidcClientOfTests()
    client.server.refreshes = True
    await logged_in(client)
    client.clock.now += client.server.seconds - RENEWED_BEFORE + 1
    first = asyncio.create_task(client.sessions.renew())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    client.clock.now += RENEWAL_PAUSE + 1
    await client.sessions.renew()
    await first
    assert client.server.asked.count("/token") == 2


@pytest.mark.parametrize(
    "after", ["//evil.example/", "https://evil.example", "/logout", "/%5Cevil.example", ""]
)
async def test_a_login_leads_nowhere_else(after: str) -> None:
    answer = await OidcClientOfTests().log_in(f"/login/begin?next={after}")
    assert 'content="0; url=/"' in answer.text


async def test_a_refresh_that_fails_is_tried_again_until_the_token_ends() -> None:
    client = OidcClientOfTests()
    client.server.refreshes = True
    cookie = await logged_in(client)
    client.clock.now += client.server.seconds - RENEWED_BEFORE + 1
    client.server.down = True
    with capture_logs() as logs:
        for _ in range(3):
            assert (await client.get("/", cookie=cookie)).status == 200
    assert [each["action"] for each in logs if "action" in each] == ["renew the token"]
    assert not any(secret in repr(logs) for secret in client.server.given)
    client.clock.now += RENEWAL_PAUSE
    client.server.down = False
    assert (await client.get("/", cookie=cookie)).status == 200
    client.server.down = True
    client.clock.now += client.server.seconds + 1
    assert (await client.get("/", cookie=cookie)).status == 303


async def test_a_refresh_cannot_change_the_user() -> None:
    client = OidcClientOfTests()
    client.server.refreshes = True
    cookie = await logged_in(client)
    before = client.held[0].text
    client.server.user = "admin"
    client.clock.now += client.server.seconds - 1
    assert (await client.get("/", cookie=cookie)).status == 200
    assert client.held[0].text == before


def test_no_secret_is_shown() -> None:
    shown = repr((OidcClient(ISSUER, "c", "hush"), HeldToken("hush"), TokenCredential(HeldToken("hush"))))
    assert "hush" not in shown


@pytest.mark.parametrize(
    "methods", [None, ["client_secret_basic", "client_secret_post"], ["client_secret_post"]]
)
async def test_the_secret_goes_as_the_provider_takes_it(methods: list[str] | None) -> None:
    client = OidcClientOfTests()
    client.server.discovered = {"token_endpoint_auth_methods_supported": methods}
    assert (await client.log_in()).status == 200
