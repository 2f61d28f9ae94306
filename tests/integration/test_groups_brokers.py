"""Two brokers on one store: whoever looks after a group may be killed, frozen or stopped, mid-rebalance too.

No record is skipped, and nothing that was committed is read again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.services.consumers import ConsumerProcess, GroupHistory, wait_for
from tests.services.dray import DrayProcess
from tests.services.marks import longer
from tests.services.topics import create_topic

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

PARTITIONS = 6
TOPIC = "handed-over"
SESSION_SECONDS = 2.0
SETTINGS = {
    "DRAY_BROKER__SESSION_TTL": f"{SESSION_SECONDS:.0f}s",
    "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "300ms",
    "DRAY_GROUPS__CONSUMER_SESSION_TIMEOUT": "10s",
    "DRAY_TEST_KNOB__GROUPS__CONSUMER_HEARTBEAT_INTERVAL": "0.3",
}


class Pair:
    """Two brokers, and who coordinates what."""

    def __init__(self, directory: Path) -> None:
        self.brokers = {
            number: DrayProcess(
                directory / f"broker-{number}",
                name=f"broker-{number}",
                data_directory=directory / "data",
                settings=SETTINGS,
                arguments=["--broker-id", str(number)],
            )
            for number in (1, 2)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def coordinator(self, group: str) -> DrayProcess:
        """The broker that looks after a group, as clients are told."""
        deadline = time.monotonic() + 60
        while True:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                node = admin.describe_consumer_groups([group])[group].result(5).coordinator
                return self.brokers[node.id]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def __enter__(self) -> Pair:
        for broker in self.brokers.values():
            broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.kill()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as brokers:
        create_topic(brokers.bootstrap, TOPIC, PARTITIONS)
        yield brokers


class Feed:
    """A producer that goes on whatever happens to the brokers; every number arrives once."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._failed: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(
                TOPIC,
                str(self.sent).encode(),
                partition=self.sent % PARTITIONS,
                on_delivery=lambda error, _: self._failed.append(error) if error else None,
            )
            self.sent += 1
            self._producer.poll(0.005)

    def stop(self) -> int:
        """How many records there are."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(90) == 0
        assert self._failed == []
        return self.sent


class Team:
    def __init__(self, directory: Path, kind: str, bootstrap: str, stack: ExitStack) -> None:
        self._directory, self._kind, self._bootstrap, self._stack = directory, kind, bootstrap, stack
        self.everybody: list[ConsumerProcess] = []

    def add(self, name: str) -> ConsumerProcess:
        consumer = ConsumerProcess(
            self._directory, name, self._kind, self._bootstrap, TOPIC, "team", session_ms=10_000
        )
        self.everybody.append(self._stack.enter_context(consumer))
        return consumer

    def story(self) -> GroupHistory:
        return GroupHistory(self.everybody)

    def wait_for_owners(self, *names: str) -> None:
        def shared() -> bool:
            owners = self.story().owners()
            return len(owners) == PARTITIONS and set(owners.values()) == set(names)

        wait_for(f"{names} share all partitions", shared, 90)

    def wait_for_more(self, records: int = 200) -> None:
        goal = self.story().count() + records
        wait_for("the team goes on", lambda: self.story().count() >= goal, 90)


@pytest.mark.parametrize(
    "kind",
    [
        longer("confluent-cooperative"),
        "confluent-consumer",
        "aiokafka-sticky",
        "java-range",
        longer("java-consumer"),
    ],
)
def test_the_coordinator_is_killed_in_mid_rebalance(kind: str, pair: Pair, tmp_path: Path) -> None:
    with ExitStack() as stack:
        team = Team(tmp_path, kind, pair.bootstrap, stack)
        feed = Feed(pair.bootstrap)
        stack.callback(feed.stop)
        team.add("c0")
        team.add("c1")
        team.wait_for_owners("c0", "c1")
        names = ["c0", "c1"]
        for round_number in range(2):
            victim = pair.coordinator("team")
            name = f"c{round_number + 2}"
            before = team.story().given_up()
            team.add(name)
            names.append(name)
            # Somebody was told to give partitions up, and nobody has got them yet.
            wait_for("a rebalance", lambda before=before: team.story().given_up() > before)
            victim.kill()
            team.wait_for_more()
            victim.start()
            team.wait_for_owners(*names)
            team.wait_for_more()
        total = feed.stop()
        wait_for("everything is read", lambda: team.story().count() == total, 90)
        story = team.story()
        story.check_starts()
        assert {place: len(offsets) for place, offsets in story.seen().items()} == {
            place: len(range(place, total, PARTITIONS)) for place in range(PARTITIONS)
        }


@pytest.mark.parametrize(
    "kind", ["confluent-range", "confluent-consumer", longer("kafka-python-cooperative")]
)
def test_the_coordinator_stops_gracefully(kind: str, pair: Pair, tmp_path: Path) -> None:
    with ExitStack() as stack:
        team = Team(tmp_path, kind, pair.bootstrap, stack)
        feed = Feed(pair.bootstrap)
        stack.callback(feed.stop)
        team.add("c0")
        team.add("c1")
        team.wait_for_owners("c0", "c1")
        team.wait_for_more()
        leaving = pair.coordinator("team")
        leaving.terminate()
        team.wait_for_more()
        assert pair.coordinator("team") is not leaving
        total = feed.stop()
        wait_for("everything is read", lambda: team.story().count() == total, 90)
        team.story().check_starts()


def test_a_coordinator_that_was_frozen_says_nothing_and_changes_nothing(pair: Pair) -> None:
    settings = {
        "bootstrap.servers": pair.bootstrap,
        "group.id": "frozen",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 300,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])

    def assigned() -> bool:
        consumer.poll(0.2)
        return len(consumer.assignment()) == PARTITIONS

    wait_for("all is assigned", assigned)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    zombie = pair.coordinator("frozen")
    member, generation = consumer.memberid(), 1
    zombie.freeze()
    try:

        def committed() -> bool:
            try:
                consumer.poll(0.1)
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
                return True
            except KafkaException:
                return False

        wait_for("the other broker takes over", committed)
    finally:
        zombie.wake()
    answers = asyncio.run(_ask_the_zombie(zombie, str(member), generation))
    assert answers == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
    assert pair.coordinator("frozen") is not zombie
    found = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
    assert found[0].offset == 7
    assert consumer.memberid() == member, "it went on in its generation"
    consumer.close()


async def _ask_the_zombie(zombie: DrayProcess, member: str, generation: int) -> list[int]:
    """A heartbeat and a commit of an old offset, straight to the broker that was frozen."""
    async with await KafkaConnection.connect("127.0.0.1", zombie.port) as connection:
        beat = await connection.request(HeartbeatRequest("frozen", generation, member), 3)
        old = OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 2)])
        commit = await connection.request(OffsetCommitRequest("frozen", generation, member, topics=[old]), 7)
        return [beat.error_code, commit.topics[0].partitions[0].error_code]
