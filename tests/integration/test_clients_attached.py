"""Every client reads an attached topic as it read the source's: from its start, from holes, with the offsets
that its group had; and appends behind it. And what was adopted goes with its topic, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, TopicPartition
from tests.services.clients import BUILT_CLIENTS, BUILT_READERS, CLIENTS, READERS, Message, Reading
from tests.services.dray import DrayProcess, drayd_path
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import checksums
from tests.unit.foreign.fixture_files import LOCAL, local_partition

from dray.foreign import walk_batches
from dray.log.foreign_pieces import as_data
from dray.records import decode

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")

SECONDS = 60.0
ORDERS, OTHER = ("orders", 0), ("orders", 1)
HOLES = (20_101, 20_152)
"""Markers of transactions in partition 0. No aborted record lies behind them."""
END = 29_293
OTHER_END = 29_140
OF_GROUPS = {ORDERS: 20_152, OTHER: 29_138}
"""What was committed at the source: one of them in a hole."""


@dataclass
class AttachedBroker:
    broker: DrayProcess
    config: Path
    tier: Path
    beyond: int = END

    def drayd(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(drayd_path()), *arguments],
            env=dict(self.broker.environment()),
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    @property
    def places(self) -> tuple[str, ...]:
        return "--config", str(self.config), "--data-dir", str(self.broker.data_directory)

    def migrate(self, word: str, *arguments: str) -> str:
        return self.drayd("migrate", word, "orders", *self.places, *arguments, "--yes")

    def collect(self) -> None:
        self.drayd("admin", "gc", "--now", *self.places)


@contextmanager
def start(directory: Path, tier: Path, *arguments: str) -> Iterator[AttachedBroker]:
    config = directory / "dray.yaml"
    config.write_text(f"foreign:\n  stores:\n    old: file:{tier}\n")
    with DrayProcess(directory, arguments=["--config", str(config)]) as broker:
        attached = AttachedBroker(broker, config, tier)
        place = ("--from", "old", "--layout", "kafka-tiered", "--bootstrap", broker.bootstrap)
        attached.migrate("attach", *place, *arguments)
        yield attached


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
    with start(directory, LOCAL, "--offsets", str(offsets)) as found:
        yield found


@pytest.fixture(scope="module")
def history() -> dict[int, bytes]:
    """By offset, the values of partition 0."""
    found: dict[int, bytes] = {}
    for path in sorted(local_partition(0).glob("*.log")):
        data = path.read_bytes()
        for batch in walk_batches(data):
            if not batch.is_control:
                plain = as_data(data[batch.position : batch.end], with_producer=False)
                found |= {each.offset: bytes(each.value or b"") for each in decode(plain).records()}
    return found


def said(messages: list[Message]) -> list[tuple[int, bytes | None]]:
    return [(message.offset, message.value) for message in messages]


@pytest.mark.parametrize("name", names())
def test_a_client_reads_and_appends(name: str, attached: AttachedBroker, history: dict[int, bytes]) -> None:
    make, protocol = (READERS | BUILT_READERS)[name]
    bootstrap = attached.broker.bootstrap

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
        assert behind == [attached.beyond, attached.beyond + 1]
        attached.beyond += 2
        history |= dict.fromkeys(behind, value)
        reader.seek(ORDERS, END - 3)
        assert said(reader.read({ORDERS: attached.beyond})[ORDERS]) == between(END - 3, attached.beyond)
    finally:
        reader.close()


def test_a_group_of_kafka_python_goes_on_where_it_was(attached: AttachedBroker) -> None:
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=attached.broker.bootstrap,
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


def test_what_was_adopted_goes_with_its_topic_and_nothing_else_of_the_source(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    shutil.copytree(LOCAL, tier)
    of_orders = set(checksums(tier))
    # What else lies there: another topic of the source, and files of others beside the segments.
    shutil.copytree(local_partition(0), tier / "orders-eu-0-AAAAAAAAAAAAAAAAAAAAAQ")
    (tier / local_partition(0).name / "notes.txt").write_bytes(b"not a segment")
    (tier / "readme").write_bytes(b"of the operator")
    before = checksums(tier)
    with start(tmp_path, tier) as attached:
        admin = AdminClient({"bootstrap.servers": attached.broker.bootstrap})
        attached.collect()
        assert checksums(tier) == before, "borrowed: nothing is ever deleted"
        assert "4 segments adopted" in attached.migrate("adopt")
        attached.collect()
        assert checksums(tier) == before, "adopted, and the topic needs them"
        admin.delete_topics(["orders"])["orders"].result(SECONDS)
        until = time.monotonic() + SECONDS
        while of_orders & set(checksums(tier)):
            assert time.monotonic() < until, sorted(of_orders & set(checksums(tier)))
            attached.collect()
        assert checksums(tier) == {path: sum_ for path, sum_ in before.items() if path not in of_orders}


def test_a_topic_that_was_never_adopted_leaves_its_source_as_it_was(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    shutil.copytree(LOCAL, tier)
    before = checksums(tier)
    with start(tmp_path, tier) as attached:
        admin = AdminClient({"bootstrap.servers": attached.broker.bootstrap})
        admin.delete_topics(["orders"])["orders"].result(SECONDS)
        for _ in range(3):
            attached.collect()
        assert checksums(tier) == before
