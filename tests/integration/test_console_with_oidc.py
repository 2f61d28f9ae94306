"""The console with a login at an OpenID provider: its tokens at a real broker, a real browser's cookies."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect
from tests.services.browser import new_context, running_browser
from tests.services.console import ConsoleProcess
from tests.services.dray import DrayProcess, drayd_path
from tests.services.openid import SECRET, OpenIdServer, serving_openid
from tests.services.process import free_port
from tests.services.target import ON_CLUSTER, ON_KAFKA

pytestmark = pytest.mark.skipif(ON_CLUSTER or ON_KAFKA, reason="it is about one broker and its console")

SCOPES = "openid profile"


class ConsoleWithProvider(ConsoleProcess):
    def __init__(self, directory: Path, bootstrap: str, provider: OpenIdServer) -> None:
        super().__init__(directory, bootstrap, "--writable")
        self.provider = provider
        directory.mkdir(parents=True, exist_ok=True)
        self.secret_file = directory / "client.secret"
        self.secret_file.write_text(f"{SECRET}\n")

    def environment(self) -> Mapping[str, str]:
        return dict(super().environment()) | {
            "DRAY_CONSOLE__AUTH": "oidc",
            "DRAY_CONSOLE__OIDC_ISSUER": self.provider.issuer,
            "DRAY_CONSOLE__OIDC_CLIENT_ID": self.provider.client_id,
            "DRAY_CONSOLE__OIDC_CLIENT_SECRET_FILE": str(self.secret_file),
            "DRAY_CONSOLE__OIDC_SCOPES": SCOPES,
        }

    def is_ready(self) -> bool:
        try:
            return Visitor(self).get("/login")[0] == 200
        except OSError:
            return False


class Visitor:
    """A browser, as far as cookies and redirects go."""

    def __init__(self, console: ConsoleWithProvider) -> None:
        self.console = console
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(CookieJar())
        )

    def get(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self.console.address + path))

    def post(self, path: str, form: Mapping[str, str]) -> tuple[int, str]:
        asked = urllib.request.Request(self.console.address + path, urllib.parse.urlencode(form).encode())
        asked.add_header("Origin", self.console.address)
        return self._ask(asked)

    def log_in(self, user: str) -> tuple[int, str]:
        self.console.provider.user = user
        return self.get("/login/begin")

    def topics(self) -> list[str]:
        status, body = self.get("/api/topics")
        assert status == 200, body
        return [row["name"] for row in json.loads(body)["rows"]]

    def _ask(self, asked: urllib.request.Request) -> tuple[int, str]:
        try:
            with self._opener.open(asked, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleWithProvider]:
    directory = tmp_path_factory.mktemp("oidc")
    with serving_openid() as provider:
        secure = f"127.0.0.1:{free_port()}"
        listener = {"address": secure, "protocol": "SASL_PLAINTEXT", "mechanisms": ["OAUTHBEARER"]}
        keys = directory / "keys.json"
        keys.write_bytes(provider.key_set())
        config = directory / "c.yaml"
        config.write_text(
            f"broker: {{listeners: {{SECURE: {json.dumps(listener)}}}}}\n"
            'security: {authorization: acls, super_users: ["User:admin"]}\n'
            f"oauth: {{key_set_file: {keys}, issuer: '{provider.issuer}', audiences: dray}}\n"
        )
        broker = DrayProcess(directory / "broker", arguments=["--config", str(config)])
        allow = ["acl", "add", "--allow", "User:app", "-o", "read", "--topic", "app-", "--prefixed"]
        command = [str(drayd_path()), "admin", *allow, "--data-dir", str(broker.data_directory)]
        environment = {**os.environ, **broker.environment()}
        subprocess.run(command, capture_output=True, timeout=240, env=environment, check=True)
        with broker:
            _fill(secure, provider)
            with ConsoleWithProvider(directory / "console", secure, provider) as process:
                yield process
            log = process.log_path.read_text() + broker.log_path.read_text()
    for secret in (SECRET, *(each for each in provider.given if not each.startswith("code-"))):
        assert secret not in log
    assert '"principal": "User:app"' in log


def _token(provider: OpenIdServer, user: str, audience: str) -> str:
    now = int(time.time())
    return provider.signed(
        {"iss": provider.issuer, "sub": user, "aud": audience, "iat": now, "exp": now + 3600}
    )


def _fill(bootstrap: str, provider: OpenIdServer) -> None:
    token = _token(provider, "admin", "dray")
    client: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3600),
    }
    admin = AdminClient(client)
    admin.poll(0.2)
    for made in admin.create_topics([NewTopic("app-orders", 1), NewTopic("salaries", 1)]).values():
        made.result(60)
    producer = Producer(client)
    for topic in ("app-orders", "salaries"):
        producer.produce(topic, f"a record of {topic}")
    assert producer.flush(60) == 0


def test_a_user_sees_what_they_may_until_they_leave(console: ConsoleWithProvider) -> None:
    visitor = Visitor(console)
    status, page = visitor.get("/topics/app-orders")
    assert (status, "Log in with 127.0.0.1" in page, "Password" in page) == (200, True, False)
    assert visitor.get("/api/topics")[0] == 401
    status, page = visitor.log_in("app")
    assert (status, "Logged in" in page) == (200, True), page
    assert visitor.topics() == ["app-orders"]
    status, page = visitor.get("/topics/app-orders/0/0")
    assert (status, "a record of app-orders" in page) == (200, True)
    status, page = visitor.get("/topics/salaries/0/0")
    assert (status in (404, 409), "a record" in page) == (True, False)
    status, page = visitor.post("/topics/app-orders/delete", {"confirm": "app-orders"})
    assert (status, "TOPIC_AUTHORIZATION_FAILED" in page) == (409, True)
    assert visitor.post("/logout", {})[0] == 200
    assert visitor.get("/api/topics")[0] == 401
    assert set(console.provider.scopes) == {SCOPES}


def test_another_user_sees_more_at_the_same_time(console: ConsoleWithProvider) -> None:
    one, other = Visitor(console), Visitor(console)
    one.log_in("app")
    other.log_in("admin")
    assert sorted(other.topics()) == ["app-orders", "salaries"]
    assert one.topics() == ["app-orders"]


def test_brokers_are_shown_the_token_that_was_renewed(console: ConsoleWithProvider) -> None:
    """A change goes over a connection of its own. Brokers refuse the change with a good token, and the token
    itself with a bad one."""
    provider = console.provider
    # So short a token always has less than a minute: the first request renews it.
    provider.refreshes, provider.seconds = True, 45.0
    try:
        for audience, status, said in (
            ("dray", 409, "TOPIC_AUTHORIZATION_FAILED"),
            ("else", 503, "the token"),
        ):
            visitor = Visitor(console)
            visitor.log_in("app")
            provider.answered = {"access_token": _token(provider, "app", audience)}
            given = len(provider.given)
            answer = visitor.post("/topics/app-orders/delete", {"confirm": "app-orders"})
            assert len(provider.given) > given
            assert (answer[0], said in answer[1]) == (status, True), answer
            provider.answered = {}
    finally:
        provider.refreshes, provider.seconds, provider.answered = False, 300.0, {}


def test_a_token_that_the_brokers_refuse_is_no_login(console: ConsoleWithProvider) -> None:
    """The provider's id token is good, and its access token is for another audience."""
    provider = console.provider
    provider.answered = {"access_token": _token(provider, "app", "else")}
    try:
        visitor = Visitor(console)
        status, page = visitor.log_in("app")
        assert (status, "The cluster refused the provider" in page) == (401, True)
        assert visitor.get("/api/topics")[0] == 401
    finally:
        provider.answered = {}


def test_a_browser_that_comes_from_another_site_is_logged_in(console: ConsoleWithProvider) -> None:
    """`localhost` and 127.0.0.1 are two sites: the session's cookie is not sent where the provider's page
    leads."""
    console.provider.user, console.provider.asks_user = "app", True
    with running_browser() as browser:
        context = new_context(browser, base_url=console.address.replace("127.0.0.1", "localhost"))
        page = context.new_page()
        page.goto("/topics/app-orders")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.get_by_role("link", name="Log in with").click()
        page.get_by_role("link", name="Agree").click(timeout=60_000)
        expect(page.get_by_role("heading", name="app-orders")).to_be_visible(timeout=60_000)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("link", name="Log in with")).to_be_visible(timeout=60_000)
        context.close()
    console.provider.asks_user = False
