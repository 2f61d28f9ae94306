"""One server for all client tests: a broker, or with DRAY_TEST_TARGET=kafka Apache Kafka, or with
DRAY_TEST_TARGET=cluster three brokers on Oxia and S3.

Against Kafka the tests prove themselves: what it does not do, we must not ask of Dray. On a cluster, those
that are about something else are left out (`tests/integration/left_out.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.dray import DrayProcess
from tests.services.servers import Server, new_server
from tests.services.turns import ALLOWED_SECONDS, too_long


@pytest.fixture(autouse=True)
def no_turn_is_long(request: pytest.FixtureRequest) -> Iterator[None]:
    """No request may hold the event loop of a broker for long, in processor time. (By the clock on the wall
    these machines say nothing.) What a broker does while it starts does not count. A module may have
    closer bounds for its tests, `LONGEST_TURNS`."""
    yield
    closer = getattr(request.module, "LONGEST_TURNS", {})
    allowed = closer.get(request.function.__name__, ALLOWED_SECONDS)
    held_up = too_long(DrayProcess.held_up(), allowed=allowed)
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
    """For tests that talk to one broker and no other."""
    return bootstrap.partition(",")[0]
