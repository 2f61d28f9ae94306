"""Kafka's own commands on three brokers of one zone: they see no drift, and end with something sensible."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.services.brokers import Brokers
from tests.services.clients.go_client import Sarama
from tests.services.consumers import wait_for
from tests.services.kafka_tools import KafkaTools
from tests.services.tools import require_tool

TOPIC = "tooled"
PARTITIONS = 7


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("tools"), 3) as running:
        yield running


@pytest.fixture(scope="module")
def tools(brokers: Brokers) -> Iterator[KafkaTools]:
    with KafkaTools(brokers.bootstrap) as running:
        create(running, brokers, TOPIC, 3)
        yield running


def create(tools: KafkaTools, brokers: Brokers, topic: str, replicas: int) -> None:
    """Returns when every broker lists it: one that was not asked to create it learns of it a moment later."""
    created = tools.run(
        "kafka-topics",
        "--create",
        *("--topic", topic),
        *("--partitions", str(PARTITIONS)),
        *("--replication-factor", str(replicas)),
    )
    assert (created.code, created.lines[-1]) == (0, f"Created topic {topic}.")
    clients = [AdminClient({"bootstrap.servers": broker.bootstrap}) for broker in brokers.processes]

    def all_list_it() -> bool:
        return all(topic in client.list_topics(timeout=60).topics for client in clients)

    wait_for("all brokers know the topic", all_list_it)


def replicas(described: str) -> dict[int, list[int]]:
    """By partition, as `kafka-topics --describe` shows them; all of them are in sync."""
    found = re.findall(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\S+)\tIsr: (\S+)", described)
    assert all(shown == in_sync and shown.startswith(leader) for _, leader, shown, in_sync in found)
    return {int(number): [int(node) for node in shown.split(",")] for number, _, shown, _ in found}


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_replicas_are_those_that_were_asked_for_by_whichever_way_they_are_shown(
    tools: KafkaTools, brokers: Brokers, asked: int, tmp_path: Path
) -> None:
    """Terraform, Strimzi and topicctl take anything else for drift, and would mend it for ever."""
    topic = f"drift-{asked}"
    create(tools, brokers, topic, asked)
    described = tools.run("kafka-topics", "--describe", "--topic", topic).text
    assert f"PartitionCount: {PARTITIONS}\tReplicationFactor: {asked}\t" in described
    shown = replicas(described)
    assert [len(set(nodes)) for nodes in shown.values()] == [asked] * PARTITIONS
    assert replicas(tools.run("kafka-topics", "--describe", "--topic", topic).text) == shown
    # where the partitions lie, as each broker tells of its own
    lying = json.loads(tools.run("kafka-log-dirs", "--describe", "--topic-list", topic).lines[-1])
    by_broker = {
        broker["broker"]: {part["partition"] for log in broker["logDirs"] for part in log["partitions"]}
        for broker in lying["brokers"]
    }
    assert by_broker == {
        broker: {f"{topic}-{number}" for number, nodes in shown.items() if broker in nodes}
        for broker in range(3)
    }
    # what a plan to move them begins with
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    plan = tools.run(
        "kafka-reassign-partitions",
        "--generate",
        *("--topics-to-move-json-file", str(wanted)),
        *("--broker-list", "0,1,2"),
    )
    present = json.loads(plan.lines[plan.lines.index("Current partition replica assignment") + 1])
    assert {part["partition"]: part["replicas"] for part in present["partitions"]} == shown
    for broker in brokers.processes:  # whichever is asked, and by librdkafka too
        listed = json.loads(_kcat(broker.bootstrap, topic))
        [seen] = [one for one in listed["topics"] if one["topic"] == topic]
        assert {
            part["partition"]: [replica["id"] for replica in part["replicas"]] for part in seen["partitions"]
        } == shown


@pytest.mark.parametrize("asked", [1, 3])
def test_sarama_sees_the_replicas_that_it_asked_for(brokers: Brokers, asked: int) -> None:
    """Terraform's provider for Kafka is built on it: it compares these numbers with its plan."""
    topic = f"planned-{asked}"
    listed, *partitions = Sarama(brokers.bootstrap).run("topic", topic, str(PARTITIONS), str(asked))
    assert listed == f"listed {PARTITIONS} {asked}"
    assert partitions == [f"partition {number} {asked} {asked} {asked}" for number in range(PARTITIONS)]


