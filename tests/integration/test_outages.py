"""Outages of each kind, of real processes and stores before a real Prometheus: each makes the alert fire that
names it, at the broker that has it and at no other. What the rules wait for is shortened."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self
from urllib.error import URLError

import pytest
import yaml
from confluent_kafka import Producer
from tests.services.certificates import make_certificates
from tests.services.dray import DrayProcess
from tests.services.etcd import EtcdProcess
from tests.services.process import free_port
from tests.services.prometheus import Prometheus, running_prometheus
from tests.services.remote import s3_settings
from tests.services.s3 import S3Process
from tests.services.topics import create_topic
from tools import alerts

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPIC: Final = "orders"
PARTITIONS: Final = 4
NAMED_BY: Final = {
    "store": {"DrayObjectStoreFailing", "DrayPartitionsFailing", "DrayNothingAcknowledged"},
    "metadata": {"DrayMetadataStoreFailing", "DrayOffsetsFailing"},
    "format": {"DrayUnreadableValues", "DrayPartitionsFailing"},
    "disk": {"DrayDiskFull", "DrayNothingAcknowledged"},
    "certificate": {"DrayCertificateExpires"},
}
OF_ONE_KIND: Final = {
    "DrayObjectStoreFailing": "store",
    "DrayMetadataStoreFailing": "metadata",
    "DrayUnreadableValues": "format",
    "DrayDiskFull": "disk",
    "DrayCertificateExpires": "certificate",
}
FULL_DISK: Final = """
import os
from pathlib import Path
real = os.statvfs

def statvfs(path):
    found = list(real(path))
    if (Path(__file__).parent / "full").exists():
        found[3] = found[4] = 0
    return os.statvfs_result(found)

os.statvfs = statvfs
"""
"""What a disk tells the process that it belongs to, as a `sitecustomize`."""


class Clients:
    """A producer of each broker, which never gives up, and a group of one that commits."""

    def __init__(self, brokers: Mapping[str, DrayProcess]) -> None:
        self._committed_at = brokers["metadata"].port
        self._producers = [
            Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 300_000, "log_level": 0})
            for broker in brokers.values()
        ]
        self._done = threading.Event()
        self._committing = threading.Thread(target=self._commit_on, name="commits")

    def work(self) -> None:
        for producer in self._producers:
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, bytes(20_000), partition=partition)  # too large to be carried
            producer.poll(0)

    def _commit_on(self) -> None:
        while not self._done.wait(0.2):
            asyncio.run(self._commit())

    async def _commit(self) -> None:
        """As a consumer does that knows its coordinator."""
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])
        async with await KafkaConnection.connect("127.0.0.1", self._committed_at) as connection:
            await connection.request(OffsetCommitRequest(group_id="billing", topics=[topic]), 8)

    def __enter__(self) -> Self:
        self._committing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for producer in self._producers:
            producer.purge()
        self._committing.join(60)


class Stage:
    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.s3 = stack.enter_context(S3Process(directory / "s3"))
        self.etcd = stack.enter_context(EtcdProcess(directory))
        (directory / "disk").mkdir()
        (directory / "disk" / "sitecustomize.py").write_text(FULL_DISK)
        self.brokers = {
            kind: DrayProcess(directory / kind, name=kind, settings=self._settings(kind)) for kind in NAMED_BY
        }
        for broker in self.brokers.values():
            broker.spawn()
            stack.callback(broker.kill)
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def _settings(self, kind: str) -> dict[str, str]:
        if kind == "store":
            options = {"timeout": "2s", "backoff": "20ms", "max_backoff": "200ms"}
            return s3_settings(self.s3, "outage", options)
        if kind == "metadata":
            return {
                "DRAY_METADATA__ENGINE": "etcd",
                "DRAY_METADATA__ETCD__ENDPOINTS": self.etcd.address,
                "DRAY_TEST_KNOB__METADATA__ETCD__REQUEST_TIMEOUT": "1.0",
                "DRAY_TEST_KNOB__METADATA__ETCD__PATIENCE": "1.0",
            }
        if kind == "disk":
            return {"DRAY_METADATA__BALLAST": "1MiB", "PYTHONPATH": str(self.directory / "disk")}
        if kind == "certificate":  # it is good for a day
            made = make_certificates(self.directory / "certificates")
            listener = {
                "address": f"127.0.0.1:{free_port()}",
                "protocol": "SSL",
                "certificate_file": str(made.certificate),
                "key_file": str(made.key),
            }
            return {"DRAY_BROKER__LISTENERS__CLIENTS": yaml.safe_dump(listener, default_flow_style=True)}
        return {}

    def begin(self) -> None:
        """All outages at once."""
        self.s3.kill()
        self.etcd.kill()
        (self.directory / "disk" / "full").touch()
        broker = self.brokers["format"]
        broker.kill()
        with sqlite3.connect(broker.data_directory / "metadata.sqlite") as opened:
            found = opened.execute("SELECT rowid, value FROM records WHERE key LIKE '%hwm%'").fetchall()
            assert len(found) >= PARTITIONS
            for row, value in found:
                opened.execute("UPDATE records SET value = ? WHERE rowid = ?", (b"\x09" + value[1:], row))
        broker.start()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def impatient_rules(directory: Path) -> Path:
    text = alerts.FILE.read_text()
    rules = yaml.safe_load(re.sub(r"\[[25]m\]", "[10s]", text))
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
    return directory / "rules.yaml"


def firing(prometheus: Prometheus, kinds: Mapping[str, str]) -> set[tuple[str, str]]:
    """Kind and alert; none while it starts."""
    try:
        found = prometheus.query('ALERTS{alertstate="firing", instance!=""}')
    except URLError:
        return set()
    return {(kinds[one["metric"]["instance"]], one["metric"]["alertname"]) for one in found}


def test_each_kind_of_outage_fires_what_names_it(stage: Stage) -> None:
    kinds = {f"127.0.0.1:{broker.http_port}": kind for kind, broker in stage.brokers.items()}
    rules = impatient_rules(stage.directory)
    for broker in stage.brokers.values():
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    with (
        Clients(stage.brokers) as clients,
        running_prometheus(stage.directory, {"dray-brokers": list(kinds)}, rules) as prometheus,
    ):

        def works_until(missing: set[tuple[str, str]]) -> set[tuple[str, str]]:
            seen: set[tuple[str, str]] = set()
            deadline = time.monotonic() + 60
            while not missing <= seen:
                assert time.monotonic() < deadline, (missing - seen, seen)
                clients.work()
                time.sleep(0.2)
                seen |= firing(prometheus, kinds)
            return seen

        works_until({("certificate", "DrayCertificateExpires")})
        stage.begin()
        wanted = {(kind, alert) for kind, named in NAMED_BY.items() for alert in named}
        seen = works_until(wanted)
        assert {(kind, alert) for kind, alert in seen if OF_ONE_KIND.get(alert, kind) != kind} == set()
