"""The clients that people have, on SASL_SSL, with each mechanism, over TLS 1.2 and 1.3: each produces, reads
in a group, and describes. `make test` has each client, each mechanism and each version; `make soak` has all
of them with one another."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from tests.services.certificates import Certificates, make_certificates
from tests.services.clients.go_client import require_franz, require_sarama
from tests.services.clients.java_client import java_command
from tests.services.dray import DrayProcess, drayd_path
from tests.services.marks import longer
from tests.services.process import free_port
from tests.services.target import ON_KAFKA

PASSWORD = "correct-horse-battery"
KEY = rsa.generate_private_key(65537, 2048)
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
RECORDS = 10
SECURITY = "org.apache.kafka.common.security"

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own listeners")


def token() -> str:
    now = int(time.time())
    return jwt.encode({"sub": "alice", "iat": now, "exp": now + 600}, KEY, "RS256", {"kid": "one"})


class SecuredProcess(DrayProcess):
    certificates: Certificates
    secure: str


@contextmanager
def key_server(made: Certificates) -> Iterator[tuple[str, threading.Event]]:
    """Where the keys that sign tokens are fetched, and whether they were."""
    asked = threading.Event()
    public = {**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "one"}
    document = json.dumps({"keys": [public]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(document)
            asked.set()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate, made.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/keys", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    directory = tmp_path_factory.mktemp("clients")
    made = make_certificates(directory / "certificates")
    address = f"127.0.0.1:{free_port()}"
    listener = {
        "address": address,
        "protocol": "SASL_SSL",
        "mechanisms": list(MECHANISMS),
        "certificate_file": str(made.certificate),
        "key_file": str(made.key),
    }
    settings = {
        "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener}),
        "DRAY_BROKER__LONGEST_SESSION": "4s",
        "DRAY_OAUTH__KEY_SET_CA_FILE": str(made.authority),
        "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "0s",
    }
    with key_server(made) as (url, asked):
        process = SecuredProcess(directory, settings=settings | {"DRAY_OAUTH__KEY_SET_URL": url})
        process.certificates, process.secure = made, address
        process.start()
        assert asked.wait(30)
    # The address of the keys is away from here on: those that were fetched hold.
    with process:
        secret = directory / "password"
        secret.write_text(PASSWORD)
        command = [str(drayd_path()), "admin", "user", "add", "alice", "--password-file", str(secret)]
        subprocess.run([*command, "--bootstrap", process.bootstrap], check=True, timeout=240)
        yield process
    log = process.log_path.read_text()
    assert PASSWORD not in log
    assert "eyJ" not in log, "no token in any log line"
    assert "Traceback" not in log


Tour = tuple[int, int, int]
"""Records that were read, brokers, and partitions of the topic."""

_numbers = count(1)


def context(broker: SecuredProcess, version: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(broker.certificates.authority))
    number = ssl.TLSVersion.TLSv1_2 if version == "1.2" else ssl.TLSVersion.TLSv1_3
    made.minimum_version = made.maximum_version = number
    return made


def librdkafka(broker: SecuredProcess, mechanism: str, version: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": broker.secure,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.certificates.authority),
        "sasl.mechanisms": mechanism,
    }
    if version == "1.2":
        # It has no setting for the version: these are of TLS 1.2 alone.
        found["ssl.cipher.suites"] = "ECDHE-ECDSA-AES256-GCM-SHA384"
    if mechanism == "OAUTHBEARER":
        return found | {"oauth_cb": lambda _: (token(), time.time() + 600)}
    return found | {"sasl.username": "alice", "sasl.password": PASSWORD}


def tour_of_librdkafka(broker: SecuredProcess, topic: str, mechanism: str, version: str) -> Tour:
    options = librdkafka(broker, mechanism, version)
    producer = Producer(options)
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = 0
    while seen < RECORDS:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        seen += 1
    consumer.close()
    admin = AdminClient(options)
    admin.poll(0.1)
    shown = admin.list_topics(topic, timeout=60)
    return seen, len(shown.brokers), len(shown.topics[topic].partitions)


def java_properties(broker: SecuredProcess, mechanism: str, version: str, directory: Path) -> str:
    found = {
        "bootstrap.servers": broker.secure,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificates.authority),
        "ssl.enabled.protocols": f"TLSv{version}",
        "ssl.protocol": f"TLSv{version}",
    }
    user = f'required username="alice" password="{PASSWORD}";'
    if mechanism == "OAUTHBEARER":
        file = directory / "token"
        file.write_text(token())
        found["sasl.oauthbearer.token.endpoint.url"] = file.as_uri()
        found["sasl.login.callback.handler.class"] = f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
        found["sasl.jaas.config"] = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
    elif mechanism == "PLAIN":
        found["sasl.jaas.config"] = f"{SECURITY}.plain.PlainLoginModule {user}"
    else:
        found["sasl.jaas.config"] = f"{SECURITY}.scram.ScramLoginModule {user}"
    return "".join(f"{key}={value}\n" for key, value in found.items())


def test_java(broker: SecuredProcess, tmp_path: Path) -> None:
    """One process for all of it: most of a second is its start."""
    pairs = [(mechanism, "1.3") for mechanism in MECHANISMS] + [("SCRAM-SHA-512", "1.2")]
    run_java(broker, tmp_path, pairs)


@pytest.mark.soak
def test_java_over_tls_1_2(broker: SecuredProcess, tmp_path: Path) -> None:
    run_java(broker, tmp_path, [(mechanism, "1.2") for mechanism in MECHANISMS])


def run_java(broker: SecuredProcess, directory: Path, pairs: list[tuple[str, str]]) -> None:
    files = []
    for mechanism, version in pairs:
        file = directory / f"{mechanism}-{version}-{next(_numbers)}"
        file.write_text(java_properties(broker, mechanism, version, directory))
        files.append(file)
    said = java_said(directory, "SecureTour", *map(str, files))
    assert said.splitlines() == [f"{file.name} {RECORDS} 1 1" for file in files]


def java_said(directory: Path, *program: str) -> str:
    # A token's file may only be read from a place that the process was told.
    allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(directory / 'token').as_uri()}"]
    allowed += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={directory / 'token'}"]
    command = java_command()
    command[1:1] = allowed
    done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_renews_its_sessions_over_three_lifetimes_under_load(
    broker: SecuredProcess, tmp_path: Path, mechanism: str
) -> None:
    """Of four seconds each. A record that fails is not sent again, and no connection ends: each says who it
    is once more, and goes on."""
    file = tmp_path / "client.properties"
    file.write_text(java_properties(broker, mechanism, "1.3", tmp_path))
    said = java_said(tmp_path, "RenewSessions", str(file), f"java-renewed-{mechanism.lower()}", "14")
    sent, failed, seen, *told = map(int, said.split())
    assert (failed, seen) == (0, sent)
    for renewed, refused, closed in (told[:3], told[3:]):
        assert (refused, closed) == (0, 0)
        assert renewed >= 3


def tour_in_go(program: Callable[[], Path]) -> Callable[[SecuredProcess, str, str, str], Tour]:
    def tour(broker: SecuredProcess, topic: str, mechanism: str, version: str) -> Tour:
        secret = token() if mechanism == "OAUTHBEARER" else PASSWORD
        authority = str(broker.certificates.authority)
        command = [str(program()), "secure", broker.secure, topic, mechanism, version, authority]
        done = subprocess.run(
            [*command, "alice", secret], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        seen, brokers, partitions = map(int, done.stdout.split())
        return seen, brokers, partitions

    return tour


class PythonTokens(KafkaPythonTokens):  # type: ignore[misc]
    def token(self) -> str:
        return token()


def tour_of_kafka_python(broker: SecuredProcess, topic: str, mechanism: str, version: str) -> Tour:
    options: dict[str, Any] = {
        "bootstrap_servers": broker.secure,
        "security_protocol": "SASL_SSL",
        "ssl_context": context(broker, version),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = PythonTokens()
    else:
        options |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(**options)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number).get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options
    )
    seen = 0
    for _message in consumer:
        seen += 1
        if seen == RECORDS:
            break
    consumer.close()
    admin = KafkaAdminClient(**options)
    try:
        brokers = len(admin.describe_cluster()["brokers"])
        [shown] = admin.describe_topics([topic])
        return seen, brokers, len(shown["partitions"])
    finally:
        admin.close()


class AsyncTokens(AiokafkaTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


def tour_of_aiokafka(broker: SecuredProcess, topic: str, mechanism: str, version: str) -> Tour:
    async def tour() -> Tour:
        options: dict[str, Any] = {
            "bootstrap_servers": broker.secure,
            "security_protocol": "SASL_SSL",
            "ssl_context": context(broker, version),
            "sasl_mechanism": mechanism,
        }
        if mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = AsyncTokens()
        else:
            options |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
        async with AIOKafkaProducer(**options) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(topic, b"%d" % number)
        seen = 0
        async with AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **options
        ) as consumer:
            while seen < RECORDS:
                await asyncio.wait_for(consumer.getone(), 60)
                seen += 1
        admin = AIOKafkaAdminClient(**options)
        await admin.start()
        try:
            brokers = len((await admin.describe_cluster())["brokers"])
            [shown] = await admin.describe_topics([topic])
            return seen, brokers, len(shown["partitions"])
        finally:
            await admin.close()

    return asyncio.run(tour())


CLIENTS: dict[str, Callable[[SecuredProcess, str, str, str], Tour]] = {
    "librdkafka": tour_of_librdkafka,
    "franz-go": tour_in_go(require_franz),
    "sarama": tour_in_go(require_sarama),
    "kafka-python": tour_of_kafka_python,
    "aiokafka": tour_of_aiokafka,
}

QUICK = {
    ("librdkafka", "SCRAM-SHA-256", "1.3"),
    ("librdkafka", "SCRAM-SHA-512", "1.2"),
    ("librdkafka", "PLAIN", "1.3"),
    ("librdkafka", "OAUTHBEARER", "1.3"),
    ("franz-go", "SCRAM-SHA-256", "1.2"),
    ("franz-go", "OAUTHBEARER", "1.3"),
    ("sarama", "SCRAM-SHA-512", "1.3"),
    ("sarama", "PLAIN", "1.2"),
    ("kafka-python", "SCRAM-SHA-512", "1.3"),
    ("kafka-python", "OAUTHBEARER", "1.2"),
    ("aiokafka", "SCRAM-SHA-256", "1.3"),
    ("aiokafka", "OAUTHBEARER", "1.2"),
}
"""Each client, each mechanism and each version, with one another in `make soak`."""

EVERY = [
    (name, mechanism, version) for name in CLIENTS for mechanism in MECHANISMS for version in ("1.3", "1.2")
]


@pytest.mark.parametrize(
    ("name", "mechanism", "version"), [each if each in QUICK else longer(*each) for each in EVERY]
)
def test_a_client_writes_reads_in_a_group_and_describes(
    broker: SecuredProcess, name: str, mechanism: str, version: str
) -> None:
    topic = f"{name}-{mechanism.lower()}-{version}"
    assert CLIENTS[name](broker, topic, mechanism, version) == (RECORDS, 1, 1)


def test_our_own_commands_log_in_with_a_token(broker: SecuredProcess, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token() + "\n")
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
        "ssl.truststore.location": str(broker.certificates.authority),
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    command = [str(drayd_path()), "admin", "topics", "list", "--bootstrap", broker.secure]
    command += ["--command-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    stranger = rsa.generate_private_key(65537, 2048)
    bad = jwt.encode({"sub": "alice"}, stranger, "RS256", {"kid": "one"})
    (tmp_path / "token").write_text(bad)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert done.stderr == f'drayd: {broker.secure} refused the token: {{"status":"invalid_token"}}\n'


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", longer("PLAIN"), longer("OAUTHBEARER")])
def test_sessions_are_renewed_over_three_lifetimes_under_load(broker: SecuredProcess, mechanism: str) -> None:
    """Lifetimes of four seconds, of which librdkafka leaves itself a tenth to say again who it is. Nothing
    fails at a producer or a consumer, and nothing is lost."""
    topic = f"renewed-{mechanism.lower()}"
    failed: list[object] = []
    options = librdkafka(broker, mechanism, "1.3") | {"error_cb": failed.append}
    producer = Producer(options | {"linger.ms": 5})
    consumer = Consumer(
        options | {"group.id": topic, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    )
    consumer.subscribe([topic])

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    sent = seen = 0
    end = time.monotonic() + 13
    while time.monotonic() < end:
        for _ in range(20):
            producer.produce(topic, b"x" * 1000, on_delivery=delivered)
            sent += 1
        producer.poll(0)
        seen += sum(message.error() is None for message in consumer.consume(1000, 0.05))
    assert producer.flush(60) == 0
    while seen < sent:
        messages = consumer.consume(1000, 30)
        assert messages
        seen += sum(message.error() is None for message in messages)
    consumer.close()
    assert failed == []
