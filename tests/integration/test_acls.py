"""ACLs as people use them: users and rights straight in the store, then librdkafka against a broker."""

from __future__ import annotations

import subprocess
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.services.authorizing import PASSWORD, AuthorizingProcess
from tests.services.dray import drayd_path
from tests.services.refusals import check_refused
from tests.services.target import ON_KAFKA
from tests.services.tools import require_tool

ANYTHING: tuple[Any, ...] = (
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own listeners")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingProcess]:
    """As in the page of rights: users and the first ACL before the first start."""
    process = AuthorizingProcess.with_users(tmp_path_factory.mktemp("acls"), "admin", "app", "stranger")
    process.admin("acl", "add", "--allow", "User:app", "-o", "all", "--topic", "app-", "--prefixed")
    process.admin("acl", "add", "--allow", "User:app", "-o", "read", "--group", "standing")
    with process:
        admin = AdminClient(process.client("admin"))
        for future in admin.create_topics([NewTopic("app-orders", 1), NewTopic("secret", 1)]).values():
            future.result(60)
        yield process


def sent(broker: AuthorizingProcess, user: str, topic: str) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer(broker.client(user))
    producer.produce(topic, b"v", on_delivery=lambda error, _message: told.append(error))
    assert producer.flush(60) == 0
    return told[0]


def read(broker: AuthorizingProcess, user: str, topic: str, group: str) -> KafkaError | bytes | None:
    consumer = Consumer(broker.client(user, group_id=group, auto_offset_reset="earliest"))
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        return message.error() or message.value()
    finally:
        consumer.close()


def eventually(looks: Callable[[], bool], seconds: float = 90.0) -> None:
    """A change of ACLs reaches a broker at once, and after 30 seconds at the latest."""
    ends = time.monotonic() + seconds
    while not looks():
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_a_client_writes_and_sees_what_it_may(broker: AuthorizingProcess) -> None:
    assert sent(broker, "app", "app-orders") is None
    refused = sent(broker, "app", "secret")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(AdminClient(broker.client("app")).list_topics(timeout=60).topics) == {"app-orders"}
    assert set(AdminClient(broker.client("stranger")).list_topics(timeout=60).topics) == set()
    assert {"app-orders", "secret"} <= set(AdminClient(broker.client("admin")).list_topics(timeout=60).topics)


def test_a_client_that_was_not_asked_is_anonymous(broker: AuthorizingProcess) -> None:
    anonymous = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert anonymous.list_topics(timeout=60).topics == {}
    [future] = anonymous.create_topics([NewTopic("app-none", 1)]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(30)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_rights_are_given_and_taken_while_clients_run(broker: AuthorizingProcess) -> None:
    assert sent(broker, "app", "app-orders") is None
    refused = read(broker, "app", "app-orders", "readers")
    assert isinstance(refused, KafkaError)
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    admin = AdminClient(broker.client("admin"))
    fields = (ResourceType.GROUP, "readers", ResourcePatternType.LITERAL, "User:app", "*")
    given = AclBinding(*fields, AclOperation.READ, AclPermissionType.ALLOW)
    [created] = admin.create_acls([given]).values()
    assert created.result(60) is None
    assert read(broker, "app", "app-orders", "readers") == b"v"
    taken = AclBindingFilter(*fields, AclOperation.ANY, AclPermissionType.ANY)
    assert admin.describe_acls(taken).result(60) == [given]
    [deleted] = admin.delete_acls([taken]).values()
    assert deleted.result(60) == [given]
    again = read(broker, "app", "app-orders", "readers")
    assert isinstance(again, KafkaError)
    assert again.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_connection_that_stands_loses_what_is_taken(broker: AuthorizingProcess) -> None:
    """Taken in the store itself: the broker hears of it from there."""
    reading = Consumer(broker.client("app", group_id="standing", enable_auto_commit=False))
    reading.assign([TopicPartition("app-orders", 0, 0)])
    message = reading.poll(30)
    assert message is not None
    assert message.error() is None
    deny = ("--topic", "app-orders", "--operation", "read")
    broker.admin("acl", "add", "--deny", "User:app", *deny)
    try:

        def is_refused() -> bool:
            polled = reading.poll(1)
            error = None if polled is None else polled.error()
            return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

        eventually(is_refused)
    finally:
        broker.admin("acl", "delete", "--principal", "User:app", *deny, "--execute")
        reading.close()


def test_refusals_are_in_the_audit_log(broker: AuthorizingProcess) -> None:
    assert sent(broker, "stranger", "app-orders") is not None
    lines = [line for line in broker.log_path.read_text().splitlines() if "User:stranger" in line]
    assert any("denied" in line and "app-orders" in line and "audit" in line for line in lines)


def test_no_secret_comes_to_light(broker: AuthorizingProcess) -> None:
    """Of those used in this module: not in the log, nor in an answer, the config or a page."""
    wrong = "wrong-horse-battery"
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        check_refused({**broker.client("app"), "sasl.mechanisms": mechanism, "sasl.password": wrong})
    admin = AdminClient(broker.client("admin"))
    [configs] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "0")]).values()
    described = admin.describe_user_scram_credentials(["app"])
    assert isinstance(described, dict)
    users = described["app"].result(60)
    [acls] = [admin.describe_acls(AclBindingFilter(*ANYTHING)).result(60)]
    command = [str(drayd_path()), "config", "show", "--config", str(broker.directory / "c.yaml")]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
    pages = [broker.http_text(path) for path in ("/metrics", "/healthz", "/readyz")]
    seen = {
        "log": broker.log_path.read_text(),
        "configs": repr({name: entry.value for name, entry in configs.result(60).items()}),
        "users": repr([vars(one) for one in users.scram_credential_infos]),
        "acls": repr(acls),
        "config": shown,
        "pages": repr(pages),
        "lists": broker.admin("user", "list") + broker.admin("acl", "list"),
    }
    assert "authentication failed" in seen["log"]
    assert "User:admin" in seen["config"]
    assert 'dray_audited_acts_total{outcome="denied"}' in seen["pages"]
    secrets = [PASSWORD, wrong, b64encode(f"\0app\0{PASSWORD}".encode()).decode(), PASSWORD.encode().hex()]
    found = [(where, secret) for where, text in seen.items() for secret in secrets if secret in text]
    assert found == []


def test_who_sees_no_topic_is_told_what_he_is(broker: AuthorizingProcess, tmp_path: Path) -> None:
    def listed(bootstrap: str, user: str | None) -> str:
        command = [str(drayd_path()), "admin", "topics", "list", "--bootstrap", bootstrap]
        if user is not None:
            file = tmp_path / f"{user}.properties"
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            file.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
                f'sasl.jaas.config={module} required username="{user}" password="{PASSWORD}";\n'
            )
            command += ["--command-config", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout

    assert "User:ANONYMOUS" in listed(broker.bootstrap, None)
    assert "no topics that this user may see" in listed(broker.secure, "stranger")
    assert "app-orders" in listed(broker.secure, "app")


def test_kcat_of_debian_logs_in(broker: AuthorizingProcess) -> None:
    """Its librdkafka is older than 2.6.1, and says its nonce twice."""
    client = broker.client("admin")
    command = [str(require_tool("kcat")), "-L", "-b", client.pop("bootstrap.servers")]
    command += [part for name, value in client.items() for part in ("-X", f"{name}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert 'topic "app-orders"' in done.stdout
