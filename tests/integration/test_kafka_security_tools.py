"""`kafka-acls` and `kafka-configs` with passwords, as an administrator uses them, on a listener that asks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from tests.services.certificates import make_certificates
from tests.services.consumers import wait_for
from tests.services.dray import DrayProcess, drayd_path
from tests.services.kafka_tools import KafkaTools, Said
from tests.services.process import free_port
from tests.services.refusals import check_refused
from tests.services.target import ON_KAFKA

PASSWORD = "correct-horse-battery"
NEW = "another-horse-staple"
PROPERTIES = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" \
password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={authority}
"""

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own listeners")


class Administered:
    """A broker with ACLs, and Kafka's commands that log in as its super user."""

    def __init__(self, process: DrayProcess, secure: str, authority: str, tools: KafkaTools) -> None:
        self._process = process
        self._secure = secure
        self._authority = authority
        self._tools = tools
        self._file = process.data_directory.parent / "admin.properties"
        self._file.write_text(PROPERTIES.format(password=PASSWORD, authority=authority))

    def run(self, command: str, *arguments: str) -> Said:
        return self._tools.run(command, "--command-config", str(self._file), *arguments)

    def done(self, command: str, *arguments: str) -> str:
        said = self.run(command, *arguments)
        assert said.code == 0, said.text
        return said.text

    def set_password(self, user: str, config: str) -> None:
        said = self.done("kafka-configs", "--alter", "--add-config", config, *_named(user))
        assert f"Completed updating config for user {user}." in said

    def client(self, user: str, mechanism: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._secure,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._authority,
            "sasl.mechanisms": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def logs_in(self, user: str, mechanism: str, password: str) -> bool:
        return bool(AdminClient(self.client(user, mechanism, password)).list_topics(timeout=60).brokers)

    def add_user(self, user: str) -> None:
        """Straight in the store, for both mechanisms."""
        command = [str(drayd_path()), "admin", "user", "add", user, "--password-file", "-"]
        command += ["--data-dir", str(self._process.data_directory)]
        environment = {**os.environ, **self._process.environment()}
        subprocess.run(command, input=PASSWORD, text=True, check=True, timeout=240, env=environment)


def _named(user: str) -> tuple[str, ...]:
    return "--entity-type", "users", "--entity-name", user


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    directory = tmp_path_factory.mktemp("administered")
    made = make_certificates(directory / "certificates")
    secure = f"127.0.0.1:{free_port()}"
    listener = {
        "address": secure,
        "protocol": "SASL_SSL",
        "certificate_file": str(made.certificate),
        "key_file": str(made.key),
    }
    settings = {
        "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener}),
        "DRAY_SECURITY__AUTHORIZATION": "acls",
        "DRAY_SECURITY__SUPER_USERS": "User:admin",
    }
    process = DrayProcess(directory, settings=settings)
    with KafkaTools(secure) as tools:
        found = Administered(process, secure, str(made.authority), tools)
        found.add_user("admin")
        with process:
            yield found
    log = process.log_path.read_text()
    assert PASSWORD not in log
    assert NEW not in log


def test_kafka_configs_sets_shows_and_deletes_passwords(cluster: Administered) -> None:
    cluster.set_password("dora", f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}]")
    shown = cluster.done("kafka-configs", "--describe", *_named("dora"))
    assert "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-512=iterations=8192" in shown
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        assert cluster.logs_in("dora", mechanism, PASSWORD)
    check_refused(cluster.client("dora", "SCRAM-SHA-256", PASSWORD))
    cluster.set_password("dora", f"SCRAM-SHA-256=[password={PASSWORD}]")
    assert cluster.logs_in("dora", "SCRAM-SHA-256", PASSWORD)
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        cluster.done("kafka-configs", "--alter", "--delete-config", mechanism, *_named("dora"))
    assert "SCRAM-SHA" not in cluster.done("kafka-configs", "--describe", *_named("dora"))
    check_refused(cluster.client("dora", "PLAIN", PASSWORD))
    refused = cluster.run(
        "kafka-configs",
        "--alter",
        "--add-config",
        f"SCRAM-SHA-512=[iterations=100,password={NEW}]",
        *_named("e"),
    )
    assert "Iterations 100 is less than the minimum 4096" in refused.text


def test_a_password_that_kafka_configs_changed_is_changed(cluster: Administered) -> None:
    """One of two: the mechanism that was not named keeps its own, and PLAIN takes the one set last."""
    cluster.add_user("erin")
    assert cluster.logs_in("erin", "PLAIN", PASSWORD)
    cluster.set_password("erin", f"SCRAM-SHA-512=[password={NEW}]")
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        assert cluster.logs_in("erin", mechanism, NEW)
        check_refused(cluster.client("erin", mechanism, PASSWORD))
    assert cluster.logs_in("erin", "SCRAM-SHA-256", PASSWORD)


def test_kafka_acls_gives_shows_and_takes_rights(cluster: Administered) -> None:
    cluster.set_password("app", f"SCRAM-SHA-512=[password={PASSWORD}]")
    cluster.done("kafka-topics", "--create", "--topic", "orders-eu")
    app = cluster.client("app", "SCRAM-SHA-512", PASSWORD)

    def may_write() -> bool:
        told: list[KafkaError | None] = []
        producer = Producer(app)
        producer.produce("orders-eu", b"v", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(60) == 0
        assert told[0] is None or told[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return told[0] is None

    assert not may_write()
    orders = ("--topic", "orders-", "--resource-pattern-type", "prefixed")
    added = cluster.done("kafka-acls", "--add", "--allow-principal", "User:app", "--producer", *orders)
    assert "principal=User:app, host=*, operation=WRITE, permissionType=ALLOW" in added
    wait_for("app may write", may_write)
    denied = ("--deny-principal", "User:app", "--deny-host", "127.0.0.1", "--operation", "Write")
    cluster.done("kafka-acls", "--add", *denied, "--topic", "orders-eu")
    wait_for("app may not write", lambda: not may_write())
    listed = cluster.done(
        "kafka-acls",
        "--list",
        "--topic",
        "orders-eu",
        "--resource-pattern-type",
        "match",
        "--principal",
        "User:app",
    )
    assert "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)" in listed
    assert "principal=User:app, host=127.0.0.1, operation=WRITE, permissionType=DENY" in listed
    cluster.done("kafka-acls", "--remove", "--force", *denied, "--topic", "orders-eu")
    wait_for("app may write again", may_write)
    cluster.done("kafka-acls", "--remove", "--force", "--allow-principal", "User:app", "--producer", *orders)
    wait_for("app has no rights", lambda: not may_write())
    assert "User:app" not in cluster.done("kafka-acls", "--list")


def test_kafka_configs_shows_the_security_that_is_configured(cluster: Administered) -> None:
    shown = cluster.done(
        "kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0"
    )
    for line in (
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN sensitive=false",
        "listener.name.secure.ssl.client.auth=none sensitive=false",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL sensitive=false",
    ):
        assert line in shown
