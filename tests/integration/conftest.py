"""One broker for all client tests: Dray, or with DRAY_TEST_TARGET=kafka Apache Kafka.

Against Kafka the tests prove themselves: what it does not do, we must not ask of Dray.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.topics import create_topic

TARGET = os.environ.get("DRAY_TEST_TARGET", "dray")

TopicMaker = Callable[..., str]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrayProcess | KafkaProcess]:
    directory = tmp_path_factory.mktemp("broker")
    if TARGET == "kafka":
        require_kafka_jars()
        server: DrayProcess | KafkaProcess = KafkaProcess(directory)
    else:
        server = DrayProcess(directory, arguments=["--broker-id", "1"])
    with server:
        yield server


@pytest.fixture(scope="session")
def bootstrap(broker: DrayProcess | KafkaProcess) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def topic_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest, topic_numbers: Iterator[int]) -> Callable[[], str]:
    """A fresh name, telling which test it belongs to."""
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]
    return lambda: f"{test}-{next(topic_numbers)}"


@pytest.fixture
def make_topic(bootstrap: str, topic_name: Callable[[], str]) -> TopicMaker:
    """A fresh topic: make_topic(partitions, **{"config.name": "value"}) gives its name."""

    def make(partitions: int = 1, **config: str) -> str:
        name = topic_name()
        create_topic(bootstrap, name, partitions, config)
        return name

    return make
