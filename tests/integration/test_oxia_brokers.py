"""Brokers with nothing in common but an Oxia server and a folder of objects."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.dray import DrayProcess, drayd_path
from tests.services.logbook import read_partition
from tests.services.metadata import oxia_settings
from tests.services.oxia import OxiaStandalone
from tests.services.process import POLL_SECONDS, free_port
from tests.services.proxy import TcpProxy
from tests.services.topics import client_of, create_topic

TOPIC = "shared"
PARTITIONS = 2
ROUND = 200


@pytest.fixture
def oxia(tmp_path: Path) -> Iterator[OxiaStandalone]:
    with OxiaStandalone(tmp_path / "oxia", shards=2) as server:
        yield server


def broker(directory: Path, number: int, oxia: OxiaStandalone) -> DrayProcess:
    settings = oxia_settings(oxia) | {
        "DRAY_OBJECTS__URL": f"file:{directory / 'objects'}",
        "DRAY_BROKER__SESSION_TTL": "2s",
    }
    name = f"broker-{number}"
    return DrayProcess(directory / name, name=name, settings=settings, arguments=["--broker-id", str(number)])


def produce(bootstrap: str, name: str) -> list[bytes]:
    """Returns when every record is acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    values = [f"{name}-{number}".encode() for number in range(ROUND)]
    failed: list[object] = []
    for number, value in enumerate(values):
        producer.produce(
            TOPIC,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []
    return values


def read_all(bootstrap: str) -> list[bytes]:
    return [value for number in range(PARTITIONS) for value in read_partition(bootstrap, TOPIC, number)]


def test_what_one_broker_writes_another_serves_and_one_may_die(tmp_path: Path, oxia: OxiaStandalone) -> None:
    first, second = broker(tmp_path, 1, oxia), broker(tmp_path, 2, oxia)
    with first, second:
        create_topic(first.bootstrap, TOPIC, PARTITIONS)
        written = produce(first.bootstrap, "first") + produce(second.bootstrap, "second")
        assert sorted(read_all(first.bootstrap)) == sorted(read_all(second.bootstrap)) == sorted(written)
        first.kill()
        written += produce(second.bootstrap, "alone")
        assert sorted(read_all(second.bootstrap)) == sorted(written)
        first.start()
        written += produce(f"{first.bootstrap},{second.bootstrap}", "again")
        assert sorted(read_all(first.bootstrap)) == sorted(written)
        assert second.terminate() == 0


@pytest.mark.soak
@pytest.mark.parametrize("harm", ["cut", "freeze"])
def test_a_broker_without_its_oxia_for_a_while_goes_on_where_it_was(
    tmp_path: Path, oxia: OxiaStandalone, harm: str
) -> None:
    """For longer than its session: meanwhile the other one is the cluster."""
    with TcpProxy(oxia.port) as link:
        lonely, other = broker(tmp_path, 1, oxia), broker(tmp_path, 2, oxia)
        lonely.settings["DRAY_METADATA__OXIA__ADDRESSES"] = link.address
        with lonely, other:
            create_topic(lonely.bootstrap, TOPIC, PARTITIONS)
            written = produce(lonely.bootstrap, "before")
            getattr(link, harm)()
            wait_until(lambda: brokers_told_by(other.bootstrap) == {2})
            written += produce(other.bootstrap, "meanwhile")
            link.mend() if harm == "cut" else link.thaw()
            wait_until(lambda: brokers_told_by(other.bootstrap) == {1, 2})
            written += produce(lonely.bootstrap, "after")
            assert sorted(read_all(lonely.bootstrap)) == sorted(written)


def brokers_told_by(bootstrap: str) -> set[int]:
    return set(client_of(bootstrap).list_topics(timeout=60).brokers)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


@pytest.mark.parametrize(
    ("server", "settings", "complaint"),
    [
        ({}, {"DRAY_METADATA__OXIA__NAMESPACE": "elsewhere"}, "has no namespace 'elsewhere'"),
        ({"notifications": False}, {}, "notifications disabled"),
    ],
)
def test_an_oxia_that_will_not_do_is_one_line_at_start(
    tmp_path: Path, server: dict[str, object], settings: dict[str, str], complaint: str
) -> None:
    with OxiaStandalone(tmp_path / "oxia", **server) as oxia:  # type: ignore[arg-type]
        refused(tmp_path, oxia_settings(oxia) | settings, complaint)


def test_an_oxia_that_is_not_there_is_one_line_at_start(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "DRAY_METADATA__ENGINE": "oxia",
        "DRAY_METADATA__OXIA__ADDRESSES": address,
        "DRAY_TEST_KNOB__METADATA__OXIA__PATIENCE": "1.0",
    }
    refused(tmp_path, settings, f"no Oxia server answers at {address}")


def refused(directory: Path, settings: dict[str, str], complaint: str) -> None:
    process = DrayProcess(directory / "broker", settings=settings)
    done = subprocess.run(
        [str(drayd_path()), *process.command()[1:]],
        env=dict(process.environment()),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert complaint in line
