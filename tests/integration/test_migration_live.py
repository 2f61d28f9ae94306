"""A live topic moves from a real Kafka to Dray by the commands alone: link, switch, and back out of a try."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.kafka import KafkaProcess
from tests.services.live_move import WITH_ACLS
from tests.services.maven import require_kafka_jars
from tests.services.migrating_dray import MigratingDray
from tests.services.migration_newcomer import LIVE_CHAPTER, Newcomer
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import (
    TOPIC,
    offsets_at,
    read_all,
    tiered_segments,
    wait_for,
    write_history,
)
from tests.services.tiered_kafka import TieredKafka, require_tiering
from tests.services.tools import require_tool

PARTITIONS = 2
SECONDS = 120

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts both clusters itself")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_kafka_jars()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "false",
        "super.users": "User:nobody-of-this-test",
        "group.initial.rebalance.delay.ms": "0",
    }
    with KafkaProcess(tmp_path_factory.mktemp("source"), settings) as server:
        yield server.bootstrap


@pytest.fixture(scope="module")
def dray(tmp_path_factory: pytest.TempPathFactory, kafka: str) -> Iterator[MigratingDray]:
    running = MigratingDray(tmp_path_factory.mktemp("dray"), {"old": kafka})
    try:
        yield running
    finally:
        running.stop()
    assert "Traceback" not in running.log.read_text()


def make_topic(kafka: str, topic: str, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    new = NewTopic(topic, PARTITIONS, 1, config=named)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([new])[topic].result(SECONDS)


def producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})


def produce(bootstrap: str, topic: str, values: range) -> dict[tuple[int, int], str]:
    """Each acknowledged, by partition and offset."""
    acknowledged: dict[tuple[int, int], str] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        acknowledged[partition, offset] = bytes(value).decode()

    made = producer(bootstrap)
    for number in values:
        made.produce(topic, str(number), partition=number % PARTITIONS, on_delivery=note)
    assert made.flush(SECONDS) == 0
    return acknowledged


def commit(bootstrap: str, group: str, offsets: list[TopicPartition]) -> None:
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    end = time.monotonic() + SECONDS
    while True:
        try:
            member.commit(offsets=offsets, asynchronous=False)
            break
        except KafkaException:  # its coordinator is only just starting
            assert time.monotonic() < end
            time.sleep(0.1)
    member.close()


def consume(
    bootstrap: str, topic: str, count: int, starts: tuple[int, ...] = (0, 0)
) -> dict[tuple[int, int], str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, start) for partition, start in enumerate(starts)])
    found: dict[tuple[int, int], str] = {}
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found[message.partition(), message.offset()] = bytes(value).decode()  # type: ignore[index]
    consumer.close()
    return found


def test_a_topic_moves_with_all_its_records_and_groups(kafka: str, dray: MigratingDray) -> None:
    topic = "orders"
    make_topic(kafka, topic, retention_ms="-1")
    written = produce(kafka, topic, range(1000))
    commit(kafka, "billing", [TopicPartition(topic, 0, 120), TopicPartition(topic, 1, 7)])

    shown = dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    assert "groups that are followed: billing" in shown
    assert "topic orders is linked: 2 partitions" in shown
    written |= produce(kafka, topic, range(1000, 1500))
    dray.until(lambda: all(each["lag"] == 0 for each in dray.status(topic)["partitions"]))
    assert dray.status(topic)["state"] == "mirroring"
    assert consume(dray.bootstrap, topic, len(written)) == written

    said = dray.migrate("switch", topic, "--execute", fails=True)
    assert "consumers of billing assign partitions of orders to themselves" in said
    assert dray.status(topic)["assigning"] == ["billing"]
    dray.migrate("switch", topic, "--consumers-stopped", "--execute", "--wait")
    assert [each["boundary"] for each in dray.status(topic)["partitions"]] == [750, 750]
    written |= produce(dray.bootstrap, topic, range(1500, 2000))
    assert sorted(written.values(), key=int) == [str(number) for number in range(2000)]
    assert consume(dray.bootstrap, topic, len(written)) == written

    dray.until(lambda: dray.status(topic)["state"] == "moved")
    moved = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "billing"})
    places = moved.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], SECONDS)
    assert [place.offset for place in places] == [120, 7]
    moved.close()


def test_a_consumer_that_is_ahead_of_the_mirror_waits_for_it(kafka: str, dray: MigratingDray) -> None:
    """With offsets of its own, as Flink and Spark have them: it goes on where it was, and is not reset."""
    topic = "ahead"
    make_topic(kafka, topic, retention_ms="-1")
    produce(kafka, topic, range(200))
    dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    settings = {"bootstrap.servers": dray.bootstrap, "group.id": "its own", "auto.offset.reset": "error"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 150)])
    assert consumer.poll(1) is None
    produce(kafka, topic, range(200, 400))
    found = [message.offset() for message in consumer.consume(50, SECONDS)]
    assert found == list(range(150, 200))
    consumer.close()


def test_a_group_that_moved_with_one_topic_comes_with_the_next_too(kafka: str, dray: MigratingDray) -> None:
    """It reads both, in different processes. At Dray it begins neither anew."""
    first, second = "parcels", "returns"
    for topic in (first, second):
        make_topic(kafka, topic, retention_ms="-1")
        produce(kafka, topic, range(400))
    places = [
        TopicPartition(topic, partition) for topic in (first, second) for partition in range(PARTITIONS)
    ]
    commit(kafka, "delivery", [TopicPartition(first, 0, 120), TopicPartition(first, 1, 7)])
    dray.migrate("link", first, "--from-cluster", "old", "--open-to-all", "--execute")
    dray.migrate("switch", first, "--consumers-stopped", "--execute", "--wait")
    dray.until(lambda: dray.status(first)["state"] == "moved")
    commit(dray.bootstrap, "delivery", [TopicPartition(first, 0, 121)])

    commit(kafka, "delivery", [TopicPartition(second, 0, 30), TopicPartition(second, 1, 40)])
    shown = dray.migrate("link", second, "--from-cluster", "old", "--open-to-all", "--execute")
    assert "groups that are followed: delivery" in shown
    assert dray.status(second)["groups"]["followed"] == ["delivery"]
    reading = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "delivery"})
    assert [each.offset for each in reading.committed(places[:2], SECONDS)] == [121, 7]
    with pytest.raises(KafkaException):  # it waits, and does not say that nothing was committed
        reading.committed(places[2:], 3)
    commit(kafka, "delivery", [TopicPartition(second, 0, 33)])
    dray.migrate("switch", second, "--consumers-stopped", "--execute", "--wait")
    dray.until(lambda: dray.status(second)["state"] == "moved")
    assert [each.offset for each in reading.committed(places, SECONDS)] == [121, 7, 33, 40]
    reading.close()


@pytest.mark.soak
def test_a_source_that_is_gone_after_the_switch_keeps_no_group(tmp_path: Path) -> None:
    """Its groups had members when it died: nobody can say that they have left."""
    require_kafka_jars()
    (tmp_path / "source").mkdir()
    (tmp_path / "dray").mkdir()
    with KafkaProcess(tmp_path / "source", {"group.initial.rebalance.delay.ms": "0"}) as server:
        make_topic(server.bootstrap, "orders", retention_ms="-1")
        produce(server.bootstrap, "orders", range(400))
        dray = MigratingDray(tmp_path / "dray", {"old": server.bootstrap})
        member = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            member.subscribe(["orders"])
            dray.until(lambda: member.poll(0.1) is not None)
            member.commit(offsets=[TopicPartition("orders", 0, 50)], asynchronous=False)
            dray.migrate("link", "orders", "--from-cluster", "old", "--open-to-all", "--execute")
            fenced = "size"  # there is no authorizer
            dray.migrate("switch", "orders", "--fence", fenced, "--execute", "--wait")
            assert dray.status("orders")["trouble"] is None
        except BaseException:
            dray.stop()
            raise
    try:
        status = dray.status("orders")
        assert (status["state"], status["groups"]["followed"]) == ("switched", ["billing"])
        assert "cannot be reached" in status["trouble"]
        shown = dray.migrate("status", "orders")
        assert "drayd migrate hand-over orders --without-source" in shown
        assert "add --without-source" in dray.migrate("hand-over", "orders", fails=True)
        done = dray.migrate("hand-over", "orders", "--without-source", "--execute")
        assert "topic orders is moved; handed over: billing" in done
        here = Consumer({"bootstrap.servers": dray.bootstrap, "group.id": "billing"})
        assert here.committed([TopicPartition("orders", 0)], SECONDS)[0].offset == 50
        here.close()
        refused = dray.migrate("hand-over", "orders", "--without-source", "--execute", fails=True)
        assert "is moved, and groups are handed over once it is switched" in refused
    finally:
        dray.stop()


def test_a_topic_that_begins_within_a_batch_is_linked(kafka: str, dray: MigratingDray) -> None:
    """DeleteRecords takes any offset, and Kafka Streams uses it on all that it passes through Kafka."""
    topic = "purged"
    make_topic(kafka, topic, retention_ms="-1")
    written = produce(kafka, topic, range(1000))
    admin = AdminClient({"bootstrap.servers": kafka})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 123)]).values():
        assert deleted.result(SECONDS).low_watermark == 123
    left = {place: value for place, value in written.items() if place >= (0, 123)}
    dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    dray.until(lambda: all(each["lag"] == 0 for each in dray.status(topic)["partitions"]))
    assert consume(dray.bootstrap, topic, len(left), starts=(123, 0)) == left
    dray.migrate("switch", topic, "--execute", "--wait")
    assert [each["boundary"] for each in dray.status(topic)["partitions"]] == [500, 500]
    assert consume(dray.bootstrap, topic, len(left), starts=(123, 0)) == left

    dray.until(lambda: dray.status(topic)["state"] == "moved")  # it was a rehearsal
    again = dray.migrate("link", topic, "--from-cluster", "old", "--execute", fails=True)
    assert "is moved already" in again
    here = AdminClient({"bootstrap.servers": dray.bootstrap})
    here.delete_topics([topic])[topic].result(SECONDS)
    dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    dray.until(lambda: all(each["lag"] == 0 for each in dray.status(topic)["partitions"]))
    assert consume(dray.bootstrap, topic, len(left), starts=(123, 0)) == left
    dray.migrate("abort", topic, "--execute")


class Working:
    """One producer process at work until it is told to stop: what was acknowledged, and what went wrong."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._stop = Event()
        self._producer = producer(bootstrap)
        self._thread = Thread(target=self._work)
        self._thread.start()

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value = message.value()
        assert value is not None
        self.acknowledged[message.partition(), message.offset()] = bytes(value).decode()  # type: ignore[index]

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                self._topic, str(number), partition=number % PARTITIONS, on_delivery=self._note
            )
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(SECONDS)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def test_the_same_producer_works_on_across_the_switch(kafka: str, dray: MigratingDray) -> None:
    """It talks to Dray all the time: what it sends is passed on to the source until the switch."""
    topic = "payments"
    make_topic(kafka, topic, retention_ms="-1")
    dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    working = Working(dray.bootstrap, topic)
    try:
        dray.until(lambda: len(working.acknowledged) > 200)
        dray.migrate("switch", topic, "--execute", "--wait")
        switched = len(working.acknowledged)
        dray.until(lambda: len(working.acknowledged) > switched + 200)
    finally:
        working.stop()
    assert working.errors == []
    boundaries = [each["boundary"] for each in dray.status(topic)["partitions"]]
    assert all(0 < boundary < len(working.acknowledged) // PARTITIONS for boundary in boundaries)
    read = consume(dray.bootstrap, topic, len(working.acknowledged))
    assert read == working.acknowledged, "each once, where it was acknowledged"
    for partition in range(PARTITIONS):
        values = [int(value) for (place, _), value in sorted(read.items()) if place == partition]
        assert values == list(range(partition, PARTITIONS * len(values), PARTITIONS)), "in order"


def test_a_link_is_taken_back_and_the_source_is_as_before(kafka: str, dray: MigratingDray) -> None:
    topic = "tried"
    make_topic(kafka, topic)
    written = produce(kafka, topic, range(100))
    dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    dray.until(lambda: all(each["lag"] == 0 for each in dray.status(topic)["partitions"]))
    dray.migrate("abort", topic, "--execute")
    assert "never attached or linked" in dray.migrate("status", topic, fails=True)
    written |= produce(kafka, topic, range(100, 200))
    dray.migrate("link", topic, "--from-cluster", "old", "--open-to-all", "--execute")
    assert consume(dray.bootstrap, topic, len(written)) == written


def test_many_topics_are_linked_and_switched_by_their_pattern(kafka: str, dray: MigratingDray) -> None:
    topics = ["many.a", "many.b"]
    for topic in [*topics, "another"]:
        make_topic(kafka, topic)
    written = {topic: produce(kafka, topic, range(10)) for topic in topics}
    said = dray.migrate("link", "many.*", "--from-cluster", "old", "--open-to-all", "--execute")
    assert [f"topic {topic} is linked: 2 partitions" in said for topic in topics] == [True, True]
    assert "another" not in said
    dray.until(lambda: all(each["lag"] == 0 for topic in topics for each in dray.status(topic)["partitions"]))
    said = dray.migrate("switch", "many.*", "--wait", "--execute")
    assert [f"topic {topic} is Dray's" in said for topic in topics] == [True, True]
    assert [consume(dray.bootstrap, topic, len(written[topic])) for topic in topics] == list(written.values())


def test_mistakes_are_one_line(kafka: str, dray: MigratingDray) -> None:
    make_topic(kafka, "mistaken")
    produce(dray.bootstrap, "here", range(1))
    make_topic(kafka, "here")
    said = {
        "no such upstream": dray.migrate(
            "link", "mistaken", "--from-cluster", "new", "--execute", fails=True
        ),
        "no topic": dray.migrate("link", "nowhere", "--from-cluster", "old", "--execute", fails=True),
        "exists": dray.migrate(
            "link", "here", "--from-cluster", "old", "--open-to-all", "--execute", fails=True
        ),
        "not linked": dray.migrate("switch", "mistaken", "--execute", fails=True),
        "opened": dray.migrate("link", "mistaken", "--from-cluster", "old", "--execute", fails=True),
        "half a tier": dray.migrate("link", "mistaken", "--from-cluster", "old", "--from", "x", fails=True),
    }
    expected = {
        "no such upstream": "the config names no upstream 'new' (there are: old): add it",
        "no topic": "the source has no topic nowhere",
        "exists": "topic here exists here already",
        "not linked": "topic mistaken is not linked",
        "opened": "the source asks who may use mistaken, and Dray asks nobody",
        "half a tier": "--from and --layout go together",
    }
    for case, text in expected.items():
        assert text in said[case], (case, said[case])
        assert len(said[case].strip().splitlines()) == 1, said[case]


@pytest.mark.soak
def test_the_chapter_of_the_runbook(kafka: str, tmp_path: Path) -> None:
    """What `docs/migration-live.md` tells an operator to type: only addresses and properties are others."""
    require_tool("kcat")
    move = LIVE_CHAPTER.partition("## The move")[2].partition("\n## ")[0]
    [config] = re.findall(r"```yaml\n(.*?)```", LIVE_CHAPTER, re.DOTALL)
    [commands] = re.findall(r"```sh\n(.*?)```", move, re.DOTALL)
    make_topic(kafka, "moving", retention_ms="-1")
    produce(kafka, "moving", range(20))
    (tmp_path / "dray.yaml").write_text(config.replace("kafka:9092", kafka))
    for name in ("old", "brokers"):
        (tmp_path / f"{name}.properties").write_text("security.protocol=PLAINTEXT\n")
    newcomer = Newcomer(tmp_path)
    said: dict[str, str] = {}
    try:
        for line in commands.splitlines():
            command = line.replace("orders", "moving")
            if command.endswith("&"):
                newcomer.starts(command)
                continue
            done = newcomer.types(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said[line.split(" --config")[0]] = done.stdout
        read = newcomer.types("kcat -C -b localhost:9092 -t moving -o beginning -e -q")
    finally:
        newcomer.leaves()
    assert "what will happen" in said["drayd migrate link orders --from-cluster old"]
    assert (
        "is linked: 2 partitions"
        in said["drayd migrate link orders --from-cluster old --open-to-all --execute"]
    )
    assert "topic moving is Dray's" in said["drayd migrate switch orders --wait --execute"]
    assert sorted(read.stdout.split()) == sorted([*map(str, range(20)), "after"])
    assert "Traceback" not in (tmp_path / "broker.log").read_text()


@pytest.mark.soak
def test_the_chapter_with_a_tier_and_back_out_of_a_try(tmp_path: Path) -> None:
    """A running Kafka with tiered storage: linked, taken back, linked again and switched, by what the chapter
    says. Only addresses, the tier's layout and the answers to questions are others."""
    require_tool("kcat")
    require_tiering()
    [config] = re.findall(r"```yaml\n(.*?)```", LIVE_CHAPTER, re.DOTALL)
    [link] = re.findall(r"`(drayd migrate link orders .*--from tier .*)`", LIVE_CHAPTER)
    [abort] = re.findall(r"`(drayd migrate abort orders) --execute`", LIVE_CHAPTER)
    link = (
        link.replace("aiven-1", "kafka-tiered").replace("orders", TOPIC)
        + " --open-to-all --execute --config dray.yaml"
    )
    abort = abort.replace("orders", TOPIC) + " --execute --config dray.yaml"
    newcomer = Newcomer(tmp_path)

    def types(command: str) -> str:
        done = newcomer.types(command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    kafka = TieredKafka(tmp_path / "kafka", WITH_ACLS)
    with kafka:
        write_history(kafka)
        wait_for("segments tiered", lambda: min(tiered_segments(kafka).values(), default=0) >= 2, 300)
        stores = yaml.safe_dump({"foreign": {"stores": {"tier": f"file:{kafka.tier}"}}})
        (tmp_path / "dray.yaml").write_text(config.replace("kafka:9092", kafka.bootstrap) + stores)
        for name in ("old", "brokers"):
            (tmp_path / f"{name}.properties").write_text("security.protocol=PLAINTEXT\n")
        try:
            newcomer.starts("drayd up --config dray.yaml &")
            assert f"topic {TOPIC} is linked" in types(link)
            types(abort)
            assert TOPIC not in types("kcat -L -b localhost:9092").split('"')
            produce(kafka.bootstrap, TOPIC, range(10))
            ends = offsets_at(kafka.bootstrap, TOPIC, -1)
            expected = read_all(kafka.bootstrap, TOPIC, ends, "read_committed")
            assert f"topic {TOPIC} is linked" in types(link)
            switched = types(f"drayd migrate switch {TOPIC} --wait --execute --config dray.yaml")
            assert f"topic {TOPIC} is Dray's" in switched
            assert read_all(newcomer.address, TOPIC, ends, "read_committed") == expected
            written = produce(newcomer.address, TOPIC, range(10))
            assert sorted(written) == [(p, ends[p] + n) for p in range(PARTITIONS) for n in range(5)]
            assert "borrowed" in types(f"drayd migrate status {TOPIC} --config dray.yaml")
            types(f"drayd migrate stragglers {TOPIC} --config dray.yaml")
        finally:
            newcomer.leaves()
    assert "Traceback" not in (tmp_path / "broker.log").read_text()


@pytest.mark.soak
def test_a_tier_is_read_where_it_lies_and_only_the_rest_is_mirrored(tmp_path: Path) -> None:
    require_tiering()
    kafka = TieredKafka(tmp_path / "kafka")
    with kafka:
        write_history(kafka)
        wait_for("segments tiered", lambda: min(tiered_segments(kafka).values(), default=0) >= 2, 300)
        ends = offsets_at(kafka.bootstrap, TOPIC, -1)
        expected = read_all(kafka.bootstrap, TOPIC, ends, "read_committed")
        (tmp_path / "dray").mkdir()
        dray = MigratingDray(tmp_path / "dray", {"old": kafka.bootstrap}, {"tier": f"file:{kafka.tier}"})
        try:
            flags = ("--from-cluster", "old", "--from", "tier", "--layout", "kafka-tiered", "--open-to-all")
            shown = dray.migrate("link", TOPIC, *flags, "--execute")
            assert "segments of its tier are read where they lie" in shown
            assert "t1 is a transactional producer" in shown
            dray.until(lambda: all(each["lag"] == 0 for each in dray.status(TOPIC)["partitions"]))
            assert read_all(dray.bootstrap, TOPIC, ends, "read_committed") == expected
            said = dray.migrate("switch", TOPIC, "--fence", "size", "--execute", fails=True)
            assert "transactions are written to the topic (t1" in said
            said = dray.migrate("switch", TOPIC, "--fence", "stopped", "--execute", fails=True)
            assert (
                f"nothing was done: transactions are written to {TOPIC}, which Dray does not take (t1)"
                in said
            )
            assert dray.status(TOPIC)["transactional"] == ["t1"]
            dray.migrate(
                "switch", TOPIC, "--fence", "stopped", "--without-transactions", "--execute", "--wait"
            )
            found = [each["boundary"] for each in dray.status(TOPIC)["partitions"]]
            assert found == [ends[0], ends[1]]
            written = produce(dray.bootstrap, TOPIC, range(10))
            assert sorted(written) == [(p, ends[p] + n) for p in range(PARTITIONS) for n in range(5)]
            assert read_all(dray.bootstrap, TOPIC, ends, "read_committed") == expected
        finally:
            dray.stop()
        assert "Traceback" not in dray.log.read_text()
