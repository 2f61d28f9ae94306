"""The server that a test runs against (`tests.services.target`): one broker, Apache Kafka, or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.services.cluster import Cluster
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.target import ON_CLUSTER, ON_KAFKA

Server = DrayProcess | KafkaProcess | Cluster


def new_server(directory: Path, settings: Mapping[str, str] | None = None) -> Server:
    """One that is not started yet. `settings` are Dray's."""
    if ON_KAFKA:
        require_kafka_jars()
        return KafkaProcess(directory)
    if ON_CLUSTER:
        return Cluster(directory, settings)
    return DrayProcess(directory, settings=settings, arguments=["--broker-id", "1"])
