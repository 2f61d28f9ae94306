"""Authentication, frame by frame, as Apache Kafka has it. Its side is recorded, as in `test_referee.py`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.client import AuthenticationFailed, Dialer
from dray.client.login import Login
from dray.protocol.messages.metadata import MetadataRequest
from dray.runtime import SystemRuntime
from dray.security.sasl.client import ClientCredential
from tests.referee.sasl_dialogue import CLOSED, DIALOGUES, PASSWORD, hold
from tests.services.dray import DrayProcess, drayd_path
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.process import free_port
from tests.services.target import ON_KAFKA

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "sasl"
RECORD = os.environ.get("DRAY_RECORD") == "1"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
JAAS = "org.apache.kafka.common.security"


def add_users(bootstrap: str, directory: Path) -> None:
    secret = directory / "password"
    secret.write_text(PASSWORD)
    for name in ("alice", "bob"):
        command = [str(drayd_path()), "admin", "user", "add", name, "--password-file", str(secret)]
        subprocess.run([*command, "--bootstrap", bootstrap], check=True, capture_output=True, timeout=240)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_kafka_jars()
    directory = tmp_path_factory.mktemp("sasl-kafka")
    secure = f"127.0.0.1:{free_port()}"
    plain, controller = free_port(), free_port()
    prefix = "listener.name.secure"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required "
        f'user_alice="{PASSWORD}" user_bob="{PASSWORD}";',
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        "connections.max.reauth.ms": "3600000",
    }
    server = KafkaProcess(directory, settings)
    server.port = plain
    with server:
        add_users(server.bootstrap, directory)
        yield secure


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("sasl-dray")
    listener = {
        "address": f"127.0.0.1:{free_port()}",
        "protocol": "SASL_PLAINTEXT",
        "mechanisms": MECHANISMS,
    }
    settings = {
        "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener}),
        "DRAY_BROKER__LONGEST_SESSION": "1h",
    }
    with DrayProcess(directory, settings=settings) as process:
        add_users(process.bootstrap, directory)
        yield str(listener["address"])


@pytest.mark.parametrize("name", DIALOGUES)
async def test_recordings_are_what_kafka_says(name: str, kafka: str) -> None:
    notes = await hold(name, kafka)
    path = RECORDINGS / f"{name}.json"
    if RECORD:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(notes, indent=1) + "\n")
    assert notes == json.loads(path.read_text())


DIFFERENCES = {
    # Kafka answers without any topic, and then closes: an answer that has no place for an error says nothing.
    "again-and-a-request-between": ["MetadataRequest", 9, CLOSED],
}


@pytest.mark.skipif(ON_KAFKA, reason="the target is Kafka itself")
@pytest.mark.parametrize("name", DIALOGUES)
async def test_dray_answers_as_kafka_does(name: str, secure: str) -> None:
    theirs = json.loads((RECORDINGS / f"{name}.json").read_text())
    if name in DIFFERENCES:
        assert theirs[-1] != DIFFERENCES[name], "no longer different: take it out of the table"
        theirs[-1] = DIFFERENCES[name]
    assert await hold(name, secure) == theirs


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_our_client_and_kafka_agree(mechanism: str, kafka: str) -> None:
    host, port = kafka.split(":")
    runtime = SystemRuntime(threads=1)

    def dial(password: str) -> Dialer:
        return Dialer(client_id="dray", login=Login(ClientCredential(mechanism, "alice", password), runtime))

    connection = await dial(PASSWORD)(host, int(port))
    assert (await connection.request(MetadataRequest(topics=[]))).brokers
    await connection.close()
    with pytest.raises(AuthenticationFailed, match="refused user alice: Authentication failed"):
        await dial("wrong")(host, int(port))
    runtime.close()
