"""A broker, a compactor and queries on Azure, with the settings that docs/operations/stores.md shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.services.azurite import CONTAINER, KEY, AzuriteProcess
from tests.services.commands import drayd
from tests.services.dray import DrayProcess
from tests.services.local_compactor import LocalCompactor
from tests.services.tools import require_tool
from tests.services.topics import create_topic

TOPIC = "orders"
RECORDS = 300
BELOW = 120
COUNT = f'select count(*) as n, min("offset") as first, max(decode(value)) as last from {TOPIC}'


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[dict[str, str]]:
    require_tool("java")
    with AzuriteProcess(tmp_path / "azurite") as azure:
        settings = {"DRAY_OBJECTS__URL": f"az://{CONTAINER}/dray"}
        settings |= {f"DRAY_OBJECTS__OPTIONS__{name}": text for name, text in azure.options().items()}
        yield settings | {f"DRAY_OBJECTS__SECRETS__{name}": text for name, text in azure.secrets().items()}


def test_topics_are_tables_and_records_are_deleted(tmp_path: Path, settings: Mapping[str, str]) -> None:
    with DrayProcess(tmp_path / "drayd", settings=settings) as broker:

        def run(*arguments: str) -> str:
            return drayd(*arguments, "--data-dir", str(broker.data_directory), **settings)

        create_topic(broker.bootstrap, TOPIC, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        values = [b"value %05d" % number for number in range(RECORDS)]
        for value in values:
            producer.produce(TOPIC, value)
        assert producer.flush(60) == 0
        run("compactor", "--once")
        expected = {"n": RECORDS, "first": 0, "last": values[-1].decode()}
        assert json.loads(run("query", COUNT, "--format", "json")) == [expected]
        table = run("admin", "table", TOPIC)
        assert f"abfss://{CONTAINER}@drayaccount.dfs.core.windows.net/dray/iceberg/topic={TOPIC}/" in table
        assert KEY not in table

        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [deleted] = admin.delete_records([TopicPartition(TOPIC, 0, BELOW)]).values()
        assert deleted.result(60).low_watermark == BELOW
        with LocalCompactor(tmp_path / "compactor", broker):
            pass  # it has been round once
        expected = {"n": RECORDS - BELOW, "first": BELOW, "last": values[-1].decode()}
        assert json.loads(run("query", COUNT, "--format", "json")) == [expected]
        # Read by a broker that has nothing in memory, from the file that the table has now.
        broker.kill()
        broker.start()
        assert consumed(broker.bootstrap) == values[BELOW:]


def consumed(bootstrap: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, 0, BELOW)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(found) < RECORDS - BELOW and time.monotonic() < deadline:
        for message in consumer.consume(RECORDS, timeout=0.5):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    return found
