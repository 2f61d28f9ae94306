"""A listener that asks its clients who they are, and the clients that people have."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from jwt.algorithms import RSAAlgorithm
from kafka import KafkaAdminClient
from tests.services.certificates import Certificates, make_certificates
from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import free_port
from tests.services.refusals import check_refused
from tests.services.target import ON_KAFKA

PASSWORD = "correct-horse-battery"
SIGNING_KEY = rsa.generate_private_key(65537, 2048)
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own listeners")


class SecuredProcess(DrayProcess):
    certificates: Certificates

    def address(self, listener: str) -> str:
        found: str = json.loads(self.settings["DRAY_BROKER__LISTENERS"])[listener]["address"]
        return found

    @property
    def secure(self) -> str:
        return self.address("SECURE")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    directory = tmp_path_factory.mktemp("sasl")
    listener = {
        "address": f"127.0.0.1:{free_port()}",
        "protocol": "SASL_PLAINTEXT",
        "mechanisms": [*MECHANISMS, "OAUTHBEARER"],
    }
    key_set = directory / "keys.json"
    public = RSAAlgorithm.to_jwk(SIGNING_KEY.public_key(), as_dict=True)
    key_set.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))
    made = make_certificates(directory / "certificates")
    files = {"certificate_file": str(made.certificate), "key_file": str(made.key)}
    encrypted = {"address": f"127.0.0.1:{free_port()}", "protocol": "SASL_SSL", **files}
    tls = {"address": f"127.0.0.1:{free_port()}", "protocol": "SSL", **files}
    settings = {
        "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener, "ENCRYPTED": encrypted, "TLS": tls}),
        "DRAY_BROKER__LONGEST_SESSION": "2s",
        "DRAY_OAUTH__KEY_SET_FILE": str(key_set),
        "DRAY_OAUTH__AUDIENCES": "dray,other",
    }
    process = SecuredProcess(directory, settings=settings)
    process.certificates = made
    with process:
        secret = directory / "password"
        secret.write_text(PASSWORD)
        _drayd(process, "user", "add", "alice", "--password-file", str(secret))
        yield process
    log = process.log_path.read_text()
    assert PASSWORD not in log, "no secret in any log line"
    for path in process.data_directory.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def _drayd(process: DrayProcess, *arguments: str) -> str:
    command = [str(drayd_path()), "admin", *arguments, "--bootstrap", process.bootstrap]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


def librdkafka(broker: SecuredProcess, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.secure,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads(broker: SecuredProcess, mechanism: str) -> None:
    topic = f"librdkafka-{mechanism.lower()}"
    producer = Producer(librdkafka(broker, mechanism))
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    consumer = Consumer(librdkafka(broker, mechanism) | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    while len(seen) < 10:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        seen.append(message.value())
    consumer.close()
    assert seen == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_over_tls(broker: SecuredProcess, mechanism: str) -> None:
    options: dict[str, Any] = librdkafka(broker, mechanism) | {
        "bootstrap.servers": broker.address("ENCRYPTED"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.certificates.authority),
    }
    producer = Producer(options)
    for _number in range(50):
        producer.produce("over-tls", b"x" * 100_000)
    assert producer.flush(60) == 0
    check_refused(options | {"sasl.password": "wrong"})


def test_tls_alone_asks_for_no_name(broker: SecuredProcess) -> None:
    options: dict[str, Any] = {
        "bootstrap.servers": broker.address("TLS"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.certificates.authority),
    }
    assert AdminClient(options).list_topics(timeout=60).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_writes_and_reads(broker: SecuredProcess, mechanism: str) -> None:
    options = {
        "bootstrap_servers": broker.secure,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    topic = f"aiokafka-{mechanism.lower()}"
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"one")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 60)).value == b"one"


def token(key: RSAPrivateKey = SIGNING_KEY, **claims: object) -> str:
    now = int(time.time())
    said = {"sub": "carol", "aud": "dray", "iat": now, "exp": now + 60, **claims}
    return jwt.encode(said, key, "RS256", {"kid": "one"})


def by_token(broker: SecuredProcess, text: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.secure,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": lambda _: (text, time.time() + 60),
    }


def test_a_token_lets_in(broker: SecuredProcess) -> None:
    admin = AdminClient(by_token(broker, token()))
    admin.poll(0.2)
    assert admin.list_topics(timeout=60).brokers


def test_a_bad_token_does_not(broker: SecuredProcess) -> None:
    stranger = rsa.generate_private_key(65537, 2048)
    for text in (token(stranger), token(aud="else"), token(exp=int(time.time()) - 100)):
        check_refused(by_token(broker, text))
        assert text not in broker.log_path.read_text()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_asks(broker: SecuredProcess, mechanism: str) -> None:
    client = KafkaAdminClient(
        bootstrap_servers=broker.secure,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
    )
    try:
        assert client.describe_cluster()["brokers"]
    finally:
        client.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told(broker: SecuredProcess, mechanism: str) -> None:
    check_refused(dict(librdkafka(broker, mechanism, "wrong-horse")))
    assert "wrong-horse" not in broker.log_path.read_text()


def test_who_says_nothing_gets_nothing(broker: SecuredProcess) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": broker.secure, "log_level": 0}).list_topics(timeout=1)


def test_a_session_is_renewed_under_load(broker: SecuredProcess) -> None:
    """Over three lifetimes of two seconds: librdkafka authenticates again by itself, and nothing is lost."""
    failed: list[object] = []
    producer = Producer(librdkafka(broker, "SCRAM-SHA-512") | {"linger.ms": "5"})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for _number in range(140):
        producer.produce("renewed", b"x" * 100, on_delivery=delivered)
        producer.poll(0.05)
    assert producer.flush(60) == 0
    assert failed == []


def test_a_deleted_user_is_let_in_no_more(broker: SecuredProcess, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    _drayd(broker, "user", "add", "bob", "--password-file", str(secret))
    options: dict[str, Any] = librdkafka(broker, "SCRAM-SHA-256") | {"sasl.username": "bob"}
    AdminClient(options).list_topics(timeout=60)
    _drayd(broker, "user", "delete", "bob", "--execute")
    check_refused(options)


def test_85_mebibytes_of_a_stranger_are_not_waited_for(broker: SecuredProcess) -> None:
    host, port = broker.secure.split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(struct.pack(">i", 85 << 20) + b"\0" * 1000)
        assert connection.recv(100) == b""
