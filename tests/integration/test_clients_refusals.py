"""What is refused on purpose: real clients stop, and say what is wrong (`docs/design/0070`)."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from tests.services.clients import CLIENTS
from tests.services.clients.go_client import FranzGo, Sarama
from tests.services.target import ON_KAFKA

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="Kafka has transactions")

REASON = "does not support transactions"
PATIENCE = 60.0
"""A client that asks on and on ends with a timeout, and fails the test by what it says then."""


def test_librdkafka_is_stopped_with_the_reason(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(PATIENCE)
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    assert error.fatal()
    assert REASON in error.str()


def test_java_is_stopped_with_the_reason(bootstrap: str) -> None:
    [line] = CLIENTS["java"](bootstrap).run("BeginTransactions", "t")  # type: ignore[attr-defined]
    assert line.startswith("KafkaException: ")
    assert REASON in line


def test_kafka_python_is_stopped_by_what_is_no_matter_of_rights(bootstrap: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id="t", max_block_ms=int(PATIENCE * 1000)
    )
    try:
        with pytest.raises(PythonKafkaError, match="UnsupportedVersion"):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


async def test_aiokafka_is_stopped_by_what_is_no_matter_of_rights(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
    try:
        with pytest.raises(AioKafkaError, match="UnsupportedVersion"):
            await asyncio.wait_for(producer.start(), PATIENCE)
    finally:
        await producer.stop()


def test_franz_go_is_stopped_by_what_is_no_matter_of_rights(bootstrap: str) -> None:
    [line] = FranzGo(bootstrap).run("transact", "t")
    assert "UNSUPPORTED_VERSION" in line


def test_sarama_is_stopped_by_what_is_no_matter_of_rights(bootstrap: str) -> None:
    """After 5 s: it tries again fifty times, whatever it is told."""
    [line] = Sarama(bootstrap).run("transact", "t")
    assert "version of API is not supported" in line
