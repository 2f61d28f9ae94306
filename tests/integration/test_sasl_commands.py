"""Dray's own programs on listeners that ask: commands, the console, the Spark source, and the client."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.certificates import Certificates, make_certificates
from tests.services.console import ConsoleProcess, answer_of
from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import free_port
from tests.services.target import ON_KAFKA

from dray.base.runtime import SystemRuntime
from dray.kafka.client.properties import read_security
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.tables.spark_source.log import TopicLog
from dray.tables.spark_source.options import SourceOptions
from dray.tables.spark_source.ranges import SourceError
from dray.tables.spark_source.source import asked

PASSWORD, WRONG = "correct-horse-battery", "wrong-horse-battery"
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
MODULES = "org.apache.kafka.common.security"
RECORDS = 7

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own listeners")


class AskingProcess(DrayProcess):
    certificates: Certificates

    def address(self, listener: str) -> str:
        if listener == "PLAINTEXT":
            return self.bootstrap
        found: str = json.loads(self.settings["DRAY_BROKER__LISTENERS"])[listener]["address"]
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskingProcess]:
    directory = tmp_path_factory.mktemp("asking")
    made = make_certificates(directory / "certificates")
    files = {"certificate_file": str(made.certificate), "key_file": str(made.key)}
    kinds: dict[str, dict[str, object]] = {
        "SASL_PLAINTEXT": {"mechanisms": MECHANISMS},
        "SASL_SSL": {**files},
        "SSL": {**files},
    }
    listeners = {
        protocol: {"address": f"127.0.0.1:{free_port()}", "protocol": protocol, **more}
        for protocol, more in kinds.items()
    }
    settings = {"DRAY_BROKER__LISTENERS": json.dumps(listeners), "DRAY_BROKER__LONGEST_SESSION": "2s"}
    process = AskingProcess(directory, settings=settings)
    process.certificates = made
    with process:
        secret = directory / "password"
        secret.write_text(PASSWORD)
        command = [str(drayd_path()), "admin", "user", "add", "alice", "--password-file", str(secret)]
        subprocess.run([*command, "--bootstrap", process.bootstrap], check=True, timeout=240)
        producer = Producer({"bootstrap.servers": process.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(60) == 0
        yield process
    log = process.log_path.read_text()
    assert PASSWORD not in log
    assert WRONG not in log


def properties(
    broker: AskingProcess, protocol: str, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD
) -> dict[str, str]:
    found = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = f'{MODULES}.{module} required username="alice" password="{password}";'
        if protocol == "SASL_PLAINTEXT" and mechanism == "PLAIN":
            found["plain.without.tls"] = "true"
    if protocol.endswith("SSL"):
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.location"] = str(broker.certificates.authority)
    return found


def written(directory: Path, given: dict[str, str]) -> Path:
    file = directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return file


def drayd(
    broker: AskingProcess, listener: str, file: Path | None, *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [str(drayd_path()), *arguments, "--bootstrap", broker.address(listener)]
    if file is not None:
        command += ["--command-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert PASSWORD not in done.stdout + done.stderr
    assert WRONG not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_SSL", "PLAIN"),
        ("SSL", ""),
        ("PLAINTEXT", ""),
    ],
)
def test_commands_on_every_kind_of_listener(
    broker: AskingProcess, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    file = written(tmp_path, properties(broker, protocol, mechanism))
    done = drayd(broker, protocol, file, "admin", "topics", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders" in done.stdout


def test_every_broker_is_reached_the_same_way(broker: AskingProcess, tmp_path: Path) -> None:
    """Offsets are asked of leaders, by the address that this listener advertises."""
    file = written(tmp_path, properties(broker, "SASL_SSL"))
    done = drayd(broker, "SASL_SSL", file, "admin", "topics", "describe", "orders", "--json")
    [topic] = json.loads(done.stdout)
    assert sum(part["end"] for part in topic["partitions"]) == RECORDS
    done = drayd(broker, "SASL_SSL", file, "top", "--once", "--json")
    assert json.loads(done.stdout)["cluster"]["topics"] >= 1


MISTAKES = {
    # the listener, what the client believes, the words
    "a wrong password": (
        "SASL_SSL",
        ("SASL_SSL", "SCRAM-SHA-512", WRONG),
        "refused user alice: Authentication failed during authentication due to invalid credentials with "
        "SASL mechanism SCRAM-SHA-512",
    ),
    "a wrong password with PLAIN": (
        "SASL_PLAINTEXT",
        ("SASL_PLAINTEXT", "PLAIN", WRONG),
        "refused user alice: Authentication failed: Invalid username or password",
    ),
    "TLS where there is none": ("SASL_PLAINTEXT", ("SASL_SSL",), "does it speak TLS"),
    "no TLS where there is": ("SASL_SSL", ("SASL_PLAINTEXT",), "TLS"),
    "no name where one is asked": ("SASL_PLAINTEXT", ("PLAINTEXT",), "does it ask who connects"),
    "a name where none is asked": ("PLAINTEXT", ("SASL_PLAINTEXT",), "does not ask who connects"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line(broker: AskingProcess, tmp_path: Path, what: str) -> None:
    listener, believed, words = MISTAKES[what]
    file = written(tmp_path, properties(broker, *believed))
    done = drayd(broker, listener, file, "admin", "topics", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"{broker.address(listener)}" in done.stderr
    assert words in done.stderr


def test_an_unknown_authority_is_one_line(broker: AskingProcess, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other")
    given = properties(broker, "SASL_SSL") | {"ssl.truststore.location": str(other.authority)}
    done = drayd(broker, "SASL_SSL", written(tmp_path, given), "admin", "cluster")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is not trusted" in done.stderr
    assert "ssl.truststore.location must name the authority" in done.stderr


async def test_a_session_is_renewed_on_the_same_connection(broker: AskingProcess, tmp_path: Path) -> None:
    """Over more than two lifetimes of two seconds. A request after the end would end the connection."""
    security = read_security(written(tmp_path, properties(broker, "SASL_SSL")))
    runtime = SystemRuntime(threads=1)
    host, port = broker.address("SASL_SSL").split(":")
    connection = await security.dialer("test", runtime)(host, int(port))
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        answers = await asyncio.gather(*(connection.request(MetadataRequest(topics=None)) for _ in range(3)))
        assert all(answer.brokers for answer in answers)
        await asyncio.sleep(0.2)
    await asyncio.sleep(2.5)  # idle beyond the end: the next request says who it is before it asks
    assert (await connection.request(MetadataRequest(topics=None))).brokers
    await connection.close()
    runtime.close()


def test_the_console(broker: AskingProcess, tmp_path: Path) -> None:
    file = written(tmp_path, properties(broker, "SASL_SSL"))
    bootstrap = broker.address("SASL_SSL")
    with ConsoleProcess(tmp_path, bootstrap, "--command-config", str(file)) as console:
        status, body = answer_of(f"{console.address}/api/topics/orders?start=oldest&count=20")
        assert status == 200
        assert len(json.loads(body)["rows"]) == RECORDS
    assert PASSWORD not in console.log_path.read_text()


def test_the_spark_source(broker: AskingProcess) -> None:
    def source(password: str) -> SourceOptions:
        given = properties(broker, "SASL_SSL", password=password)
        options = {"topic": "orders", "bootstrap.servers": broker.address("SASL_SSL")}
        return SourceOptions.parse(
            options | {f"kafka.{key}": value for key, value in given.items()}, streaming=False
        )

    found = asked(pickle.loads(pickle.dumps(source(PASSWORD))), TopicLog.state)
    assert sum(found.ends.values()) == RECORDS
    assert PASSWORD not in repr(source(PASSWORD))
    with pytest.raises(SourceError, match=r"topic orders cannot be read: .* refused user alice"):
        asked(source(WRONG), TopicLog.state)
