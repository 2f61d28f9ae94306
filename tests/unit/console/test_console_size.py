"""Ten thousand topics and ten thousand groups: what a page asks of the brokers, and what it sends."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.base.runtime import SystemRuntime
from dray.inspection.brokers import Brokers
from dray.inspection.groups.views import PAGE, groups_page
from dray.kafka.client import ClientError
from dray.kafka.protocol import ErrorCode

MANY = 10_000


@pytest.fixture(scope="module")
def kafka() -> FakeKafka:
    shared = FakePartition()
    shared.produce(3)
    found = FakeKafka({f"topic-{number:05}": [shared] for number in range(MANY)})
    found.groups = {f"group-{number:05}": {(f"topic-{number:05}", 0): 1} for number in range(MANY)}
    return found


def requests(kafka: FakeKafka) -> Counter[str]:
    return Counter(type(message).__name__.removesuffix("Request") for message in kafka.asked)


@pytest.mark.parametrize(
    ("address", "most"),
    [
        ("/", 6),
        ("/topics", 8),
        ("/topics?page=150", 8),
        ("/topics?filter=099", 8),
        ("/topics/topic-00007", 12),
        ("/topics/topic-00007/groups", 12),
        ("/topics/topic-00007/settings", 8),
        ("/groups", 8),
        ("/groups?page=150", 8),
        ("/groups?filter=099", 8),
        ("/groups/group-00007", 14),
        ("/groups/group-00007/reset?to=latest", 16),
    ],
)
async def test_a_page_costs_a_few_requests_and_is_small(kafka: FakeKafka, address: str, most: int) -> None:
    kafka.asked.clear()
    client = ConsoleClient(kafka, writable=True)
    answer = await client.get(address)
    assert answer.status == 200
    assert len(kafka.asked) <= most, requests(kafka)
    assert len(answer.body) < 100_000


async def test_offsets_of_a_page_of_groups_are_one_request(kafka: FakeKafka) -> None:
    kafka.asked.clear()
    page = await groups_page(FakeBrokers(kafka), page=3)
    assert len(page.rows) == PAGE
    assert {row.lag for row in page.rows} == {2}
    asked = requests(kafka)
    assert (asked["FindCoordinator"], asked["OffsetFetch"]) == (1, 1)


async def test_a_group_that_moves_is_asked_for_alone() -> None:
    partition = FakePartition()
    partition.produce(3)
    kafka = FakeKafka({"t": [partition]})
    kafka.groups = {"a": {("t", 0): 1}, "b": {("t", 0): 2}}
    kafka.group_errors["b"] = ErrorCode.NOT_COORDINATOR

    asked = 0
    answer = kafka._offsets_of

    def moved_by_then(group_id: str) -> object:
        nonlocal asked
        asked += 1
        if asked > 2:
            kafka.group_errors.clear()
        return answer(group_id)

    kafka._offsets_of = moved_by_then  # type: ignore[method-assign,assignment]
    page = await groups_page(FakeBrokers(kafka))
    assert [(row.name, row.lag, row.trouble) for row in page.rows] == [("a", 2, None), ("b", 1, None)]


class SlowList:
    """A list that takes so long to be asked for: how often it was."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._seconds = seconds
        self._asked = 0
        self.brokers = FakeBrokers(FakeKafka())
        self.brokers.runtime.monotonic = lambda: self.now  # type: ignore[method-assign]

    async def look(self) -> int:
        return await self.brokers.recall("x", self._ask)

    async def _ask(self) -> int:
        self._asked += 1
        self.now += self._seconds
        return self._asked


async def test_a_list_that_took_long_is_good_for_longer() -> None:
    slow = SlowList(0.3)
    assert await slow.look() == 1
    slow.now += 5.9
    assert await slow.look() == 1
    slow.now += 0.2
    assert await slow.look() == 2


async def test_a_list_that_is_there_at_once_is_asked_for_each_time() -> None:
    quick = SlowList(0.0)
    assert [await quick.look(), await quick.look()] == [1, 2]


async def test_no_list_is_good_for_ever() -> None:
    slow = SlowList(60.0)
    assert await slow.look() == 1
    slow.now += 10.1
    assert await slow.look() == 2


@pytest.mark.parametrize("how", ["fresh", "own_cluster"])
async def test_what_is_changed_from_here_is_seen_at_once(how: str) -> None:
    """Whatever changes something goes over one of these."""
    brokers = Brokers([("127.0.0.1", 1)], SystemRuntime())
    brokers.runtime.monotonic = lambda: 0.0  # type: ignore[method-assign]
    answers = iter((1, 2))

    async def ask() -> int:
        return next(answers)

    assert await brokers.recall("x", ask) == 1
    brokers._lists["x"].until = 1.0
    assert await brokers.recall("x", ask) == 1
    with suppress(ClientError):
        async with brokers.fresh(("127.0.0.1", 1)) if how == "fresh" else brokers.own_cluster():
            pass
    assert await brokers.recall("x", ask) == 2
