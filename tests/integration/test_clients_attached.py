"""Every client reads an attached topic as it read the source's: from its start, from holes, with the offsets
that its group had; and appends behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, TopicPartition
from tests.services.attached_broker import AttachedBroker, attached_broker
from tests.services.clients import BUILT_CLIENTS, BUILT_READERS, CLIENTS, READERS, Message, Reading
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.unit.migration.formats.fixture_files import LOCAL, local_partition

from dray.kafka.records import decode
from dray.migration.entries.pieces import as_data
from dray.migration.formats import walk_batches

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")

SECONDS = 60.0
ORDERS, OTHER = ("orders", 0), ("orders", 1)
HOLES = (20_101, 20_152)
"""Markers of transactions in partition 0. No aborted record lies behind them."""
END = 29_293
OTHER_END = 29_140
OF_GROUPS = {ORDERS: 20_152, OTHER: 29_138}
"""What was committed at the source: one of them in a hole."""


def names() -> list[object]:
    soaked = [pytest.param(name, marks=pytest.mark.soak) for name in BUILT_READERS]
    return ["aiokafka", "kafka-python", "java-classic", *soaked]


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachedBroker]:
    directory = tmp_path_factory.mktemp("attached")
    lines = [
        f"billing-{name},{topic},{partition},{offset}"
        for name in (*READERS, *BUILT_READERS)
        for (topic, partition), offset in OF_GROUPS.items()
    ]
    offsets = directory / "offsets.csv"
    offsets.write_text("\n".join(lines) + "\n")
    with attached_broker(directory, LOCAL) as found:
        found.attach("orders", "--offsets", str(offsets))
        yield found


@pytest.fixture(scope="module")
def history() -> dict[int, bytes]:
    """By offset, the values of partition 0."""
    found: dict[int, bytes] = {}
    for path in sorted(local_partition(0).glob("*.log")):
        data = path.read_bytes()
        for batch in walk_batches(data):
            if not batch.is_control:
                plain = as_data(data[batch.position : batch.end])
                found |= {each.offset: bytes(each.value or b"") for each in decode(plain).records()}
    return found


def said(messages: list[Message]) -> list[tuple[int, bytes | None]]:
    return [(message.offset, message.value) for message in messages]


@pytest.mark.parametrize("name", names())
def test_a_client_reads_and_appends(name: str, attached: AttachedBroker, history: dict[int, bytes]) -> None:
    make, protocol = (READERS | BUILT_READERS)[name]
    bootstrap = attached.bootstrap

    def between(start: int, end: int) -> list[tuple[int, bytes | None]]:
        return [(offset, history[offset]) for offset in range(start, end) if offset in history]

    client = (CLIENTS | BUILT_CLIENTS)[name.removesuffix("-classic")](bootstrap)
    reader = make(Reading(bootstrap, ("orders",), f"billing-{name}", protocol))
    try:
        if name == "kafka-python":  # its reader has no group: see below
            reader.read({ORDERS: 1, OTHER: 1})
        else:
            found = reader.read({ORDERS: 20_170, OTHER: OTHER_END})
            assert said(found[ORDERS]) == between(OF_GROUPS[ORDERS], 20_170)
            assert [each.offset for each in found[OTHER]] == [29_138, 29_139]
        reader.seek(ORDERS, 0)
        assert said(reader.read({ORDERS: 50})[ORDERS]) == between(0, 50)
        for hole in HOLES:
            assert hole not in history
            reader.seek(ORDERS, hole)
            assert said(reader.read({ORDERS: 20_170})[ORDERS]) == between(hole, 20_170)
        value = f"by {name}".encode()
        behind = client.produce("orders", [Message(b"k", value), Message(b"k", value)], idempotent=True)
        end = max(history) + 1
        assert behind == [end, end + 1], "behind what is there, and what others appended"
        history |= dict.fromkeys(behind, value)
        reader.seek(ORDERS, END - 3)
        assert said(reader.read({ORDERS: end + 2})[ORDERS]) == between(END - 3, end + 2)
    finally:
        reader.close()


def test_a_group_of_kafka_python_goes_on_where_it_was(attached: AttachedBroker) -> None:
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=attached.bootstrap,
        group_id="billing-kafka-python",
        auto_offset_reset="none",
        enable_auto_commit=False,
        max_poll_records=5,
    )
    first: dict[tuple[str, int], int] = {}
    try:
        until = time.monotonic() + SECONDS
        while len(first) < len(OF_GROUPS):
            assert time.monotonic() < until, first
            for place, records in consumer.poll(200).items():
                if (place.topic, place.partition) not in first:
                    first[place.topic, place.partition] = records[0].offset
                    consumer.pause(TopicPartition(place.topic, place.partition))
    finally:
        consumer.close(autocommit=False)
    assert first == {ORDERS: 20_153, OTHER: 29_138}
