"""Topics come here from tiers on a real S3 server, into a cluster whose own objects are there: one of a Kafka
that is gone, and one of a Kafka at work. What vanishes from such a tier is noticed by who reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.migrating_dray import MigratingDray
from tests.services.s3 import BUCKET, SECRET_KEY, S3Process
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import (
    TOPIC,
    offsets_at,
    produce,
    read_all,
    tiered_segments,
    wait_for,
)
from tests.services.tiered_kafka import TieredKafka, require_tiering
from tests.unit.migration.formats.fixture_files import LOCAL

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts servers of its own")

TIER = "tier"
COUNT = 3_000
SECONDS = 60.0


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3"), buckets=(BUCKET, TIER)) as server:
        yield server


def first_offset(bootstrap: str, partition: int, offset: int) -> int:
    """Of what a consumer gets that begins there. Raises what ends it."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "any", "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(TOPIC, partition, offset)])
        message = consumer.poll(SECONDS)
        assert message is not None, "silence"
        if message.error() is not None:
            raise KafkaException(message.error())
        found = message.offset()
        assert found is not None
        return found
    finally:
        consumer.close()


def missing(dray: MigratingDray) -> int | None:
    [found] = json.loads(dray.migrate("status", TOPIC, "--json"))
    count: int | None = found["missing"]
    return count


def until_noticed(bootstrap: str, partition: int, offset: int) -> str:
    """What a consumer is told there in the end: a broker asks several times before it calls anything lost."""
    told: list[str] = []

    def is_told() -> bool:
        try:
            told.append(str(first_offset(bootstrap, partition, offset)))
        except KafkaException as error:
            told.append(error.args[0].name())
        return told[-1] != "KAFKA_STORAGE_ERROR"

    wait_for("an answer that stays", is_told)
    return told[-1]


def test_a_tier_of_a_kafka_that_is_gone(s3: S3Process, tmp_path: Path) -> None:
    shutil.copytree(LOCAL, s3.data / TIER / "gone")
    dray = MigratingDray(tmp_path, {"old": "127.0.0.1:1"}, {"gone": f"s3://{TIER}/gone"}, s3=s3)
    try:
        said = dray.migrate("attach", TOPIC, "--from", "gone", "--layout", "kafka-tiered", "--execute")
        assert f"topic {TOPIC} is attached: 2 partitions" in said
        assert SECRET_KEY not in said
        assert missing(dray) == 0

        # The oldest of one partition expires, as a lifecycle rule would have it; the other's last is lost.
        logs = [sorted((s3.data / TIER / "gone").glob(f"{TOPIC}-{each}-*/*.log")) for each in (0, 1)]
        (_, begins), (_, lost) = [[int(path.name.partition("-")[0]) for path in each] for each in logs]
        for path in (logs[0][0], logs[1][1]):
            path.unlink()
        assert missing(dray) == 2
        assert until_noticed(dray.bootstrap, 0, 0) == str(begins), (
            "its consumers go on where it begins by now"
        )
        assert until_noticed(dray.bootstrap, 1, lost) == "INVALID_MSG"
    finally:
        dray.stop()
    log = dray.log.read_text()
    assert SECRET_KEY not in log
    assert "an object is lost: its records cannot be read" in log


def test_a_topic_of_a_tiered_kafka_moves_while_it_works(s3: S3Process, tmp_path: Path) -> None:
    require_tiering()
    with TieredKafka(tmp_path / "kafka", tier=s3.data / TIER / "live") as kafka:
        configs = {
            "remote.storage.enable": "true",
            "segment.bytes": str(1 << 20),
            "local.retention.bytes": "1",
        }
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1, config=configs)])[TOPIC].result(SECONDS)
        produce(kafka.bootstrap, TOPIC, "a", COUNT)
        wait_for("segments tiered", lambda: min(tiered_segments(kafka).values(), default=0) >= 1, 300)
        (tmp_path / "dray").mkdir()
        places = {"live": f"s3://{TIER}/live"}
        dray = MigratingDray(tmp_path / "dray", {"old": kafka.bootstrap}, places, s3=s3)
        try:
            flags = ("--from-cluster", "old", "--from", "live", "--layout", "kafka-tiered", "--open-to-all")
            said = dray.migrate("link", TOPIC, *flags, "--execute")
            assert "segments of its tier are read where they lie" in said
            produce(dray.bootstrap, TOPIC, "b", 100)  # passed on to the source
            dray.until(lambda: all(each["lag"] == 0 for each in dray.status(TOPIC)["partitions"]))
            ends = offsets_at(kafka.bootstrap, TOPIC, -1)
            expected = read_all(kafka.bootstrap, TOPIC, ends, "read_committed")
            dray.migrate("switch", TOPIC, "--fence", "size", "--execute", "--wait")
            found = dray.status(TOPIC)
            assert {each["partition"]: each["boundary"] for each in found["partitions"]} == ends
            assert found["missing"] == 0
            assert read_all(dray.bootstrap, TOPIC, ends, "read_committed") == expected
            produce(dray.bootstrap, TOPIC, "c", 100)
            assert all(end > ends[each] for each, end in offsets_at(dray.bootstrap, TOPIC, -1).items())
        finally:
            dray.stop()
        assert SECRET_KEY not in dray.log.read_text()
