"""Real clients in zones: they talk to the brokers of their own, and converge where owners are enforced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.services.brokers import Brokers
from tests.services.clients.java_client import Java
from tests.services.consumers import wait_for
from tests.services.counting import IMPATIENT, CountingProducer, FollowingConsumer
from tests.services.logbook import read_partition
from tests.services.topics import create_topic

ZONES = ("zone-a", "zone-b", "zone-c")
SETTINGS = {
    "DRAY_ROUTING__ENFORCE_OWNER": "true",
    "DRAY_BROKER__SESSION_TTL": "2s",
    "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "0s",
}
PARTITIONS = 6


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory = tmp_path_factory.mktemp("zones")
    with Brokers(directory, 3, zones=ZONES, settings=SETTINGS) as running:
        yield running


def produce(bootstrap: str, topic: str, count: int, padding: bytes = b"", **settings: Any) -> None:
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": 30_000, **IMPATIENT, **settings}
    )
    for number in range(count):
        producer.produce(
            topic,
            str(number).encode() + padding,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: None if error is None else failures.append(error),
        )
    assert producer.flush(60) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, group: str, count: int, **settings: object) -> set[bytes]:
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
    }
    consumer = Consumer(config | IMPATIENT | settings)
    found: set[bytes] = set()
    try:
        consumer.subscribe([topic])

        def enough() -> bool:
            for message in consumer.consume(100, timeout=0.1):
                if (error := message.error()) is not None and not error.retriable():
                    raise KafkaException(error)
                found.add(message.value() or b"")
            return len(found) >= count

        wait_for(f"{count} records are read", enough, 60)
    finally:
        consumer.close()
    return found


def test_a_client_stays_in_its_zone(brokers: Brokers) -> None:
    """Started at a broker of another zone, it moves to its own. Its group works, wherever that is led."""
    topic = "zoned"
    create_topic(brokers.bootstrap, topic, PARTITIONS)
    for number, zone in enumerate(ZONES):
        zoned: dict[str, Any] = {"client.id": f"zone_id={zone},app=test"}
        elsewhere = brokers[(number + 1) % 3].bootstrap
        admin = AdminClient({"bootstrap.servers": elsewhere, **zoned})
        seen = admin.list_topics(timeout=60)
        assert set(seen.brokers) == {0, 1, 2}  # one of each other zone, which leads nothing
        assert {partition.leader for partition in seen.topics[topic].partitions.values()} == {number}
        before = [[brokers.requests(one, api) for one in range(3)] for api in ("Produce", "Fetch")]
        produce(elsewhere, topic, 60, **zoned)
        read = consume(elsewhere, topic, f"group-{zone}", 60, **zoned)
        assert read == {str(value).encode() for value in range(60)}
        after = [[brokers.requests(one, api) for one in range(3)] for api in ("Produce", "Fetch")]
        for api in range(2):
            busy = {one for one in range(3) if after[api][one] > before[api][one]}
            assert busy == {number}


def test_clients_of_a_zone_whose_only_broker_dies_go_on_elsewhere(tmp_path: Path) -> None:
    """Also those that never go back to their bootstrap servers, as older clients do not: they were shown a
    broker of another zone, and ask there."""
    topic = "dark"
    zoned: dict[str, Any] = {"client.id": "zone_id=zone-b", "metadata.recovery.strategy": "none"}
    settings = {"DRAY_BROKER__SESSION_TTL": "2s"}
    with Brokers(tmp_path, 3, zones=ZONES, settings=settings) as brokers:
        create_topic(brokers.bootstrap, topic, PARTITIONS)
        bootstrap = brokers[1].bootstrap
        producer = CountingProducer(bootstrap, topic, PARTITIONS, name="zoned", idempotent=True, **zoned)
        with producer, FollowingConsumer(bootstrap, topic, PARTITIONS, **zoned) as consumer:
            producer.wait_for_progress(10)
            consumer.wait_until_seen([10] * PARTITIONS)
            assert not any(brokers.requests(one, "Produce") for one in (0, 2))
            brokers[1].kill()
            producer.wait_for_progress(10, timeout=30)
            producer.finish()
            written = [read_partition(brokers.bootstrap, topic, number) for number in range(PARTITIONS)]
            consumer.wait_until_seen([len(values) for values in written])
            assert consumer.errors == []
        for partition, values in enumerate(written):
            producer.check(partition, values)


def test_strictly_a_client_knows_its_zone_alone(tmp_path: Path) -> None:
    """With `routing.strict_zones` no broker of another zone is named to it, as a leader, a replica or at all.
    Its group works, since a coordinator is named with its address."""
    topic, settings = "strictly", {**SETTINGS, "DRAY_ROUTING__STRICT_ZONES": "true"}
    with Brokers(tmp_path, 3, zones=ZONES, settings=settings) as brokers:
        create_topic(brokers.bootstrap, topic, PARTITIONS, replicas=3)
        for number, zone in enumerate(ZONES):
            client_id = f"zone_id={zone},app=test"
            elsewhere = brokers[(number + 1) % 3].bootstrap
            admin = AdminClient({"bootstrap.servers": elsewhere, "client.id": client_id})
            seen = admin.list_topics(timeout=60)
            assert set(seen.brokers) == {number}
            for partition in seen.topics[topic].partitions.values():
                assert (partition.leader, partition.replicas, partition.isrs) == (number, [number], [number])
            named: dict[str, Any] = {"client.id": client_id}
            produce(elsewhere, topic, 60, **named)
            read = consume(elsewhere, topic, f"group-{zone}", 60, **named)
            assert read == {str(value).encode() for value in range(60)}
        everything = AdminClient({"bootstrap.servers": brokers.bootstrap}).list_topics(timeout=60)
        assert set(everything.brokers) == {0, 1, 2}


VALUE = b"." * 10_000


@pytest.fixture(scope="module")
def racked(brokers: Brokers) -> str:
    """A topic with ten records of 10 KB in each partition, led from all zones."""
    topic = "racked"
    create_topic(brokers.bootstrap, topic, PARTITIONS, replicas=3)
    produce(brokers.bootstrap, topic, 10 * PARTITIONS, VALUE)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
    assert {partition.leader for partition in partitions} == {0, 1, 2}
    assert all(set(partition.replicas) == {0, 1, 2} for partition in partitions)
    return topic


@pytest.mark.parametrize("client", ["confluent", "java"])
def test_a_consumer_with_a_rack_reads_in_its_zone(brokers: Brokers, racked: str, client: str) -> None:
    """Kafka's own way (KIP-392): the leader sends the consumer to the broker in its rack."""
    before = [brokers.sent_bytes(one) for one in range(3)]
    if client == "confluent":
        read = consume(brokers.bootstrap, racked, "racked-group", 60, **{"client.rack": "zone-c"})
        assert len(read) == 10 * PARTITIONS
    else:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        led = admin.list_topics(racked, timeout=60).topics[racked].partitions
        elsewhere = next(number for number, partition in led.items() if partition.leader != 2)
        before = [brokers.sent_bytes(one) for one in range(3)]
        lines = Java(brokers.bootstrap).run("FetchLines", racked, str(elsewhere), "0", "10", "zone-c")
        assert len(lines) == 10
    sent = [brokers.sent_bytes(one) - before[one] for one in range(3)]
    assert sent[2] > 10 * len(VALUE) * (PARTITIONS if client == "confluent" else 1)
    assert sent[0] < len(VALUE)
    assert sent[1] < len(VALUE)


def test_clients_converge_while_brokers_come_and_go(tmp_path: Path) -> None:
    """Each change moves partitions; whoever asks the wrong broker is refused until it has looked again."""
    topic = "moving"
    with Brokers(tmp_path, 3, settings=SETTINGS) as brokers:
        create_topic(brokers.bootstrap, topic, PARTITIONS)
        with CountingProducer(brokers.bootstrap, topic, PARTITIONS, name="mover", idempotent=True) as mover:
            mover.wait_for_progress(10)
            assert brokers[1].terminate() == 0
            mover.wait_for_progress(10)
            brokers[1].start()
            mover.wait_for_progress(10)
            mover.finish()
        for partition in range(PARTITIONS):
            mover.check(partition, read_partition(brokers.bootstrap, topic, partition))
        assert all(brokers.requests(one, "Produce") for one in range(3))
