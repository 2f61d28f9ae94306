"""Deleted records and topics of tools do not go into tables: with Spark, read by pyiceberg and DuckDB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog
from tests.services.commands import drayd
from tests.services.dray import DrayProcess
from tests.services.tools import require_tool

RECORDS = 2511
KEPT = 11
INTERNAL = "shop-store-changelog"


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    require_tool("java")


def delete_below(bootstrap: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_records([TopicPartition("orders", 0, offset)]).values()
    assert deleted.result(60).low_watermark == offset


def offsets_in_the_table(directory: Path) -> list[int]:
    catalog = load_catalog("dray", type="sql", uri=f"sqlite:///{directory / 'catalog.sqlite'}")
    rows = catalog.load_table("dray.orders").scan(selected_fields=("offset",)).to_arrow()
    return sorted(rows.column("offset").to_pylist())


def consume_from(bootstrap: str, offset: int, count: int) -> list[tuple[int | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, offset)])
    found: list[tuple[int | None, bytes | None]] = []
    for _ in range(300):
        for message in consumer.consume(count, timeout=0.1):
            assert message.error() is None
            found.append((message.offset(), message.value()))
        if len(found) >= count:
            break
    consumer.close()
    return found


def test_deleted_records_leave_the_table_and_never_enter_it(tmp_path: Path) -> None:
    with DrayProcess(tmp_path, subcommand="up") as up:
        admin = AdminClient({"bootstrap.servers": up.bootstrap})
        for created in admin.create_topics([NewTopic("orders", 1), NewTopic(INTERNAL, 1)]).values():
            created.result(60)
        producer = Producer({"bootstrap.servers": up.bootstrap, "linger.ms": 100})
        for number in range(RECORDS):
            producer.produce("orders", b"value %d" % number)
        producer.produce(INTERNAL, b"state of a tool")
        assert producer.flush(60) == 0
        delete_below(up.bootstrap, 100)  # in the middle of what is not compacted yet
        drayd("compactor", "--once", "--data-dir", up.data_directory)
        assert offsets_in_the_table(up.data_directory) == list(range(100, RECORDS))
        # The topic of a tool is compacted, too; but it is no table.
        assert list((up.data_directory / "objects").glob(f"compaction/**/topic={INTERNAL}/**/*.parquet"))
        told = json.loads(drayd("admin", "table", "--json", "--data-dir", up.data_directory))
        assert [(line["topic"], line["table"]) for line in told] == [("orders", True), (INTERNAL, False)]
        assert "matches *-changelog" in told[1]["why"]

        first = RECORDS - KEPT
        delete_below(up.bootstrap, first)  # in the middle of the one file
        drayd("compactor", "--once", "--data-dir", up.data_directory)
        assert offsets_in_the_table(up.data_directory) == list(range(first, RECORDS))
        counted = drayd(
            "query",
            'select count(*) as n, min("offset") as first from orders',
            "--format",
            "json",
            "--data-dir",
            up.data_directory,
        )
        assert json.loads(counted) == [{"n": KEPT, "first": first}]
        # What is left is read by consumers from the file that the table has now.
        expected = [(number, b"value %d" % number) for number in range(first, RECORDS)]
        assert consume_from(up.bootstrap, first, KEPT) == expected
