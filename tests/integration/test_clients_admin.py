"""Topics and configs through the admin clients that people have."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType
from tests.services.clients import CLIENTS, Message
from tests.services.clients.aiokafka_client import run
from tests.services.clients.java_client import Java
from tests.services.clients.kcat_client import Kcat

WEEK = "604800000"


def settle(futures):
    """The one answer of an admin call on one thing: None, or the error code."""
    (future,) = futures.values()
    try:
        future.result(60)
    except KafkaException as error:
        return error.args[0].code()
    return None


def topic_config(admin, topic, until=None):
    """A topic's values. Kafka answers a change a moment before it shows it: `until` is what to wait for."""
    deadline = time.monotonic() + 60
    while True:
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        config = {name: entry.value for name, entry in future.result(60).items()}
        if until is None or until.items() <= config.items() or time.monotonic() > deadline:
            return config


def describe(admin, topic, unlike=None):
    """A new topic may take a moment to show up in the metadata of the broker that is asked; `unlike` is the
    id of an old one, which may still be there."""
    deadline = time.monotonic() + 60
    while True:
        (future,) = admin.describe_topics(TopicCollection([topic])).values()
        try:
            found = future.result(60)
            if str(found.topic_id) != unlike or time.monotonic() > deadline:
                return found
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def test_create_describe_and_delete(admin, topic_name):
    topic = topic_name()
    new = NewTopic(topic, 3, 1, config={"retention.ms": "3600000", "compression.type": "zstd"})
    assert settle(admin.create_topics([new], validate_only=True)) is None
    assert topic not in admin.list_topics(timeout=60).topics
    assert settle(admin.create_topics([new])) is None
    assert settle(admin.create_topics([new])) == KafkaError.TOPIC_ALREADY_EXISTS
    described = describe(admin, topic)
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert all(partition.leader is not None for partition in described.partitions)
    config = topic_config(admin, topic)
    assert config["retention.ms"] == "3600000"
    assert config["compression.type"] == "zstd"
    assert config["cleanup.policy"] == "delete"
    assert settle(admin.delete_topics([topic])) is None
    assert settle(admin.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("has spaces", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("..", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("fine", 0, 1, {}, KafkaError.INVALID_PARTITIONS),
        ("fine", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("fine", 1, 1, {"no.such.config": "1"}, KafkaError.INVALID_CONFIG),
        ("fine", 1, 1, {"cleanup.policy": "keep"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused(name, partitions, replicas, config, code, admin):
    new = NewTopic(name, partitions, replicas, config=config)
    assert settle(admin.create_topics([new])) == code
    assert name not in admin.list_topics(timeout=60).topics


def test_default_partitions_and_replication(admin, topic_name):
    topic = topic_name()
    assert settle(admin.create_topics([NewTopic(topic, -1, -1)])) is None
    assert len(describe(admin, topic).partitions) == 1


def test_alter_configs(admin, make_topic):
    topic = make_topic(**{"retention.ms": "1000"})

    def alter(name, value, operation):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return settle(admin.incremental_alter_configs([resource]))

    assert alter("retention.bytes", "5000", AlterConfigOpType.SET) is None
    assert topic_config(admin, topic, {"retention.bytes": "5000"})["retention.bytes"] == "5000"
    assert topic_config(admin, topic)["retention.ms"] == "1000"
    assert alter("retention.ms", None, AlterConfigOpType.DELETE) is None
    assert topic_config(admin, topic, {"retention.ms": WEEK})["retention.ms"] == WEEK
    assert alter("cleanup.policy", "compact", AlterConfigOpType.APPEND) is None
    both = {"cleanup.policy": "delete,compact"}
    assert topic_config(admin, topic, both)["cleanup.policy"] == "delete,compact"
    assert alter("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT) is None
    assert topic_config(admin, topic, {"cleanup.policy": "delete"})["cleanup.policy"] == "delete"
    assert alter("retention.ms", "soon", AlterConfigOpType.SET) == KafkaError.INVALID_CONFIG
    assert alter("no.such.config", "1", AlterConfigOpType.SET) == KafkaError.INVALID_CONFIG
    # the old call replaces them all
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "2000000"})
    assert settle(admin.alter_configs([resource])) is None
    config = topic_config(admin, topic, {"max.message.bytes": "2000000"})
    assert config["max.message.bytes"] == "2000000"
    assert config["retention.bytes"] == "-1"


def test_configs_of_an_unknown_topic(admin, topic_name):
    resource = ConfigResource(ResourceType.TOPIC, topic_name())
    assert settle(admin.describe_configs([resource])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_configs(admin):
    node = admin.describe_cluster().result(60).nodes[0]
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]).values()
    config = future.result(60)
    assert "auto.create.topics.enable" in config
    assert "message.max.bytes" in config


def test_more_partitions_keep_what_is_there(admin, bootstrap, make_topic):
    topic = make_topic(2)
    topic_id = describe(admin, topic).topic_id
    client = CLIENTS["confluent"](bootstrap)
    client.produce(topic, [Message(b"k", b"before")], partition=1)
    assert settle(admin.create_partitions([NewPartitions(topic, 4)])) is None
    deadline = time.monotonic() + 60
    while len(describe(admin, topic).partitions) < 4:
        assert time.monotonic() < deadline
    assert str(describe(admin, topic).topic_id) == str(topic_id)
    client.produce(topic, [Message(b"k", b"after")], partition=3)
    assert client.fetch(topic, 1, partition=1)[0].value == b"before"
    assert client.fetch(topic, 1, partition=3)[0].value == b"after"
    assert settle(admin.create_partitions([NewPartitions(topic, 4)])) == KafkaError.INVALID_PARTITIONS
    assert settle(admin.create_partitions([NewPartitions(topic, 3)])) == KafkaError.INVALID_PARTITIONS


def test_delete_and_create_again_at_once(admin, bootstrap, make_topic):
    """The new topic is empty, has another id, and a producer that knew the old one gets through."""
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 500})
    errors = []

    def send(value):
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0

    send(b"old")
    old_id = str(describe(admin, topic).topic_id)
    for _ in range(3):
        assert settle(admin.delete_topics([topic])) is None
        assert settle(admin.create_topics([NewTopic(topic, 1, 1)])) is None
        new_id = str(describe(admin, topic, unlike=old_id).topic_id)
        assert new_id != old_id
        old_id = new_id
    send(b"new")
    assert errors == [None, None]
    assert [m.value for m in CLIENTS["confluent"](bootstrap).fetch(topic, 1)] == [b"new"]
    assert CLIENTS["kafka-python"](bootstrap).fetch(topic, 1)[0].offset == 0


def test_auto_creation(bootstrap, admin, topic_name):
    topic = topic_name()
    assert CLIENTS["confluent"](bootstrap).produce(topic, [Message(b"k", b"v")]) == [0]
    assert len(describe(admin, topic).partitions) == 1


def test_describe_cluster(admin, bootstrap):
    cluster = admin.describe_cluster().result(60)
    assert cluster.cluster_id
    assert {f"{node.host}:{node.port}" for node in cluster.nodes} == set(bootstrap.split(","))
    assert cluster.controller.id in {node.id for node in cluster.nodes}


def test_kafka_python_admin(bootstrap, topic_name):
    topic = topic_name()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({topic: {"num_partitions": 2, "configs": {"retention.ms": "5000"}}})
        admin.wait_for_topics([topic])
        assert topic in {entry if isinstance(entry, str) else entry["name"] for entry in admin.list_topics()}
        resource = PythonResource(ConfigResourceType.TOPIC, topic)
        assert "retention.ms" in str(admin.describe_configs([resource]))
        admin.alter_configs([PythonResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "6000"})])
        admin.create_partitions({topic: 3})
        deadline = time.monotonic() + 60
        while len(admin.describe_topics([topic])[0]["partitions"]) < 3:
            assert time.monotonic() < deadline
        assert admin.describe_cluster()["brokers"]
        admin.delete_topics([topic])
    finally:
        admin.close()


