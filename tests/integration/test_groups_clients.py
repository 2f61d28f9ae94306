"""Groups of real clients: they share, they come and go, and nothing is skipped, or read twice for no reason.

With DRAY_TEST_TARGET=kafka the same against Apache Kafka: what it does not do, we must not ask of Dray.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.services.cluster import Cluster
from tests.services.consumers import KINDS, ConsumerProcess, GroupHistory, wait_for
from tests.services.dray import DrayProcess
from tests.services.marks import longer
from tests.services.servers import Server, new_server
from tests.services.target import ON_KAFKA
from tests.services.topics import create_topic

PARTITIONS = 6
QUICK = {
    "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "200ms",
    "DRAY_GROUPS__CONSUMER_SESSION_TIMEOUT": "6s",
    "DRAY_TEST_KNOB__GROUPS__CONSUMER_HEARTBEAT_INTERVAL": "0.3",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("groups"), QUICK) as started:
        yield started


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


class Team:
    """Consumers of one group."""

    def __init__(self, directory: Path, kind: str, bootstrap: str, topic: str, stack: ExitStack) -> None:
        self._directory = directory
        self._kind = kind
        self._bootstrap = bootstrap
        self._topic = topic
        self._stack = stack
        self.everybody: list[ConsumerProcess] = []

    def add(self, name: str, instance: str = "") -> ConsumerProcess:
        consumer = ConsumerProcess(
            self._directory,
            name,
            self._kind,
            self._bootstrap,
            self._topic,
            f"group of {self._topic}",
            instance=instance,
        )
        self.everybody.append(self._stack.enter_context(consumer))
        return consumer

    def story(self) -> GroupHistory:
        return GroupHistory(self.everybody)

    def wait_for_count(self, count: int) -> None:
        wait_for(f"{count} records are read", lambda: self.story().count() >= count, 90)

    def wait_for_owners(self, *names: str) -> None:
        def shared() -> bool:
            owners = self.story().owners()
            return len(owners) == PARTITIONS and set(owners.values()) == set(names)

        wait_for(f"{names} share all partitions", shared, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_team_shares_and_goes_on(kind: str, server: Server, tmp_path: Path) -> None:
    topic = f"shared-{kind}"
    create_topic(server.bootstrap, topic, PARTITIONS)
    produce(server.bootstrap, topic, 0, 300)
    with ExitStack() as stack:
        team = Team(tmp_path, kind, server.bootstrap, topic, stack)
        first = team.add("first")
        team.wait_for_count(300)
        team.wait_for_owners("first")
        assert team.story().repeated() == 0
        # A second one comes, and the first leaves.
        second = team.add("second")
        team.wait_for_owners("first", "second")
        produce(server.bootstrap, topic, 300, 300)
        team.wait_for_count(600)
        first.stop()
        team.wait_for_owners("second")
        produce(server.bootstrap, topic, 600, 300)
        team.wait_for_count(900)
        second.stop()
        # Nobody is there for a while; who comes then goes on.
        produce(server.bootstrap, topic, 900, 300)
        team.add("third")
        team.wait_for_count(1200)
        story = team.story()
        story.check()
        assert story.repeated() == 0, "nobody was killed, and every batch was committed"


@pytest.mark.parametrize(
    "kind",
    [
        longer("confluent-cooperative"),
        "confluent-consumer",
        "aiokafka-sticky",
        "java-cooperative",
        longer("java-consumer"),
    ],
)
def test_a_member_that_is_killed_and_one_that_freezes(kind: str, server: Server, tmp_path: Path) -> None:
    topic = f"failing-{kind}"
    create_topic(server.bootstrap, topic, PARTITIONS)
    produce(server.bootstrap, topic, 0, 300)
    with ExitStack() as stack:
        team = Team(tmp_path, kind, server.bootstrap, topic, stack)
        first, second, third = (team.add(name) for name in ("first", "second", "third"))
        team.wait_for_owners("first", "second", "third")
        second.kill()
        produce(server.bootstrap, topic, 300, 300)
        team.wait_for_count(600)
        third.freeze()
        produce(server.bootstrap, topic, 600, 300)
        team.wait_for_count(900)
        third.thaw()
        produce(server.bootstrap, topic, 900, 300)
        team.wait_for_count(1200)
        wait_for(
            "first and third share",
            lambda: {"first", "third"} <= set(team.story().owners().values()),
            60,
        )
        first.stop()
        team.story().check_starts()


@pytest.mark.parametrize(
    "kind", ["confluent-range", longer("confluent-consumer"), longer("java-range"), "java-consumer"]
)
def test_a_static_member_comes_back_to_what_it_had(kind: str, server: Server, tmp_path: Path) -> None:
    topic = f"static-{kind}"
    create_topic(server.bootstrap, topic, PARTITIONS)
    produce(server.bootstrap, topic, 0, 300)
    with ExitStack() as stack:
        team = Team(tmp_path, kind, server.bootstrap, topic, stack)
        team.add("first", instance="one")
        second = team.add("second", instance="two")
        team.wait_for_owners("first", "second")
        team.wait_for_count(300)
        before = {place for place, owner in team.story().owners().items() if owner == "second"}
        second.stop()
        again = team.add("again", instance="two")
        wait_for(
            "it has what it had",
            lambda: {place for place, who in team.story().owners().items() if who == "again"} == before,
        )
        first_lines = [line for line in team.story().lines if line.who == "first" and line.what == "revoked"]
        produce(server.bootstrap, topic, 300, 300)
        team.wait_for_count(600)
        after = [line for line in team.story().lines if line.who == "first" and line.what == "revoked"]
        assert after == first_lines, "the other one was disturbed"
        again.stop()
        team.story().check()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_finds_topics_that_come_later(protocol: str, server: Server) -> None:
    prefix = f"found-{protocol}"
    create_topic(server.bootstrap, f"{prefix}-1", 1)
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": f"pattern-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([f"^{prefix}-.*"])
        got: set[str] = set()

        def polled(expected: set[str]) -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                got.add(str(message.topic()))
            return got >= expected

        producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
        producer.produce(f"{prefix}-1", b"x")
        producer.flush(60)
        wait_for("the first topic is found", lambda: polled({f"{prefix}-1"}))
        create_topic(server.bootstrap, f"{prefix}-2", 1)
        producer.produce(f"{prefix}-2", b"y")
        producer.flush(60)
        wait_for("the second topic is found", lambda: polled({f"{prefix}-1", f"{prefix}-2"}))
    finally:
        consumer.close()


def test_a_consumer_without_a_group_keeps_its_offsets(server: Server) -> None:
    create_topic(server.bootstrap, "alone", 2)
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "alone", "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("alone", 0), TopicPartition("alone", 1)])
    consumer.commit(offsets=[TopicPartition("alone", 0, 17, metadata="note")], asynchronous=False)
    consumer.close()
    other = Consumer(settings)
    found = other.committed([TopicPartition("alone", 0), TopicPartition("alone", 1)], timeout=60)
    assert [one.offset for one in found] == [17, -1001]
    assert found[0].metadata == "note"
    with pytest.raises(KafkaException):
        other.commit(offsets=[TopicPartition("nowhere", 0, 1)], asynchronous=False)
    other.close()


def test_an_administrator_sees_and_removes_groups(server: Server) -> None:
    create_topic(server.bootstrap, "seen", 2)
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for protocol in ("classic", "consumer"):
        name = f"seen-{protocol}"
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": name,
                "group.protocol": protocol,
                "log_level": 0,
            }
        )
        consumer.subscribe(["seen"])

        def assigned(consumer: Consumer = consumer) -> bool:
            consumer.poll(0.2)
            return len(consumer.assignment()) == 2

        wait_for("both partitions are assigned", assigned)
        consumer.commit(offsets=[TopicPartition("seen", 0, 5)], asynchronous=False)
        described = admin.describe_consumer_groups([name])[name].result(60)
        assert described.state.name == "STABLE"
        assert described.type.name == protocol.upper()
        [member] = described.members
        assert {one.partition for one in member.assignment.topic_partitions} == {0, 1}
        listed = {one.group_id: one for one in admin.list_consumer_groups().result(60).valid}
        assert listed[name].type.name == protocol.upper()
        with pytest.raises(KafkaException):
            admin.delete_consumer_groups([name])[name].result(20)
        consumer.close()
        wait_for(
            "the group is empty",
            lambda name=name: admin.describe_consumer_groups([name])[name].result(60).state.name == "EMPTY",
        )
        admin.delete_consumer_groups([name])[name].result(60)
        assert name not in {one.group_id for one in admin.list_consumer_groups().result(60).valid}


@pytest.mark.skipif(ON_KAFKA, reason="these are Dray's own numbers")
def test_groups_are_measured(server: Server) -> None:
    create_topic(server.bootstrap, "measured", 1)
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "measured", "log_level": 0}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("measured", 0, 1)], asynchronous=False)
    consumer.close()
    numbers: defaultdict[str, float] = defaultdict(float)
    for broker in server.processes if isinstance(server, Cluster) else [server]:
        assert isinstance(broker, DrayProcess)
        for line in broker.http_text("/metrics").splitlines():
            if line.startswith("dray_group"):
                name, value = line.rsplit(" ", 1)
                numbers[name] += float(value)
    assert numbers['dray_groups{state="Empty",type="classic"}'] >= 1
    assert numbers["dray_group_offsets_committed_total"] >= 1
    assert numbers["dray_group_commit_seconds_count"] >= 1
    assert numbers["dray_groups_taken_total"] >= 1
