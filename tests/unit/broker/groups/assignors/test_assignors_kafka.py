"""The same groups as Kafka's assignors were asked about: the same targets, partition by partition.

`tests/referee/assignors` asked Apache Kafka 4.2.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dray.broker.groups.assignors import ASSIGNORS, NOTHING, Assignment, MemberSubscription

RESULTS = json.loads((Path(__file__).parents[4] / "fixtures" / "assignors" / "results.json").read_text())


def topic_id(text: str) -> UUID:
    high, low = (int(half) % 2**64 for half in text.split("/"))
    return UUID(int=high << 64 | low)


@pytest.mark.parametrize("life", RESULTS, ids=range(len(RESULTS)))
def test_the_targets_are_kafkas(life: dict[str, Any]) -> None:
    ids = [topic_id(text) for text in life["ids"]]

    def assignment(target: dict[str, list[int]]) -> Assignment:
        return {ids[int(topic)]: frozenset(partitions) for topic, partitions in target.items()}

    previous: dict[str, Assignment] = {}
    for number, step in enumerate(life["steps"]):
        members = {
            name: MemberSubscription(
                frozenset(ids[topic] for topic in asked), instance, None, previous.get(name, NOTHING)
            )
            for name, (instance, asked) in step["members"].items()
        }
        topics = dict(zip(ids, step["counts"], strict=True))
        targets = ASSIGNORS[life["assignor"]](members, topics, same_subscription=life["same"])
        previous = {name: assignment(target) for name, target in step["targets"].items()}
        assert targets == previous, f"step {number}"