def test_aiokafka_admin(bootstrap, topic_name):
    topic = topic_name()

    async def tour():
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioTopic(topic, 2, 1)])
            deadline = time.monotonic() + 60
            while topic not in await admin.list_topics():
                assert time.monotonic() < deadline
            await admin.create_partitions({topic: AioPartitions(4)})
            while len((await admin.describe_topics([topic]))[0]["partitions"]) < 4:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            assert (await admin.describe_cluster())["brokers"]
            await admin.delete_topics([topic])
        finally:
            await admin.close()

    run(tour())


def test_kcat_lists_topics(bootstrap, make_topic):
    topic = make_topic(3)
    assert f'topic "{topic}" with 3 partitions' in Kcat(bootstrap).run("-L", "-t", topic)


JAVA_TOUR = {
    "controller": "true",
    "cluster id": "true",
    "validated": "done",
    "absent": "UnknownTopicOrPartitionException",
    "created": "done",
    "created again": "TopicExistsException",
    "illegal name": "InvalidTopicException",
    "no partitions": "InvalidPartitionsException",
    "bad config": "InvalidConfigurationException",
    "listed": "true",
    "partitions": "2",
    "by id": "true",
    "leader": "true",
    "retention.ms": "86400000",
    "cleanup.policy": "delete",
    "altered": "123456",
    "reset": "604800000",
    "refused": "InvalidConfigurationException",
    "more partitions": "done",
    "partitions now": "5",
    "same id": "true",
    "fewer partitions": "InvalidPartitionsException",
    "earliest": "0",
    "latest": "0",
    "max timestamp": "-1",
    "for timestamp": "-1",
    "deleted records": "true",
    "records out of range": "OffsetOutOfRangeException",
    "replicas in log dirs": "5",
    "elected": "ElectionNotNeededException",
    "reassignments": "0",
    "reassigned to where it is": "done",
    "reassigned to a stranger": "InvalidReplicaAssignmentException",
    "producers": "0",
    "transactions": "0",
    "ACLs": "SecurityDisabledException",
    "quotas": "0",
    "credentials": "0",
    "listed configs": "true",
    "features updated": "done",
    "broker configs": "true",
    "deleted": "done",
    "deleted again": "UnknownTopicOrPartitionException",
    "created anew": "done",
    "another id": "true",
    "deleted for good": "done",
}


def test_java_admin(bootstrap, topic_name):
    lines = Java(bootstrap).run("AdminTour", topic_name())
    nodes = {"nodes": str(len(bootstrap.split(",")))}
    assert dict(line.split("=", 1) for line in lines) == JAVA_TOUR | nodes
