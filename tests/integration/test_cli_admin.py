"""`drayd admin`, and a measurement, against a running broker, Dray or Apache Kafka alike."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.process import free_port
from tests.services.shell import Shell

ROOT = Path(__file__).parents[2]


@pytest.fixture
def drayd(capsys: pytest.CaptureFixture[str], bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(capsys, bootstrap)


def test_the_life_of_a_topic(drayd: Shell, bootstrap: str, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    out = drayd("topics", "create", name, "--partitions", "3", "--config", "retention.ms=86400000")
    assert out == f"topic {name} created\n"
    assert name in [topic["name"] for topic in drayd.json("topics", "list")]
    assert name in drayd("topics", "list")

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce(name, str(number).encode(), partition=1)
    assert producer.flush(60) == 0

    [topic] = drayd.json("topics", "describe", name)
    assert [(item["partition"], item["start"], item["end"]) for item in topic["partitions"]] == [
        (0, 0, 0),
        (1, 0, 5),
        (2, 0, 0),
    ]
    assert topic["configs"]["retention.ms"] == "86400000"
    assert "retention.ms = 86400000" in drayd("topics", "describe", name)

    drayd("topics", "alter", name, "--partitions", "5", "--set", "max.message.bytes=2000000")
    drayd("topics", "alter", name, "--unset", "retention.ms")
    [topic] = drayd.json("topics", "describe", name)
    assert len(topic["partitions"]) == 5
    assert topic["configs"]["max.message.bytes"] == "2000000"
    assert "retention.ms" not in topic["configs"]

    assert drayd("topics", "delete", name).endswith("nothing was deleted: add --execute to do this\n")
    assert drayd("topics", "delete", name, "--execute") == f"topic {name} deleted\n"
    assert name not in [topic["name"] for topic in drayd.json("topics", "list")]
    assert drayd("topics", "delete", name, "--if-exists") == f"there is no topic {name}\n"


def test_refusals_are_one_line_with_kafkas_name_for_them(drayd: Shell, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    assert drayd.fails("topics", "delete", name, "--execute").startswith(
        f"drayd: cannot delete topic {name}: UNKNOWN_TOPIC_OR_PARTITION"
    )
    assert drayd.fails("topics", "describe", name).startswith(
        f"drayd: cannot describe topic {name}: UNKNOWN_TOPIC_OR_PARTITION"
    )
    assert "INVALID_TOPIC_EXCEPTION" in drayd.fails("topics", "create", "no spaces")
    assert "INVALID_CONFIG" in drayd.fails("topics", "create", name, "--config", "retention.ms=soon")
    assert "INVALID_PARTITIONS" in drayd.fails("topics", "create", name, "--partitions", "0")
    drayd("topics", "create", name)
    assert "TOPIC_ALREADY_EXISTS" in drayd.fails("topics", "create", name)
    assert drayd("topics", "create", name, "--if-not-exists") == f"topic {name} exists already\n"
    assert "INVALID_PARTITIONS" in drayd.fails("topics", "alter", name, "--partitions", "1")


def test_validate_only_creates_nothing(drayd: Shell, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    assert drayd("topics", "create", name, "--validate-only") == f"topic {name} could be created\n"
    assert name not in [topic["name"] for topic in drayd.json("topics", "list")]


def test_the_cluster_lists_its_brokers(drayd: Shell, bootstrap: str) -> None:
    cluster = drayd.json("cluster")
    addresses = set(bootstrap.split(","))
    assert {f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]} == addresses
    out = drayd("cluster")
    assert cluster["cluster_id"] in out
    assert all(address in out for address in addresses)


def test_the_first_broker_that_answers_is_asked(
    capsys: pytest.CaptureFixture[str], drayd: Shell, bootstrap: str
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert Shell(capsys, f"{nobody}, {bootstrap}").json("cluster") == drayd.json("cluster")
    assert nobody in Shell(capsys, f"{nobody},{nobody}").fails("cluster")


def measure(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.throughput", "--bootstrap", bootstrap, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT, check=False)


def test_a_measurement_counts_every_record_once_each_way_and_cleans_up(
    drayd: Shell, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    arguments = ["--records", "2503", "--size", "100", "--partitions", "3", "--topic", name]
    ran = measure(bootstrap, *arguments, "--batch-bytes", "4KiB", "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    produced, fetched = json.loads(ran.stdout)
    assert (produced["name"], produced["records"], produced["bytes"]) == ("produce", 2503, 250300)
    assert (fetched["name"], fetched["records"], fetched["bytes"]) == ("fetch", 2503, 250300)
    assert name not in [topic["name"] for topic in drayd.json("topics", "list")]


def test_a_measurement_does_not_touch_a_topic_that_is_there(
    drayd: Shell, bootstrap: str, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    drayd("topics", "create", name)
    ran = measure(bootstrap, "--records", "10", "--topic", name)
    assert ran.returncode == 1
    assert "TOPIC_ALREADY_EXISTS" in ran.stderr
    assert name in [topic["name"] for topic in drayd.json("topics", "list")]


def test_the_life_of_a_user(drayd: Shell, tmp_path: Path) -> None:
    """On Apache Kafka too: the password is salted and hashed here, as kafka-configs.sh does."""
    secret = tmp_path / "password"
    secret.write_text("correct-horse\n")
    drayd("user", "add", "shell-user", "--password-file", str(secret))
    assert drayd.json("user", "list")["shell-user"] == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert drayd("user", "delete", "shell-user", "--execute") == "user shell-user deleted\n"
    assert "shell-user" not in drayd.json("user", "list")
