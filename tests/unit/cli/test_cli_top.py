"""The cluster in a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

from rich.console import Console
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.cli.commands.top import TopView, look, picture
from dray.inspection.groups.views import PARTITIONS, GroupAges


def shown(view: TopView, before: TopView | None = None, seconds: float = 0.0) -> list[str]:
    console = Console(width=140, no_color=True)
    with console.capture() as captured:
        console.print(picture(view, before, seconds))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


async def test_topics_with_their_traffic_and_groups_with_their_lag() -> None:
    partition = FakePartition()
    partition.produce(1000)
    kafka = FakeKafka({"orders": [partition, FakePartition()], "[bold]\x1b[31m": [FakePartition()]})
    kafka.groups = {"billing": {("orders", 0): 400}}
    brokers = FakeBrokers(kafka)
    ages = GroupAges(brokers)
    first = await look(brokers, ages, 10, "")
    partition.produce(500)
    second = await look(brokers, ages, 10, "")
    lines = shown(second, first, 2.0)
    assert lines[0] == "cluster fake-cluster 1 brokers 2 topics 3 partitions groups: 1 Empty"
    assert any(line.startswith("orders 2 1,500 250") for line in lines)
    assert any(re.fullmatch(r"billing Empty classic 1,100 [\d,]+\.\d", line) for line in lines)
    assert any(line.startswith("[bold]\\x1b[31m 1 0") for line in lines), "names are text"
    assert any(line.startswith("orders 2 1,000 - ") for line in shown(first)), "a rate needs two looks"


async def test_only_what_is_asked_for_and_what_is_wrong() -> None:
    brokers = FakeBrokers(FakeKafka({f"topic-{n}": [FakePartition()] for n in range(30)}))
    view = await look(brokers, GroupAges(brokers), 5, "topic-2")
    assert [row.name for row in view.topics.rows] == [
        "topic-2",
        "topic-20",
        "topic-21",
        "topic-22",
        "topic-23",
    ]
    troubled = replace(view, cluster=replace(view.cluster, trouble=["3 partitions have no leader"]))
    assert "3 partitions have no leader" in shown(troubled)


async def test_the_age_of_what_a_group_has_not_read() -> None:
    behind, read = FakePartition(), FakePartition()
    behind.produce(10)
    read.produce(4)
    kafka = FakeKafka({"orders": [behind, read]})
    kafka.groups = {"lags": {("orders", 0): 7, ("orders", 1): 4}, "reads": {("orders", 1): 4}, "new": {}}
    brokers = FakeBrokers(kafka)
    ages = GroupAges(brokers)
    brokers.runtime.wall_ms = lambda: 5_007  # type: ignore[method-assign]  # the record at offset 7 is of time 7
    assert await ages.look(["lags", "reads", "new"]) == {"lags": 5_000, "reads": 0}
    fetched = kafka.fetches
    assert fetched == 1, "of what is read there is nothing to fetch"
    assert await ages.look(["lags", "reads", "new"]) == {"lags": 5_000, "reads": 0}
    assert kafka.fetches == fetched, "a group that has not moved costs no fetch"


async def test_of_a_group_with_many_partitions_those_that_lag_most_are_looked_at() -> None:
    partitions = [FakePartition() for _ in range(20)]
    for number, partition in enumerate(partitions):
        partition.produce(number + 1)
    kafka = FakeKafka({"orders": partitions})
    kafka.groups = {"lags": {("orders", number): 0 for number in range(20)}}
    assert "lags" in await GroupAges(FakeBrokers(kafka)).look(["lags"])
    assert kafka.fetches == PARTITIONS
