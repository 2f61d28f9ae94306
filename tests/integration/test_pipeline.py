"""The pipeline from end to end, with a real Spark: the log becomes a table while clients go on."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyiceberg.catalog import load_catalog
from tests.services.commands import drayd, run
from tests.services.dray import DrayProcess
from tests.services.tools import require_tool

FIRST_HOUR = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text()
RECORDS = 3000
PARTITIONS = 3
COUNT = "select count(*) as n from orders"


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    require_tool("java")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[DrayProcess]:
    settings = {
        "DRAY_COMPACTION__ENABLED": "true",
        "DRAY_COMPACTION__INTERVAL": "1s",
        "DRAY_COMPACTION__WAL_MAX_AGE": "0s",
        "DRAY_TEST_KNOB__COMPACTION__TAKEOVER_SECONDS": "1",
        "DRAY_TOPICS__PARTITIONS": str(PARTITIONS),
    }
    with DrayProcess(tmp_path, subcommand="up", settings=settings) as process:
        yield process


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        headers: list[tuple[str, str | bytes | None]] = [("h", str(number).encode()), ("h", None)]
        producer.produce("orders", f"value {number}", str(number), number % PARTITIONS, headers=headers)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> dict[int, tuple[int | None, int | None, object]]:
    """Every record from the beginning, by its number: partition, offset, headers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, tuple[int | None, int | None, object]] = {}
    for _ in range(30 * 10):
        for message in consumer.consume(count, timeout=0.1):
            assert message.error() is None
            number = int(message.key() or b"")
            assert number not in found
            assert message.value() == f"value {number}".encode()
            found[number] = (message.partition(), message.offset(), message.headers())
        if len(found) == count:
            break
    consumer.close()
    return found


def rows(directory: Path) -> list[dict[str, Any]]:
    catalog = load_catalog("dray", type="sql", uri=f"sqlite:///{directory / 'catalog.sqlite'}")
    if not catalog.table_exists("dray.orders"):
        return []
    found: list[dict[str, Any]] = catalog.load_table("dray.orders").scan().to_arrow().to_pylist()
    return found


def as_consumed(row: dict[str, Any]) -> tuple[int, int, object]:
    headers = [(header["key"], header["value"]) for header in row["headers"]]
    return row["partition"], row["offset"], headers


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, f"not seen in time: {what}"
        time.sleep(0.2)


def jvm_beside(process: DrayProcess) -> psutil.Process | None:
    for child in psutil.Process(process.pid).children(recursive=True):
        if child.name() == "java":
            return child
    return None


def test_topics_become_tables_while_clients_go_on_and_a_dead_jvm_is_replaced(up: DrayProcess) -> None:
    produce(up.bootstrap, 0, RECORDS)
    before = consume(up.bootstrap, RECORDS)
    eventually(lambda: len(rows(up.data_directory)) == RECORDS, "the table holds what was produced")
    # The same records, at the same offsets, from the files that the table names.
    assert consume(up.bootstrap, RECORDS) == before
    assert {int(row["key"]): as_consumed(row) for row in rows(up.data_directory)} == before

    jvm = jvm_beside(up)
    assert jvm is not None
    jvm.send_signal(signal.SIGKILL)
    produce(up.bootstrap, RECORDS, RECORDS)
    eventually(lambda: len(rows(up.data_directory)) == 2 * RECORDS, "the next compactor goes on")
    assert len(consume(up.bootstrap, 2 * RECORDS)) == 2 * RECORDS
    log = up.log_path.read_text()
    assert "the compactor ended with code 1; it is started again" in log
    assert "Spark's JVM has ended" in log
    asked = drayd("query", COUNT, "--format", "json", "--data-dir", up.data_directory)
    assert json.loads(asked) == [{"n": 2 * RECORDS}]


def test_the_demo_runs(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    soon_sure = {"DRAY_CLUSTER__TALLY_INTERVAL": "500ms"}
    told = drayd("demo", "--seconds", "2", "--rate", "500", "--keep", kept, **soon_sure)
    assert "records produced per second" in told
    assert "customer-000" in told
    assert "all" in told
    # And what the first hour tells to type next.
    [block] = [block for block in blocks("sh") if "drayd compactor" in block]
    told = run("sh", "-ec", block, DRAY_DATA_DIR=str(kept), **soon_sure)
    assert told.startswith("nothing to compact")
    assert 'max("offset")' in told


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", FIRST_HOUR, re.DOTALL)
