"""A topic moves from a Kafka whose clients log in, by a user with the rights of the runbook and no more."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.maven import require_kafka_jars
from tests.services.migrating_dray import SECONDS, MigratingDray
from tests.services.migration_newcomer import LIVE_CHAPTER
from tests.services.secured_kafka import SecuredKafka, password_of
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tools import require_tool

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts both clusters itself")

PARTITIONS = 2
UNSEEN = "elsewhere"
"""A topic that Dray's user may not even see."""


def rights(topic: str, user: str) -> list[str]:
    """The commands of the runbook."""
    found = re.findall(r"^kafka-acls .*--allow-principal User:dray .*$", LIVE_CHAPTER, re.MULTILINE)
    assert len(found) == 4
    return [line.replace("orders", topic).replace("User:dray ", f"User:{user} ") for line in found]


def of_brokers(topic: str) -> str:
    """The command of the runbook for the user of brokers."""
    [found] = re.findall(r"^kafka-acls .*--allow-principal User:dray-brokers .*$", LIVE_CHAPTER, re.MULTILINE)
    return str(found).replace("orders", topic)


def produce_one(dray: MigratingDray, topic: str) -> int | None:
    """The code of its failure."""
    found: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": dray.bootstrap})
    producer.produce(topic, b"once", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(SECONDS) == 0
    [error] = found
    return None if error is None else error.code()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    require_kafka_jars()
    with SecuredKafka(tmp_path_factory.mktemp("source"), ("dray", "sizer", "app", "dray-brokers")) as server:
        for kind in ("--topic '*'", "--group '*'", "--transactional-id '*'"):
            server.allow(f"kafka-acls --add --allow-principal User:app {kind} --operation All")
        make_topic(server, UNSEEN)
        yield server


@pytest.fixture(scope="module")
def dray(tmp_path_factory: pytest.TempPathFactory, kafka: SecuredKafka) -> Iterator[MigratingDray]:
    directory = tmp_path_factory.mktemp("dray")
    sources = {
        "old": kafka.command_config("dray", directory / "old.properties", "dray-brokers"),
        "by-size": kafka.command_config("sizer", directory / "size.properties"),
    }
    running = MigratingDray(directory, sources)
    try:
        yield running
    finally:
        running.stop()
    said = running.log.read_text()
    assert "Traceback" not in said
    assert password_of("dray") not in said


def make_topic(kafka: SecuredKafka, topic: str) -> None:
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([new])[topic].result(SECONDS)


def produce(client: dict[str, str], topic: str, word: str, count: int) -> dict[tuple[int, int], str]:
    """Each acknowledged, by partition and offset."""
    acknowledged: dict[tuple[int, int], str] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged[message.partition(), message.offset()] = bytes(message.value() or b"").decode()  # type: ignore[index]

    producer = Producer({**client, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, f"{word} {number}", partition=number % PARTITIONS, on_delivery=note)
    assert producer.flush(SECONDS) == 0
    return acknowledged


def consume(dray: MigratingDray, topic: str, count: int) -> dict[tuple[int, int], str]:
    consumer = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": f"reader of {topic}"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], str] = {}
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        found[message.partition(), message.offset()] = bytes(message.value() or b"").decode()  # type: ignore[index]
    consumer.close()
    return found


def member(kafka: SecuredKafka, group: str, protocol: str, topics: list[str], count: int) -> Consumer:
    """A consumer at work that has read and committed so much."""
    consumer = Consumer(
        {
            **kafka.client("app"),
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(topics)
    for _ in range(count):
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        consumer.commit(message=message, asynchronous=False)
    return consumer


def committed(client: dict[str, str], group: str, topic: str) -> list[int]:
    consumer = Consumer({**client, "group.id": group})
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = [place.offset for place in consumer.committed(places, SECONDS)]
    consumer.close()
    return found


def test_a_topic_moves_from_a_source_with_users_and_tls(kafka: SecuredKafka, dray: MigratingDray) -> None:
    """Link, mirror, forwarding, switch, groups of both protocols. One of them also reads a topic that Dray's
    user may not see: while it has members, Kafka does not describe it to us."""
    topic = "orders"
    make_topic(kafka, topic)
    kafka.allow(*rights(topic, "dray"))
    written = produce(kafka.client("app"), topic, "before", 100)
    produce(kafka.client("app"), UNSEEN, "other", 10)
    groups = {"classic": "billing", "consumer": "reading"}
    members = [
        member(kafka, group, protocol, [topic, UNSEEN], 60 if protocol == "classic" else 30)
        for protocol, group in groups.items()
    ]

    shown = dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    assert "groups that are followed: billing, reading" in shown
    written |= produce(kafka.client("app"), topic, "mirrored", 100)
    assert produce_one(dray, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED, (
        "brokers have a user of their own"
    )
    kafka.allow(of_brokers(topic))
    written |= produce({"bootstrap.servers": dray.bootstrap}, topic, "passed on", 100)
    dray.until(lambda: all(each["lag"] == 0 for each in dray.status(topic)["partitions"]))
    assert consume(dray, topic, len(written)) == written

    dray.migrate("switch", topic, "--execute", "--wait")
    assert [each["boundary"] for each in dray.status(topic)["partitions"]] == [150, 150]
    written |= produce({"bootstrap.servers": dray.bootstrap}, topic, "after", 100)
    assert consume(dray, topic, len(written)) == written
    refused = Producer({**kafka.client("app"), "message.timeout.ms": 60_000})
    errors: list[int] = []
    refused.produce(topic, "late", on_delivery=lambda error, _: errors.append(error.code()))  # type: ignore[union-attr]
    refused.flush(SECONDS)
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    dray.migrate("stragglers", topic)

    assert dray.status(topic)["groups"]["followed"] == ["billing", "reading"]
    expected = {group: committed(kafka.client("app"), group, topic) for group in groups.values()}
    assert sum(place for place in expected["billing"] if place > 0) > 0
    for each in members:
        each.close()
    dray.until(lambda: dray.status(topic)["state"] == "moved")
    for group, places in expected.items():
        assert committed({"bootstrap.servers": dray.bootstrap}, group, topic) == places
    assert kafka.acls(topic) == [("WRITE", "DENY")], "the fence stays"
    assert kafka.acls(f"dray-check-{topic}") == []


def test_a_fence_by_size_sees_transactions_that_are_not_shown(
    kafka: SecuredKafka, dray: MigratingDray
) -> None:
    """With the rights of the runbook for it, but for those on transactional ids."""
    topic = "sized"
    make_topic(kafka, topic)
    of_topic, groups, _, of_cluster = rights(topic, "sizer")
    cluster = of_cluster.replace(" --operation Alter", "")
    kafka.allow(f"{of_topic} --operation AlterConfigs", groups, cluster)
    producer = Producer({**kafka.client("app"), "transactional.id": "payments"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "undecided", partition=0)
    assert producer.flush(SECONDS) == 0
    shown = dray.migrate("link", topic, "--from-cluster", "by-size", "--open-to-all", "--execute")
    assert re.search(r"producer \d+ \(its transactional id is not shown to us\) is a transactional", shown)
    said = dray.migrate("switch", topic, "--fence", "size", "--execute", fails=True)
    assert re.search(r"transactions are open at the source \(producer \d+ ", said), said
    producer.commit_transaction(SECONDS)
    said = dray.migrate("switch", topic, "--fence", "size", "--execute", fails=True)
    assert re.search(r"transactions are written to the topic \(producer \d+ ", said), said
    produce(kafka.client("app"), topic, "it goes on", 2)
    dray.migrate("abort", topic, "--execute")


def test_a_topic_without_transactions_is_fenced_by_size(kafka: SecuredKafka, dray: MigratingDray) -> None:
    topic = "small"
    make_topic(kafka, topic)
    of_topic, groups, transactions, of_cluster = rights(topic, "sizer")
    cluster = of_cluster.replace(" --operation Alter", "")
    kafka.allow(f"{of_topic} --operation AlterConfigs", groups, cluster)
    written = produce(kafka.client("app"), topic, "before", 20)
    with kafka.allowing(transactions):
        dray.migrate("link", topic, "--from-cluster", "by-size", "--open-to-all", "--execute")
        dray.migrate("switch", topic, "--fence", "size", "--execute", "--wait")
    written |= produce({"bootstrap.servers": dray.bootstrap}, topic, "after", 20)
    assert consume(dray, topic, len(written)) == written


def test_a_link_opens_nothing_and_rights_come_over_when_asked(kafka: SecuredKafka, tmp_path: Path) -> None:
    """Clients of Dray's plain listener are User:ANONYMOUS there. What the source allows to a user of that
    name counts here only once it was carried over."""
    topic = "guarded"
    make_topic(kafka, topic)
    kafka.allow(*rights(topic, "dray"), of_brokers(topic))
    may = f"--topic {topic} --operation Read --operation Write"
    kafka.allow(f"kafka-acls --add --allow-principal User:ANONYMOUS {may}")
    produce(kafka.client("app"), topic, "secret", 10)
    source = kafka.command_config("dray", tmp_path / "old.properties", "dray-brokers")
    security = {"authorization": "acls", "super_users": ["User:admin"]}
    dray = MigratingDray(tmp_path, {"old": source}, security=security)
    try:
        shown = dray.migrate("link", topic, "--from-cluster", "old", "--execute")
        wanted = [
            f"ALLOW User:ANONYMOUS from * READ TOPIC LITERAL '{topic}'",
            f"ALLOW User:ANONYMOUS from * WRITE TOPIC LITERAL '{topic}'",
            f"ALLOW User:app from * ALL TOPIC LITERAL '{topic}'",
        ]
        assert all(line in shown for line in wanted), shown
        dray.until(lambda: all(each["lag"] == 0 for each in dray.status(topic)["partitions"]))
        assert produce_one(dray, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert "Topic authorization failed" in read_first(dray, topic)
        ends = [each["source_end"] for each in dray.status(topic)["partitions"]]
        assert ends == [5, 5], "nothing got through"
        shown = dray.migrate("switch", topic, "--acls", "--execute", "--wait")
        assert all(line in shown for line in wanted), shown
        assert "DENY" not in shown
        assert produce_one(dray, topic) is None
        assert "secret 0" in read_first(dray, topic)
    finally:
        dray.stop()


def read_first(dray: MigratingDray, topic: str) -> str:
    """What a reader without a group says of the first record."""
    place = ("-t", topic, "-p", "0", "-o", "beginning", "-c", "1", "-e")
    command = [str(require_tool("kcat")), "-C", "-b", dray.bootstrap, *place]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr
