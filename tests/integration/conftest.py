"""One server for all client tests: a broker, or with DRAY_TEST_TARGET=kafka Apache Kafka, or with
DRAY_TEST_TARGET=cluster three brokers on Oxia and S3.

Against Kafka the tests prove themselves: what it does not do, we must not ask of Dray. On a cluster, those
that are about something else are left out (`left_out.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.left_out import why_left_out
from tests.services.dray import DrayProcess
from tests.services.servers import Server, new_server
from tests.services.target import ON_CLUSTER
from tests.services.topics import TopicMaker, create_topic

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skipped, and not deselected: the reason is in the report of the run."""
    for item in items if ON_CLUSTER else ():
        if item.path.parent == HERE and (reason := why_left_out(item.path.stem, item.name)):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def no_turn_is_long() -> Iterator[None]:
    """No request may hold the event loop of a broker for more than 100 ms of processor time. (By the clock on
    the wall these machines say nothing.) What a broker does while it starts does not count."""
    yield
    held_up = DrayProcess.held_up()
    assert not held_up, "\n".join(held_up)


@pytest.fixture(scope="session")
def server_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture(scope="session")
def bootstrap(server_of_all: Server) -> str:
    """The addresses of all brokers, as clients are given them."""
    return server_of_all.bootstrap


@pytest.fixture(scope="session")
def first_broker(bootstrap: str) -> str:
    """For those who talk to one broker and no other."""
    return bootstrap.partition(",")[0]


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
