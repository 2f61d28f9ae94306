"""The console with a login: over TLS, with users and rights of a real cluster."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, expect
from tests.services.browser import new_context, picture, running_browser
from tests.services.certificates import Certificates, make_certificates
from tests.services.console import ConsoleProcess
from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import free_port
from tests.services.target import ON_CLUSTER, ON_KAFKA

pytestmark = pytest.mark.skipif(ON_CLUSTER or ON_KAFKA, reason="it is about one broker and its console")

NAME = "console.example"
PASSWORD = "correct-horse-battery"


class SecuredBroker(DrayProcess):
    secure: str

    def client(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.secure,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def admin(self, *arguments: str) -> None:
        """Straight in the store: no broker is asked."""
        command = [str(drayd_path()), "admin", *arguments, "--data-dir", str(self.data_directory)]
        subprocess.run(
            command, capture_output=True, timeout=240, env={**os.environ, **self.environment()}, check=True
        )


class ConsoleWithLogin(ConsoleProcess):
    def __init__(self, directory: Path, bootstrap: str, certificates: Certificates) -> None:
        super().__init__(directory, bootstrap, "--writable")
        self._certificates = certificates
        self.address = f"https://127.0.0.1:{self.port}"

    def environment(self) -> Mapping[str, str]:
        return dict(super().environment()) | {
            "DRAY_CONSOLE__AUTH": "sasl",
            "DRAY_CONSOLE__MECHANISM": "SCRAM-SHA-512",
            "DRAY_CONSOLE__HOSTS": NAME,
            "DRAY_CONSOLE__CERTIFICATE_FILE": str(self._certificates.certificate),
            "DRAY_CONSOLE__KEY_FILE": str(self._certificates.key),
            "DRAY_CONSOLE__MASKED": json.dumps({"app-*": "value.card"}),
        }

    def is_ready(self) -> bool:
        try:
            return Visitor(self).get("/login")[0] == 200
        except OSError:
            return False

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._certificates.authority))


class Visitor:
    """A browser, as far as cookies and redirects go."""

    def __init__(self, console: ConsoleWithLogin, host: str | None = None) -> None:
        self.console = console
        self.host = host
        self.jar = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=console.trust),
            urllib.request.HTTPCookieProcessor(self.jar),
        )

    def get(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self.console.address + path))

    def post(self, path: str, form: Mapping[str, str]) -> tuple[int, str]:
        asked = urllib.request.Request(self.console.address + path, urllib.parse.urlencode(form).encode())
        asked.add_header("Origin", self.console.address)
        return self._ask(asked)

    def log_in(self, user: str, password: str = PASSWORD) -> tuple[int, str]:
        return self.post("/login", {"user": user, "password": password})

    def _ask(self, asked: urllib.request.Request) -> tuple[int, str]:
        if self.host is not None:
            asked.add_header("Host", self.host)
        try:
            with self._opener.open(asked, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleWithLogin]:
    directory = tmp_path_factory.mktemp("login")
    secure = f"127.0.0.1:{free_port()}"
    listener = {"address": secure, "protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512"]}
    config = directory / "c.yaml"
    config.write_text(
        f"broker: {{listeners: {{SECURE: {json.dumps(listener)}}}}}\n"
        'security: {authorization: acls, super_users: ["User:admin"]}\n'
    )
    broker = SecuredBroker(directory / "broker", arguments=["--config", str(config)])
    broker.secure = secure
    secret = directory / "password"
    secret.write_text(PASSWORD)
    for user in ("admin", "app"):
        broker.admin("user", "add", user, "--password-file", str(secret))
    broker.admin("acl", "add", "--allow", "User:app", "-o", "read", "--topic", "app-", "--prefixed")
    with broker:
        admin = AdminClient(broker.client("admin"))
        for made in admin.create_topics([NewTopic("app-orders", 1), NewTopic("salaries", 1)]).values():
            made.result(60)
        producer = Producer(broker.client("admin"))
        for topic in ("app-orders", "salaries"):
            producer.produce(topic, json.dumps({"card": "4111-2222", "n": 2**63}))
        assert producer.flush(60) == 0
        with ConsoleWithLogin(directory / "console", secure, make_certificates(directory / "tls")) as process:
            yield process
        log = process.log_path.read_text()
    assert PASSWORD not in log
    assert '"principal": "User:app"' in log


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


def test_nothing_is_seen_before_a_login(console: ConsoleWithLogin) -> None:
    visitor = Visitor(console)
    status, page = visitor.get("/topics/app-orders")
    assert (status, "Password" in page, "4111" in page) == (200, True, False)
    assert visitor.get("/api/topics")[0] == 401
    status, page = visitor.log_in("app", "a wrong password")
    assert (status, "refused this user or password" in page) == (401, True)
    assert not list(visitor.jar)


def test_a_user_sees_what_they_may(console: ConsoleWithLogin) -> None:
    visitor = Visitor(console)
    assert visitor.log_in("app")[0] == 200
    [cookie] = visitor.jar
    assert (cookie.name, cookie.secure) == ("__Host-dray", True)
    view = json.loads(visitor.get("/api/topics")[1])
    assert [row["name"] for row in view["rows"]] == ["app-orders"]
    status, page = visitor.get("/topics/app-orders/0/0")
    assert (status, "9223372036854775808" in page) == (200, True)
    assert "4111" not in page, "masked"
    assert visitor.get("/topics/salaries/0/0")[0] in (404, 409)
    status, page = visitor.post("/topics/app-orders/delete", {"confirm": "app-orders"})
    assert (status, "TOPIC_AUTHORIZATION_FAILED" in page) == (409, True)
    assert visitor.post("/logout", {})[0] == 200
    assert visitor.get("/api/topics")[0] == 401


def test_another_user_sees_more_at_the_same_time(console: ConsoleWithLogin) -> None:
    one, other = Visitor(console), Visitor(console)
    one.log_in("app")
    other.log_in("admin")
    assert len(json.loads(other.get("/api/topics")[1])["rows"]) == 2
    assert len(json.loads(one.get("/api/topics")[1])["rows"]) == 1


def test_only_its_names_are_answered(console: ConsoleWithLogin) -> None:
    assert Visitor(console, NAME).get("/login")[0] == 200
    assert Visitor(console, "evil.example").get("/login")[0] == 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_login_is_fit_for_all(
    console: ConsoleWithLogin, browser: Browser, scheme: Literal["light", "dark"], width: int
) -> None:
    context = new_context(
        browser,
        base_url=console.address,
        ignore_https_errors=True,
        color_scheme=scheme,
        viewport={"width": width, "height": 740},
    )
    page = context.new_page()
    for name in ("login", "login-refused"):
        if name == "login":
            page.goto("/topics/app-orders")
        else:
            page.get_by_label("User").fill("app")
            page.get_by_label("Password").fill("a wrong password")
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("alert")).to_contain_text("refused this user or password")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page)
        picture(page, f"{name}-{scheme}-{width}")
        assert found.violations_count == 0, found.generate_report()
    page.get_by_label("User").fill("app")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="app-orders")).to_be_visible()
    context.close()
