"""The two brokers of the golden cases, with the same settings: small timeouts, so that cases can wait for
them, and small groups, so that they can be full."""

from __future__ import annotations

from pathlib import Path

from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess

KAFKA_SETTINGS = {
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": "120000",
    "group.max.size": "4",
    "group.consumer.max.size": "4",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    # Dray converts groups only while they are empty.
    "group.consumer.migration.policy": "disabled",
    "offsets.topic.num.partitions": "1",
}

DRAY_SETTINGS = {
    "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "500ms",
    "DRAY_TEST_KNOB__GROUPS__MIN_SESSION_TIMEOUT": "1.0",
    "DRAY_TEST_KNOB__GROUPS__MAX_SESSION_TIMEOUT": "120.0",
    "DRAY_TEST_KNOB__GROUPS__MAX_SIZE": "4",
    "DRAY_GROUPS__CONSUMER_SESSION_TIMEOUT": "6s",
    "DRAY_TEST_KNOB__GROUPS__CONSUMER_HEARTBEAT_INTERVAL": "1.0",
}


def golden_kafka(directory: Path) -> KafkaProcess:
    return KafkaProcess(directory, KAFKA_SETTINGS)


def golden_dray(directory: Path) -> DrayProcess:
    return DrayProcess(directory, settings=DRAY_SETTINGS, arguments=["--broker-id", "1"])
