"""Groups of a real Kafka: their members leave there and start at Dray, and go on exactly where they were."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.services.attached_broker import AttachedBroker, attached_broker
from tests.services.consumers import ConsumerProcess, GroupHistory, wait_for
from tests.services.dray import drayd_path
from tests.services.kafka import KafkaProcess
from tests.services.kafka_tools import KafkaTools
from tests.services.marks import longer
from tests.services.maven import require_kafka_jars, require_kafka_tools
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.topics import create_topic

from dray.base.runtime import SystemRuntime
from dray.daemons.config import load
from dray.daemons.migrator import migration
from dray.daemons.migrator.migration import SourceRequest
from dray.kafka.client.admin import alter_configs
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.connection import Dialer
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.metadata.memory import MemoryState, MemoryStore
from dray.migration.attach.inventory import SourceLayout
from dray.migration.groups.copies import GroupCopies
from dray.migration.groups.follower import FollowReport, GroupFollower, LinkedTopic
from dray.migration.live.followed_configs import follow_configs
from dray.migration.record import MigrationState
from dray.migration.source.source_groups import SourceGroups

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a Kafka and a broker of its own")

LATE = "late"
PARTITIONS = 2
COUNT = 100
SECONDS = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    require_kafka_jars()
    require_kafka_tools()
    with KafkaProcess(tmp_path_factory.mktemp("source")) as server:
        yield server


def produce(bootstrap: str, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, first + COUNT):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def follow(
    kafka: KafkaProcess, attached: AttachedBroker, topic: str, boundaries: Mapping[int, int]
) -> FollowReport:
    """One round of a migrator. The topic is linked as soon as the source is looked at."""

    async def work() -> FollowReport:
        runtime = SystemRuntime(threads=1)
        try:
            async with (
                Cluster([("127.0.0.1", kafka.port)], Dialer(client_id="migrator"), runtime) as cluster,
                migration.opened(attached.settings, runtime) as rooms,
            ):
                await cluster.learn([topic])
                linked = LinkedTopic(topic, cluster.view.topic_ids[topic], PARTITIONS, boundaries)

                async def read() -> Sequence[LinkedTopic]:
                    return [linked]

                copies = GroupCopies(rooms.stores.metadata, runtime, rooms.cluster.domains, "old")
                return await GroupFollower(SourceGroups(cluster), copies, read).run_once()
        finally:
            runtime.close()

    return asyncio.run(work())


def attach(
    kafka: KafkaProcess,
    attached: AttachedBroker,
    directory: Path,
    topic: str,
    count: int,
) -> None:
    """Lay the topic down as it is at the source."""
    logs = directory / "logs"
    for partition in range(count):
        name = f"{topic}-{partition}"
        shutil.copytree(kafka.directory / "logs" / name, logs / name)
    attached.migrate(
        "attach", topic, "--from", str(logs), "--layout", "log-dir", "--bootstrap", attached.bootstrap
    )


class Members:
    """One consumer of each kind, each the only one of its group."""

    def __init__(
        self, kinds: Sequence[str], bootstrap: str, topic: str, directory: Path, stack: ExitStack
    ) -> None:
        directory.mkdir()
        self.by_kind = {
            kind: stack.enter_context(
                ConsumerProcess(directory, kind, kind, bootstrap, topic, f"group-{kind}")
            )
            for kind in kinds
        }

    def offsets(self, kind: str) -> list[tuple[int, int]]:
        history = GroupHistory([self.by_kind[kind]])
        return sorted((line.partition, line.offset) for line in history.lines if line.what == "record")

    def wait_for_count(self, count: int) -> None:
        for kind in self.by_kind:
            wait_for(
                f"{kind} reads {count} records",
                lambda kind=kind: len(self.offsets(kind)) >= count,
                SECONDS,
            )

    def stop(self) -> None:
        for consumer in self.by_kind.values():
            consumer.stop()


@pytest.mark.parametrize(
    "kinds",
    [
        ("confluent-range", "java-consumer"),
        longer(("java-range", "confluent-consumer")),
    ],
)
def test_groups_go_on_where_they_were(kinds: Sequence[str], kafka: KafkaProcess, tmp_path: Path) -> None:
    topic = f"orders-of-{kinds[0]}"
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    produce(kafka.bootstrap, topic, 0)
    groups = sorted(f"group-{kind}" for kind in kinds)
    end = COUNT // PARTITIONS
    boundaries = dict.fromkeys(range(PARTITIONS), end)
    (tmp_path / "tier").mkdir()
    with ExitStack() as stack:
        there = Members(kinds, kafka.bootstrap, topic, tmp_path / "there", stack)
        there.wait_for_count(COUNT)
        attached = stack.enter_context(attached_broker(tmp_path, tmp_path / "tier"))
        wait_for(
            "what all of them committed is copied",
            lambda: sorted(follow(kafka, attached, topic, {}).waiting) == groups,
            SECONDS,
        )
        attach(kafka, attached, tmp_path, topic, PARTITIONS)
        here = Members(kinds, attached.bootstrap, topic, tmp_path / "here", stack)
        report = follow(kafka, attached, topic, boundaries)
        assert report.handed_over == [], "all of them have members at the source"
        tools = stack.enter_context(KafkaTools(attached.bootstrap))
        for group in groups:
            said = tools.run("kafka-consumer-groups", "--describe", "--group", group)
            assert said.code == 0, said.text
            for partition in range(PARTITIONS):
                assert re.search(rf"{group} +{topic} +{partition} +{end} +{end} +0 ", said.text), said.text
        listed = tools.run("kafka-consumer-groups", "--list").text
        assert all(group in listed for group in groups), listed
        there.stop()
        handed_over: list[str] = []

        def all_moved() -> bool:
            handed_over.extend(follow(kafka, attached, topic, boundaries).handed_over)
            return sorted(handed_over) == groups

        wait_for("they are handed over", all_moved, SECONDS)
        produce(attached.bootstrap, topic, COUNT)
        here.wait_for_count(COUNT)
        expected = [(partition, end + n) for partition in range(PARTITIONS) for n in range(end)]
        for kind in kinds:
            assert here.offsets(kind) == expected, kind
        assert follow(kafka, attached, topic, boundaries).handed_over == []
        here.stop()


async def follow_in_memory(kafka: KafkaProcess, state: MemoryState, topic: str) -> FollowReport:
    runtime = SystemRuntime(threads=1)
    try:
        async with Cluster([("127.0.0.1", kafka.port)], Dialer(client_id="migrator"), runtime) as cluster:
            await cluster.learn([topic])
            linked = LinkedTopic(topic, cluster.view.topic_ids[topic], 1, {0: 10})

            async def read() -> Sequence[LinkedTopic]:
                return [linked]

            copies = GroupCopies(MemoryStore(runtime, state), runtime, 1, "old")
            report = await GroupFollower(SourceGroups(cluster), copies, read).run_once()
            if report.handed_over:
                assert (await copies.read_all())["eos"].offsets == {(topic, 0): (5, "")}
            return report
    finally:
        runtime.close()


def test_offsets_of_an_open_transaction_are_waited_for(kafka: KafkaProcess) -> None:
    create_topic(kafka.bootstrap, "eos", 1)
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "eos", "log_level": 0})

    def commits() -> bool:
        with suppress(KafkaException):  # the coordinator of a new Kafka starts with its first request
            reader.commit(offsets=[TopicPartition("eos", 0, 2)], asynchronous=False)
            return True
        return False

    wait_for("its first offset is committed", commits, SECONDS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "eos", "log_level": 0})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition("eos", 0, 5)], reader.consumer_group_metadata(), SECONDS
    )
    state = MemoryState()
    report = asyncio.run(follow_in_memory(kafka, state, "eos"))
    assert (report.copied, report.handed_over) == (0, [])
    producer.commit_transaction(SECONDS)
    wait_for(
        "it is handed over",
        lambda: asyncio.run(follow_in_memory(kafka, state, "eos")).handed_over == ["eos"],
        SECONDS,
    )
    reader.close()


def linked(kafka: KafkaProcess, attached: AttachedBroker, topic: str) -> None:
    """As if it had been linked to the source, and had switched at its end."""
    with attached.config.open("a") as config:
        config.write(f"upstream:\n  clusters:\n    old:\n      bootstrap: {kafka.bootstrap}\n")

    async def work() -> None:
        runtime = SystemRuntime(threads=1)
        try:
            async with migration.opened(attached.settings, runtime) as rooms:
                migrations = rooms.attacher.migrations
                record = await migrations.read(topic)
                assert record is not None
                await migrations.step(
                    topic,
                    record,
                    lambda current: replace(
                        current,
                        state=MigrationState.SWITCHED,
                        upstream="old",
                        source_topic_id=record.topic_id,
                        attempt=1,
                        fence="stopped",
                    ),
                )
        finally:
            runtime.close()

    asyncio.run(work())


def stragglers(attached: AttachedBroker, *arguments: str) -> tuple[int, str]:
    places = ("--config", str(attached.config), "--data-dir", str(attached.broker.data_directory))
    done = subprocess.run(
        [str(drayd_path()), "migrate", "stragglers", LATE, *places, *arguments],
        env=dict(attached.broker.environment()),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.soak
def test_late_records_are_shown_and_produced_once(kafka: KafkaProcess, tmp_path: Path) -> None:
    create_topic(kafka.bootstrap, LATE, 1, {"retention.ms": "5000000"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(LATE, b"in time", partition=0)
    assert producer.flush(SECONDS) == 0
    (tmp_path / "tier").mkdir()
    with attached_broker(tmp_path, tmp_path / "tier") as attached:
        attach(kafka, attached, tmp_path, LATE, 1)
        linked(kafka, attached, LATE)
        now = int(time.time() * 1000)
        for number in range(3):
            producer.produce(
                LATE, f"late {number}", f"k{number}", 0, headers={"h": b"1"}, timestamp=now - number * 1000
            )
        assert producer.flush(SECONDS) == 0
        code, said = stragglers(attached)
        assert code == 1
        assert f"topic {LATE}, partition 0: offsets 1 to 3 at the source" in said
        assert [bool(re.search(rf"\b{n + 1}\b.*k{n}", said)) for n in range(3)] == [True] * 3, said
        produced = ("--produce", "--execute", "--bootstrap", attached.bootstrap)
        code, said = stragglers(attached, *produced)
        assert code == 0, said
        assert f"topic {LATE}: 3 records were produced" in said
        assert stragglers(attached, *produced)[1] == f"topic {LATE}: no record is left behind at the source\n"
        consumer = Consumer(
            {"bootstrap.servers": attached.bootstrap, "group.id": "any", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition(LATE, 0, 0)])
        found = consumer.consume(4, SECONDS)
        assert consumer.consume(1, 1.0) == []
        consumer.close()
        assert [(each.value(), each.key(), each.headers(), each.timestamp()[1]) for each in found[1:]] == [
            (f"late {n}".encode(), f"k{n}".encode(), [("h", b"1")], now - n * 1000) for n in range(3)
        ]
        asyncio.run(configs_follow(kafka, attached))


async def configs_follow(kafka: KafkaProcess, attached: AttachedBroker) -> None:
    runtime = SystemRuntime(threads=1)
    try:
        async with (
            Cluster([("127.0.0.1", kafka.port)], Dialer(client_id="migrator"), runtime) as cluster,
            migration.opened(attached.settings, runtime) as rooms,
        ):
            await follow_configs(cluster, rooms.topics, LATE)
            found = await rooms.topics.refresh(LATE)
            assert found is not None
            assert found.config == {"retention.ms": "5000000"}
            await alter_configs(cluster, LATE, {"max.message.bytes": "0", "cleanup.policy": "compact"})

            async def until_followed() -> None:
                await follow_configs(cluster, rooms.topics, LATE)
                now = await rooms.topics.refresh(LATE)
                assert now is not None
                if "cleanup.policy" not in now.config:
                    raise RequestFailed("the source has not heard of it yet", ErrorCode.REQUEST_TIMED_OUT)
                assert now.config == {"retention.ms": "5000000", "cleanup.policy": "compact"}

            await cluster.patiently(until_followed, SECONDS)
    finally:
        runtime.close()


def test_offsets_that_were_committed_in_transactions_are_in_the_plan(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    topic, group = "exactly-once", "exactly"
    create_topic(kafka.bootstrap, topic, PARTITIONS)
    produce(kafka.bootstrap, topic, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": group, "log_level": 0})
    producer.init_transactions(SECONDS)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    for offset, end in ((20, producer.commit_transaction), (40, producer.abort_transaction)):
        producer.begin_transaction()
        place = TopicPartition(topic, 0, offset)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), SECONDS)
        end(SECONDS)
    consumer.close()
    logs = kafka.directory / "logs"
    shutil.copytree(logs, tmp_path / "left", ignore=lambda *_: [".lock"])
    settings = load(environment={"DRAY_DATA_DIR": str(tmp_path / "data")}).settings
    plan = migration.look(settings, SourceRequest(topic, str(tmp_path / "left"), SourceLayout.LOG_DIR))
    assert not plan.refused
    assert [(each.group, each.partition, each.offset) for each in plan.offsets] == [(group, 0, 20)]
