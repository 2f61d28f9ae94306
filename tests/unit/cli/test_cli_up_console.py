"""Where the console of `drayd up` connects, and as whom."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from tests.services.certificates import make_certificates

from dray.cli.commands.up import console_connected
from dray.daemons.assembly.failures import Failure
from dray.daemons.config import ConfigError, Settings, load
from dray.daemons.supervisor.children import CONSOLE

SECURE = '{"address": "localhost:9094", "protocol": "SASL_PLAINTEXT", "mechanisms": ["SCRAM-SHA-512"]}'


def settings(properties: Path | None = None, **more: str) -> Settings:
    environment = {
        "DRAY_BROKER__LISTEN": "127.0.0.1:9092",
        "DRAY_BROKER__LISTENERS__OTHER": "127.0.0.1:9098",
        "DRAY_BROKER__LISTENERS__SECURE": SECURE,
        "DRAY_CONSOLE__LISTEN": "127.0.0.1:0",
        **more,
    }
    if properties is not None:
        environment["DRAY_CONSOLE__COMMAND_CONFIG"] = str(properties)
    return load(environment=environment).settings


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text("correct-horse")
    path = tmp_path / "console.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nusername=console\n"
        f"password.file={tmp_path / 'password'}\n"
    )
    return path


def arguments(given: Settings, brokers: int = 1) -> str:
    child = CONSOLE.child(given, None, [f"127.0.0.1:{9092 + number}" for number in range(brokers)])
    assert child is not None
    return " ".join(child.arguments)


def test_without_a_file_it_uses_the_plain_listener() -> None:
    given = console_connected(settings())
    assert "--bootstrap 127.0.0.1:9092 " in arguments(given)
    assert "--command-config" not in arguments(given)


def test_where_the_plain_listener_is_off_it_uses_another_that_asks_nobody() -> None:
    given = console_connected(settings(DRAY_BROKER__LISTEN="off"))
    assert "--bootstrap 127.0.0.1:9098 " in arguments(given)


def test_where_every_listener_asks_there_is_no_console_without_a_login(properties: Path) -> None:
    environment = {"DRAY_BROKER__LISTENERS__SECURE": SECURE, "DRAY_CONSOLE__LISTEN": "127.0.0.1:0"}
    with structlog.testing.capture_logs() as lines:
        assert CONSOLE.child(console_connected(load(environment=environment).settings), None, [""]) is None
    [line] = lines
    assert "--command-config" in line["reason"]
    environment["DRAY_CONSOLE__COMMAND_CONFIG"] = str(properties)
    assert "--bootstrap localhost:9094 " in arguments(
        console_connected(load(environment=environment).settings)
    )


def test_with_a_file_it_uses_the_listener_of_that_protocol(properties: Path) -> None:
    given = console_connected(settings(properties))
    assert "--bootstrap localhost:9094 " in arguments(given)
    assert f"--command-config {properties}" in arguments(given)
    assert "--bootstrap localhost:9094,localhost:9095,localhost:9096 " in arguments(given, 3)


def test_the_advertised_name_is_the_certificates(properties: Path) -> None:
    advertised = {"DRAY_BROKER__ADVERTISED_LISTENERS__SECURE": "broker.example:19094"}
    assert "--bootstrap broker.example:19094 " in arguments(
        console_connected(settings(properties, **advertised))
    )


def test_a_listener_that_is_named_is_used(properties: Path) -> None:
    given = console_connected(settings(properties, DRAY_CONSOLE__LISTENER="OTHER"))
    assert "--bootstrap 127.0.0.1:9098 " in arguments(given)


ACLS = {"DRAY_SECURITY__AUTHORIZATION": "acls", "DRAY_SECURITY__SUPER_USERS": "User:console"}


@pytest.mark.parametrize(
    ("more", "content", "starts"),
    [
        (ACLS, None, False),
        (ACLS, "security.protocol=SSL\nssl.keystore.location={pair}\n", False),
        (ACLS | {"DRAY_CONSOLE__AUTH": "sasl"}, None, True),
        (ACLS, "security.protocol=SSL\n", True),
        ({}, None, True),
    ],
)
def test_its_login_is_not_lent_to_every_account_of_the_machine(
    properties: Path, tmp_path: Path, more: dict[str, str], content: str | None, starts: bool
) -> None:
    if content is not None:
        made = make_certificates(tmp_path)
        pair = tmp_path / "pair.pem"
        pair.write_text(made.key.read_text() + made.certificate.read_text())
        properties.write_text(content.format(pair=pair))
    with structlog.testing.capture_logs() as lines:
        child = CONSOLE.child(settings(properties, **more), None, ["127.0.0.1:9092"])
    assert (child is not None) is starts
    if not starts:
        [line] = lines
        assert "console.auth" in line["reason"]


def test_what_does_not_fit_is_one_line(properties: Path) -> None:
    properties.write_text("security.protocol=SSL\n")
    with pytest.raises(Failure, match=r"security.protocol = SSL, and none of broker.listeners"):
        console_connected(settings(properties))
    with pytest.raises(Failure, match="absent"):
        console_connected(settings(properties.with_name("absent")))
    with pytest.raises(ConfigError, match=r"console.listener"):
        settings(properties, DRAY_CONSOLE__LISTENER="ABSENT")
