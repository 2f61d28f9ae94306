"""Real clients against the one server of `tests/services/fixtures.py`: topics, and no turn that is long."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from tests.services.fixtures import no_turn_is_long
from tests.services.topics import TopicMaker, create_topic

__all__ = ["no_turn_is_long"]


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
