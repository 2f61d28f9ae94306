"""A broker with a console beside it, some topics with records, and groups that have read a part of them."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dray.base.runtime import SystemRuntime
from dray.broker.topics.model import decode_topic
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.config import load
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.migration.record import NO_TIER, MigrationState, encode_migration
from tests.services.dray import OPENER, DrayProcess, drayd_path
from tests.services.process import ServerProcess, free_port, free_ports
from tests.services.two_builds import MIGRATION

HOSTILE: Sequence[bytes] = (
    b"<script>window.hostile = 1</script>",
    b"\"'><img src=x onerror='window.hostile = 1'>",
    b"\x00\x01\x1b[31mred\x07",
    b"9223372036854775808",
    b'{"big": 9223372036854775807, "float": 0.1000000000000000055511151231257827}',
    "\u202egnp.exe\u200b".encode(),
    b"\xff\xfe\x00 not text",
    b"",
    b"{{ 7*7 }}",
    b"x" * 900_000,
)
LONG_NAME = "eu-west.customer-profile.snapshot-with-a-rather-long-name.v12.compacted-per-key.do-not-use"
ORDERS = 600
_NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def answer_of(address: str) -> tuple[int, bytes]:
    try:
        with OPENER.open(address, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class BrokerWithConsole(DrayProcess):
    def __init__(self, directory: Path, brokers: int = 1) -> None:
        self.console_port = free_port()
        listen = f"127.0.0.1:{self.console_port}"
        settings = {"DRAY_CONSOLE__ENABLED": "true", "DRAY_CONSOLE__LISTEN": listen}
        arguments = ["--brokers", str(brokers)] if brokers > 1 else []
        super().__init__(directory, subcommand="up", settings=settings, arguments=arguments)
        self.port, self.http_port = free_ports(brokers), free_ports(brokers)
        self.console = f"http://{listen}"

    def is_ready(self) -> bool:
        return super().is_ready() and self._console_answers()

    def _console_answers(self) -> bool:
        try:
            return answer_of(f"{self.console}/api/cluster")[0] == 200
        except OSError:
            return False

    def view(self, path: str) -> Any:
        status, body = answer_of(f"{self.console}/api{path}")
        assert status == 200, body
        return json.loads(body)


class ConsoleProcess(ServerProcess):
    """`drayd console`, for a cluster that runs elsewhere."""

    def __init__(self, directory: Path, bootstrap: str, *arguments: str) -> None:
        super().__init__("console", directory)
        self.port = free_port()
        self.bootstrap = bootstrap
        self.arguments = arguments
        self.address = f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        listen = f"127.0.0.1:{self.port}"
        return [
            str(drayd_path()),
            "console",
            "--bootstrap",
            self.bootstrap,
            "--listen",
            listen,
            *self.arguments,
        ]

    def is_ready(self) -> bool:
        try:
            return answer_of(f"{self.address}/api/cluster")[0] == 200
        except OSError:
            return False


def fill(bootstrap: str) -> None:
    """The same for every run, but for the times."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {"orders": 4, "payments": 2, "empty": 1, "hostile": 1, LONG_NAME: 2}
    for done in admin.create_topics([NewTopic(name, count) for name, count in topics.items()]).values():
        done.result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(ORDERS):
        order = {
            "order": 2**53 + number,
            "customer": {"id": number % 40},
            "state": "paid" if number % 3 else "new",
        }
        producer.produce(
            "orders",
            partition=number % 4,
            key=f"customer-{number % 40}",
            value=json.dumps(order),
            headers=[("source", b"shop")],
        )
        if number % 200 == 0:
            producer.flush()
    for number in range(50):
        producer.produce("payments", partition=number % 2, value=str(number))
    for value in HOSTILE:
        producer.produce(
            "hostile", key=value[:80] or None, value=value, headers=[("<b>header</b>", value[:100])]
        )
    assert producer.flush(60) == 0
    commit(bootstrap, "billing", {("orders", number): 100 for number in range(4)} | {("payments", 0): 25})
    commit(bootstrap, "warehouse/eu <1>", {("orders", 0): 20})


def link(process: DrayProcess, topic: str) -> None:
    """The record of a topic that comes from another cluster, as a migrator leaves it."""
    environment = {**process.environment(), "DRAY_DATA_DIR": str(process.data_directory)}
    settings = load(environment=environment).settings

    async def write() -> None:
        runtime = SystemRuntime()
        metadata = await open_metadata(settings, runtime)
        try:
            found = await metadata.get(keys.CLUSTER_DOMAIN, keys.topic(topic))
            assert found is not None
            known = decode_topic(topic, found.value, {})
            record = replace(
                MIGRATION,
                state=MigrationState.MIRRORING,
                topic_id=known.topic_id,
                layout=NO_TIER,
                source="kafka-1.example:9092",
                store="",
                partitions=len(known.streams),
                streams=known.streams,
                bounds=tuple((0, 0) for _ in known.streams),
                upstream="old",
                source_topic_id=known.topic_id,
                attempt=1,
                why="partition 1 was not ready within 60 s: its last records did not come",
            )
            await metadata.write(keys.CLUSTER_DOMAIN, [Put(keys.migration(topic), encode_migration(record))])
        finally:
            await metadata.close()
            runtime.close()

    with ThreadPoolExecutor(1) as elsewhere:  # Playwright has a loop in this thread
        elsewhere.submit(lambda: asyncio.run(write())).result()


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            break
        except KafkaException as error:
            # A cluster that has just started makes the topic of its offsets first.
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            consumer.poll(0.1)
    consumer.close()
