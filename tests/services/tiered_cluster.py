"""Three nodes of Apache Kafka that tier into one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.services.kafka import JVM_OPTIONS
from tests.services.maven import KAFKA_VERSION
from tests.services.process import free_port
from tests.services.tiered_history import wait_for
from tests.services.tiered_kafka import TieredKafka

KAFKA_3 = "3.9.1"
VERSIONS = (KAFKA_3, KAFKA_VERSION)
START_SECONDS = 180.0

_SMALL_HEAP = ("-Xmx384m", "-Xms128m")


class _Node(TieredKafka):
    def _java(self, main: str, arguments: Sequence[str], options: Sequence[str] = JVM_OPTIONS) -> list[str]:
        if options is JVM_OPTIONS:
            options = (*_SMALL_HEAP, *(each for each in options if not each.startswith(("-Xmx", "-Xms"))))
        return super()._java(main, arguments, options)


class TieredCluster:
    """Node 1 is the controller as well, so it is the others that may die. Local segments are deleted as soon
    as they are tiered, so that what clients read comes from the tier."""

    def __init__(
        self, directory: Path, version: str = KAFKA_VERSION, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.version = version
        self.tier = directory / "tier"
        controller_port = free_port()
        asked = {
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "500",
            "auto.create.topics.enable": "false",
            **(settings or {}),
        }
        self.nodes = {
            number: _Node(
                directory / f"node-{number}",
                asked,
                tier=self.tier,
                version=version,
                node=number,
                controller_port=controller_port,
            )
            for number in (1, 2, 3)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def logs(self, number: int) -> Path:
        return self.nodes[number].directory / "logs"

    def start(self) -> None:
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_until_ready(START_SECONDS)

    def until_complete(self, admin: AdminClient) -> None:
        """All nodes are registered, and the one that is asked has heard of it."""

        def is_complete() -> bool:
            try:
                return len(admin.list_topics(timeout=10).brokers) == len(self.nodes)
            except KafkaException:
                return False  # a broker that has just started says so

        wait_for("three brokers are registered", is_complete, START_SECONDS)

    def stop(self) -> None:
        """As an operator does: the controller goes last."""
        for number in (3, 2, 1):
            if self.nodes[number].alive:
                self.nodes[number].terminate(START_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
