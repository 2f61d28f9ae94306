"""Topics that a real Kafka tiered are attached once it is stopped: what it said before is the referee."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.services.dray import DrayProcess, drayd_path
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import (
    COMPACTED,
    PARTITIONS,
    PATIENCE,
    TOPIC,
    SeenRecord,
    checksums,
    commit,
    committed,
    offsets_at,
    read_all,
    tiered_segments,
    wait_for,
    write_compacted,
    write_history,
)
from tests.services.tiered_kafka import TieredKafka, require_tiering

pytestmark = [
    pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts brokers of its own"),
    # Kafka is started twice, and tiers four segments: `test_migration_chapter.py` reads what it left earlier.
    pytest.mark.soak,
]


class Answers(NamedTuple):
    """What Kafka said while it lived."""

    ends: dict[int, int]
    uncommitted: dict[int, list[SeenRecord]]
    committed: dict[int, list[SeenRecord]]
    times: dict[int, dict[int, int]]
    """By time: the offset in each partition."""
    compacted: dict[int, list[SeenRecord]]
    compacted_ends: dict[int, int]


class DeadCluster(NamedTuple):
    tier: Path
    logs: Path
    answers: Answers


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> DeadCluster:
    require_tiering()
    kafka = TieredKafka(tmp_path_factory.mktemp("kafka"))
    with kafka:
        write_history(kafka)
        write_compacted(kafka)
        commit(kafka.bootstrap, "billing", TOPIC, {0: 100, 1: 200})
        wait_for("four segments tiered", lambda: min(tiered_segments(kafka).values(), default=0) >= 4)
        ends = offsets_at(kafka.bootstrap, TOPIC, -1)
        everything = read_all(kafka.bootstrap, TOPIC, ends, "read_uncommitted")
        moments = {record.timestamp[1] for record in everything[0][::200]}
        compacted_ends = offsets_at(kafka.bootstrap, COMPACTED, -1, partitions=1)
        answers = Answers(
            ends,
            everything,
            read_all(kafka.bootstrap, TOPIC, ends, "read_committed"),
            {moment: offsets_at(kafka.bootstrap, TOPIC, moment) for moment in moments},
            read_all(kafka.bootstrap, COMPACTED, compacted_ends, "read_committed"),
            compacted_ends,
        )
        kafka.terminate()
    return DeadCluster(kafka.tier, kafka.directory / "logs", answers)


class Site:
    """A Dray that a topic is attached to."""

    def __init__(self, directory: Path, stores: dict[str, str]) -> None:
        self.config = directory / "dray.yaml"
        self.config.write_text(json.dumps({"foreign": {"stores": stores}}))
        self.broker = DrayProcess(directory, arguments=["--config", str(self.config)])

    def migrate(self, *arguments: str, code: int = 0) -> str:
        command = [str(drayd_path()), "migrate", *arguments]
        command += ["--config", str(self.config), "--data-dir", str(self.broker.data_directory)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=self.broker.environment()
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def ends(self, topic: str, partitions: int = PARTITIONS) -> dict[int, int]:
        return offsets_at(self.broker.bootstrap, topic, -1, partitions)


@pytest.fixture(scope="module")
def tiered(dead: DeadCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The tier, attached where it lies."""
    site = Site(tmp_path_factory.mktemp("tiered"), {"old": f"file:{dead.tier}"})
    with site.broker:
        before = checksums(dead.tier)
        flags = ("--from", "old", "--layout", "kafka-tiered", "--remote-metadata", str(dead.logs))
        site.migrate("attach", TOPIC, *flags, "--execute")
        yield site
        assert checksums(dead.tier) == before


