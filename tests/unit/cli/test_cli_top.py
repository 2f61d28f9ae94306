"""The cluster in a terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.cli.commands.top import TopView, look, picture


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
    first = await look(brokers, 10, "")
    partition.produce(500)
    second = await look(brokers, 10, "")
    lines = shown(second, first, 2.0)
    assert lines[0] == "cluster fake-cluster 1 brokers 2 topics 3 partitions groups: 1 Empty"
    assert any(line.startswith("orders 2 1,500 250") for line in lines)
    assert "billing Empty classic 1,100" in lines
    assert any(line.startswith("[bold]\\x1b[31m 1 0") for line in lines), "names are text"
    assert any(line.startswith("orders 2 1,000 - ") for line in shown(first)), "a rate needs two looks"


async def test_only_what_is_asked_for_and_what_is_wrong() -> None:
    brokers = FakeBrokers(FakeKafka({f"topic-{n}": [FakePartition()] for n in range(30)}))
    view = await look(brokers, 5, "topic-2")
    assert [row.name for row in view.topics.rows] == [
        "topic-2",
        "topic-20",
        "topic-21",
        "topic-22",
        "topic-23",
    ]
    troubled = replace(view, cluster=replace(view.cluster, trouble=["3 partitions have no leader"]))
    assert "3 partitions have no leader" in shown(troubled)