def _kcat(bootstrap: str, topic: str) -> str:
    kcat = require_tool("kcat")
    done = subprocess.run(
        [str(kcat), "-b", bootstrap, "-L", "-J", "-t", topic],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return done.stdout


def test_a_reassignment_is_refused_with_the_reason_and_there_is_none_to_wait_for(
    tools: KafkaTools, tmp_path: Path
) -> None:
    nodes = replicas(tools.run("kafka-topics", "--describe", "--topic", TOPIC).text)[0]
    plans = {}
    for name, wanted in (("stay", nodes), ("move", nodes[:1])):
        plans[name] = str(tmp_path / f"{name}.json")
        part = {"topic": TOPIC, "partition": 0, "replicas": wanted}
        Path(plans[name]).write_text(json.dumps({"version": 1, "partitions": [part]}))
    refused = tools.run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", plans["move"])
    assert refused.code == 1
    assert "the object store holds the records" in refused.text
    stayed = tools.run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", plans["stay"])
    assert stayed.code == 0, stayed.text
    verified = tools.run("kafka-reassign-partitions", "--verify", "--reassignment-json-file", plans["stay"])
    assert verified.code == 0, verified.text
    assert f"Reassignment of partition {TOPIC}-0 is completed." in verified.text
    assert "No partition reassignments found." in tools.run("kafka-reassign-partitions", "--list").text


def test_the_life_of_a_group_and_of_its_offsets(tools: KafkaTools, brokers: Brokers) -> None:
    group = ("--group", "tooled-group")
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(5):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(60) == 0

    def groups(*arguments: str) -> str:
        said = tools.run("kafka-consumer-groups", *arguments)
        assert said.code == 0, said.text
        return said.text

    reset = groups("--reset-offsets", *group, "--topic", f"{TOPIC}:0", "--to-latest", "--execute")
    assert re.search(rf"tooled-group +{TOPIC} +0 +5", reset), reset
    reset = groups("--reset-offsets", *group, "--topic", f"{TOPIC}:0", "--shift-by", "-3", "--execute")
    assert re.search(rf"tooled-group +{TOPIC} +0 +2", reset), reset
    described = groups("--describe", *group)
    assert re.search(rf"tooled-group +{TOPIC} +0 +2 +5 +3 ", described), described
    assert re.search(r"tooled-group .* Empty ", groups("--describe", *group, "--state"))
    assert "tooled-group" in groups("--list")
    assert "tooled-group" in tools.run("kafka-groups", "--list").text
    assert "Successful" in groups("--delete-offsets", *group, "--topic", f"{TOPIC}:0")
    assert "was successful" in groups("--delete", *group)
    assert "tooled-group" not in groups("--list")


def test_records_are_deleted_by_a_file(tools: KafkaTools, brokers: Brokers, tmp_path: Path) -> None:
    create(tools, brokers, "shortened", 1)
    producer = Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(5):
        producer.produce("shortened", str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": "shortened", "partition": 0, "offset": 3}]}))
    said = tools.run("kafka-delete-records", "--offset-json-file", str(wanted))
    assert said.code == 0, said.text
    assert "partition: shortened-0\tlow_watermark: 3" in said.text
    earliest = tools.run("kafka-get-offsets", "--topic-partitions", "shortened:0", "--time", "earliest")
    assert earliest.lines == ["shortened:0:3"]


SENSIBLE: dict[str, tuple[int, str]] = {
    "kafka-topics --describe --under-replicated-partitions": (0, ""),
    "kafka-topics --describe --unavailable-partitions": (0, ""),
    "kafka-topics --create --topic __consumer_offsets": (1, "committed offsets are in the metadata store"),
    f"kafka-get-offsets --topic {TOPIC}": (0, f"{TOPIC}:6:0"),
    "kafka-leader-election --election-type preferred --all-topic-partitions": (0, ""),
    f"kafka-leader-election --election-type unclean --topic {TOPIC} --partition 0": (
        0,
        f"Valid replica already elected for partitions {TOPIC}-0",
    ),
    "kafka-metadata-quorum describe --status": (1, "There is no KRaft quorum"),
    "kafka-features describe": (0, "Feature: group.version"),
    "kafka-features upgrade --feature group.version=1": (0, "group.version was upgraded to 1."),
    "kafka-features upgrade --feature kraft.version=1": (1, "There is no such feature here."),
    "kafka-cluster cluster-id": (0, "Cluster ID: "),
    "kafka-broker-api-versions": (0, "DescribeTransactions(65): 0 [usable: 0]"),
    "kafka-consumer-groups --describe --all-groups": (0, ""),
    "kafka-consumer-groups --describe --group nobodys": (0, "Group nobodys is not found"),
    f"kafka-configs --alter --entity-type topics --entity-name {TOPIC} --add-config retention.ms=1234567": (
        0,
        f"Completed updating config for topic {TOPIC}.",
    ),
    f"kafka-configs --alter --entity-type topics --entity-name {TOPIC} --add-config diskless.enable=true": (
        0,
        f"Completed updating config for topic {TOPIC}.",
    ),
    f"kafka-configs --describe --entity-type topics --entity-name {TOPIC}": (
        0,
        f"Dynamic configs for topic {TOPIC} are:",
    ),
    f"kafka-configs --describe --entity-type topics --entity-name {TOPIC} --all": (
        0,
        "synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}",
    ),
    "kafka-configs --describe --entity-type brokers --entity-name 0 --all": (0, "num.partitions=1"),
    "kafka-configs --alter --entity-type brokers --entity-name 0 --add-config num.io.threads=3": (
        1,
        "A broker's configs are set where it is started",
    ),
    "kafka-configs --alter --entity-type broker-loggers --entity-name 0 --add-config dray.log=DEBUG": (
        0,
        "Completed updating config for broker-logger 0.",
    ),
    "kafka-configs --alter --entity-type broker-loggers --entity-name 0 --delete-config dray.log": (
        0,
        "Completed updating config for broker-logger 0.",
    ),
    "kafka-configs --describe --entity-type broker-loggers --entity-name 0": (0, "dray.log=INFO"),
    "kafka-configs --describe --entity-type users": (0, ""),
    "kafka-configs --describe --entity-type clients": (0, ""),
    "kafka-transactions list": (0, "TransactionalId"),
    "kafka-transactions describe --transactional-id x": (1, "because the ID could not be found"),
    "kafka-transactions forceTerminateTransaction --transactionalId x": (1, "Failed to force terminate"),
    "kafka-delegation-tokens --describe --command-config /dev/null": (
        1,
        "The node does not support DESCRIBE_DELEGATION_TOKEN",
    ),
    f"kafka-transactions describe-producers --topic {TOPIC} --partition 0": (0, "ProducerId"),
    f"kafka-transactions find-hanging --topic {TOPIC}": (0, "Duration(min)"),
    f"kafka-transactions abort --topic {TOPIC} --partition 0 --start-offset 0": (
        1,
        "Could not find any open transactions",
    ),
    f"kafka-transactions abort --topic {TOPIC} --partition 0 --producer-id 1 --producer-epoch 0 "
    "--coordinator-epoch 0": (1, "does not support WRITE_TXN_MARKERS"),
}


@pytest.mark.parametrize("command", SENSIBLE)
def test_each_command_ends_with_something_sensible(tools: KafkaTools, command: str) -> None:
    said = tools.run(*command.split(" "))
    code, words = SENSIBLE[command]
    assert said.code == code, said.text
    assert words in said.text
    assert "timed out" not in said.text.lower()


def test_kafka_configs_sets_and_shows_quotas(brokers: Brokers, tools: KafkaTools) -> None:
    user, client = ("users", "--entity-name", "dora"), ("clients", "--entity-name", "loader")
    address = ("ips", "--entity-name", "203.0.113.9")

    def configure(*arguments: str) -> str:
        said = tools.run("kafka-configs", *arguments)
        assert said.code == 0, said.text
        return said.text

    def add(quotas: str, *entity: str) -> None:
        assert "Completed updating" in configure("--alter", "--add-config", quotas, *entity)

    def shows(*entity: str, quotas: str) -> None:
        """Any broker may be asked: one that was not asked to set them learns of them a moment later."""
        wait_for("it is shown", lambda: quotas in configure("--describe", *entity))

    add("producer_byte_rate=1024,consumer_byte_rate=2048", "--entity-type", *user)
    add("request_percentage=50.5", "--entity-type", *user, "--entity-type", *client)
    add("controller_mutation_rate=7000", "--entity-type", "clients", "--entity-default")
    add("connection_creation_rate=12", "--entity-type", *address)
    shows("--entity-type", *user, quotas="'dora' are consumer_byte_rate=2048.0, producer_byte_rate=1024.0")
    shows("--entity-type", *user, "--entity-type", *client, quotas="request_percentage=50.5")
    shows("--entity-type", "clients", "--entity-default", quotas="controller_mutation_rate=7000.0")
    shows("--entity-type", *address, quotas="connection_creation_rate=12.0")
    refused = tools.run(
        "kafka-configs", "--alter", "--add-config", "producer_byte_rate=0", "--entity-type", *user
    )
    assert "must be greater than 0" in refused.text
    configure("--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate", "--entity-type", *user)
    wait_for("it is gone", lambda: "byte_rate" not in configure("--describe", "--entity-type", *user))
    configure(
        "--alter",
        "--delete-config",
        "controller_mutation_rate",
        "--entity-type",
        "clients",
        "--entity-default",
    )