@pytest.fixture(scope="module")
def uploaded(dead: DeadCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The broker's disk, uploaded."""
    site = Site(tmp_path_factory.mktemp("uploaded"), {})
    with site.broker:
        before = checksums(dead.logs)
        for topic in (TOPIC, COMPACTED):
            site.migrate("attach", topic, "--from", str(dead.logs), "--layout", "log-dir", "--execute")
        assert checksums(dead.logs) == before
        yield site


def below(records: dict[int, list[SeenRecord]], ends: dict[int, int]) -> dict[int, list[SeenRecord]]:
    return {
        number: [record for record in found if record.offset < ends[number]]
        for number, found in records.items()
    }


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_record_below_the_boundary_is_what_kafka_served(
    dead: DeadCluster, tiered: Site, isolation: str
) -> None:
    ends = tiered.ends(TOPIC)
    assert all(1_000 < end < dead.answers.ends[number] for number, end in ends.items())
    said = dead.answers.uncommitted if isolation == "read_uncommitted" else dead.answers.committed
    assert read_all(tiered.broker.bootstrap, TOPIC, ends, isolation) == below(said, ends)
    assert len(below(dead.answers.uncommitted, ends)[0]) > len(below(dead.answers.committed, ends)[0])


def test_offsets_of_times_are_those_that_kafka_said(dead: DeadCluster, tiered: Site) -> None:
    ends = tiered.ends(TOPIC)
    compared = 0
    for moment, said in dead.answers.times.items():
        found = offsets_at(tiered.broker.bootstrap, TOPIC, moment)
        for number, offset in said.items():
            if 0 <= offset < ends[number]:
                assert found[number] == offset, (moment, number)
                compared += 1
    assert compared > 5
    assert offsets_at(tiered.broker.bootstrap, TOPIC, -2) == {0: 0, 1: 0}


def test_the_whole_log_of_a_stopped_broker_with_its_groups(dead: DeadCluster, uploaded: Site) -> None:
    assert uploaded.ends(TOPIC) == dead.answers.ends
    for isolation, said in (
        ("read_uncommitted", dead.answers.uncommitted),
        ("read_committed", dead.answers.committed),
    ):
        assert read_all(uploaded.broker.bootstrap, TOPIC, dead.answers.ends, isolation) == said
    assert committed(uploaded.broker.bootstrap, "billing", TOPIC) == {0: 100, 1: 200}


def test_a_compacted_topic_keeps_its_holes(dead: DeadCluster, uploaded: Site) -> None:
    said = dead.answers.compacted
    assert len(said[0]) < dead.answers.compacted_ends[0]
    assert uploaded.ends(COMPACTED, 1) == dead.answers.compacted_ends
    assert (
        read_all(uploaded.broker.bootstrap, COMPACTED, dead.answers.compacted_ends, "read_committed") == said
    )


def test_appends_go_on_at_the_boundary_and_are_read_across_it(tiered: Site, dead: DeadCluster) -> None:
    ends = tiered.ends(TOPIC)
    producer = Producer({"bootstrap.servers": tiered.broker.bootstrap, "enable.idempotence": True})
    offsets: list[Any] = []
    for number in range(10):
        producer.produce(
            TOPIC,
            value=f"new{number}".encode(),
            partition=0,
            on_delivery=lambda error, message: offsets.append(error or message.offset()),
        )
    assert producer.flush(PATIENCE) == 0
    assert offsets == list(range(ends[0], ends[0] + 10))
    consumer = Consumer(
        {"bootstrap.servers": tiered.broker.bootstrap, "group.id": "across", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(TOPIC, 0, ends[0] - 3)])
    found = consumer.consume(13, PATIENCE)
    consumer.close()
    last = [
        record.offset for record in below(dead.answers.committed, ends)[0] if record.offset >= ends[0] - 3
    ]
    assert [message.offset() for message in found] == last + offsets
    assert tiered.broker.log_path.read_text().count("Traceback") == 0


def test_status_says_what_is_borrowed_and_a_copy_ends_that(dead: DeadCluster, tiered: Site) -> None:
    [before] = json.loads(tiered.migrate("status", "--json"))
    assert before["state"] == "attached"
    assert before["borrowed"] == before["segments"] >= 8
    assert "do not delete that topic at its source" in tiered.migrate("status", TOPIC)
    assert "segments copied" in tiered.migrate("copy", TOPIC, "--execute")
    [after] = json.loads(tiered.migrate("status", "--json"))
    assert after["borrowed"] == 0
    ends = {number: row["boundary"] for number, row in enumerate(after["partitions"])}
    assert below(read_all(tiered.broker.bootstrap, TOPIC, ends, "read_committed"), ends) == below(
        dead.answers.committed, ends
    )


def test_mistakes_are_one_line(dead: DeadCluster, tiered: Site) -> None:
    where = ("--from", f"file:{dead.logs}", "--layout", "kafka-tiered")
    assert "add it to foreign.stores" in tiered.migrate("attach", "orders", *where, "--execute", code=1)
    old = ("--from", "old", "--layout", "kafka-tiered")
    assert "no segment of topic payments" in tiered.migrate("plan", "payments", *old, code=1)
    assert "add --execute" in tiered.migrate(
        "attach", "orders", "--from", str(dead.logs), "--layout", "log-dir"
    )
    assert "no way back but to delete it" in tiered.migrate("abort", TOPIC, "--execute", code=1)
