"""Authentication, frame by frame, as Apache Kafka has it. Its side is recorded, as in `test_referee.py`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dray.base.runtime import SystemRuntime
from dray.kafka.client import AuthenticationFailed, Dialer
from dray.kafka.client.login import Login
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.sasl.client import ClientCredential
from tests.referee.recording import record
from tests.referee.sasl_dialogue import CLOSED, DIALOGUES, PASSWORD, hold
from tests.referee.token_dialogues import AUDIENCE, ISSUER, OAUTHBEARER, write_keys
from tests.services.dray import DrayProcess, drayd_path
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.process import free_port
from tests.services.target import ON_KAFKA

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "sasl"
RECORD = os.environ.get("DRAY_RECORD") == "1"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SERVED = [*MECHANISMS, OAUTHBEARER]
JAAS = "org.apache.kafka.common.security"


def add_users(bootstrap: str, directory: Path) -> None:
    secret = directory / "password"
    secret.write_text(PASSWORD)
    for name in ("alice", "bob"):
        command = [str(drayd_path()), "admin", "user", "add", name, "--password-file", str(secret)]
        subprocess.run([*command, "--bootstrap", bootstrap], check=True, capture_output=True, timeout=240)


class TokenKafka(KafkaProcess):
    """It reads keys only from where its process was told that it may."""

    def command(self) -> Sequence[str]:
        program, *rest = super().command()
        keys = self.directory / "keys.json"
        option = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return [program, f"{option}.urls={keys.as_uri()}", f"{option}.files={keys}", *rest]


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
        "sasl.enabled.mechanisms": ",".join(SERVED),
        f"{prefix}.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required "
        f'user_alice="{PASSWORD}" user_bob="{PASSWORD}";',
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{JAAS}.oauthbearer.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{JAAS}.oauthbearer."
        "OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": write_keys(directory).as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connections.max.reauth.ms": "3600000",
    }
    server = TokenKafka(directory, settings)
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
        "mechanisms": SERVED,
    }
    settings = {
        "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener}),
        "DRAY_BROKER__LONGEST_SESSION": "1h",
        "DRAY_OAUTH__KEY_SET_FILE": str(write_keys(directory)),
        "DRAY_OAUTH__AUDIENCES": AUDIENCE,
        "DRAY_OAUTH__ISSUER": ISSUER,
    }
    with DrayProcess(directory, settings=settings) as process:
        add_users(process.bootstrap, directory)
        yield str(listener["address"])


@pytest.mark.parametrize("name", DIALOGUES)
async def test_recordings_are_what_kafka_says(name: str, kafka: str) -> None:
    notes = await hold(name, kafka)
    path = RECORDINGS / f"{name}.json"
    if RECORD:
        record(path, notes)
    assert notes == json.loads(path.read_text())


DIFFERENCES: dict[str, tuple[int, list[object]]] = {
    # Kafka answers without any topic, and then closes: an answer that has no place for an error says nothing.
    "again-and-a-request-between": (-1, ["MetadataRequest", 9, CLOSED]),
    # Kafka fails at it, and closes without an answer.
    "oauth-with-no-bearer": (
        1,
        [
            "SaslAuthenticateRequest",
            2,
            58,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            "OAUTHBEARER",
            0,
        ],
    ),
}
"""Which of the notes is another here."""


@pytest.mark.skipif(ON_KAFKA, reason="the target is Kafka itself")
@pytest.mark.parametrize("name", DIALOGUES)
async def test_dray_answers_as_kafka_does(name: str, secure: str) -> None:
    theirs = json.loads((RECORDINGS / f"{name}.json").read_text())
    if name in DIFFERENCES:
        number, ours = DIFFERENCES[name]
        assert theirs[number] != ours, "no longer different: take it out of the table"
        theirs[number] = ours
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
