"""Live views: where they begin, and what becomes of partitions that are added."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from tests.unit.console.console_client import Answer, ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeKafka, FakePartition

from dray.console import live
from dray.inspection.records.search import TailPiece


@pytest.fixture
def kafka() -> FakeKafka:
    partition = FakePartition()
    partition.produce(3)
    return FakeKafka({"t": [partition]})


def following(
    monkeypatch: pytest.MonkeyPatch, count: int, between: Callable[[], None] = lambda: None
) -> list[Mapping[int, int]]:
    """Pieces without records in place of the endless ones; where each view began."""
    begun: list[Mapping[int, int]] = []

    async def follow(_readers: Any, positions: Mapping[int, int], *_: Any) -> AsyncIterator[TailPiece]:
        begun.append(dict(positions))
        for _number in range(count):
            yield TailPiece([], positions)
            between()

    monkeypatch.setattr(live, "follow", follow)
    return begun


def pieces(answer: Answer) -> int:
    assert answer.status == 200
    return answer.text.count("\n:\n")


async def test_it_begins_at_the_end_and_says_where_that_is(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = following(monkeypatch, 1)
    answer = await ConsoleClient(kafka).get("/api/topics/t/tail")
    assert begun == [{0: 3}]
    assert json.loads(answer.text.partition("data: ")[2].partition("\n")[0]) == {"positions": {"0": 3}}


async def test_one_that_goes_on_starts_at_the_beginning_of_partitions_that_are_new(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = FakePartition(start=2)
    added.end = 2
    added.produce(5)
    kafka.topics["t"].append(added)
    begun = following(monkeypatch, 1)
    client = ConsoleClient(kafka)
    await client.get("/api/topics/t/tail", last_event_id="0:1")
    await client.get("/api/topics/t/tail?after=0:1")
    assert begun == [{0: 1, 1: 2}] * 2


async def test_it_ends_for_partitions_that_are_added_so_that_they_are_read_too(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PARTITIONS_SECONDS", 0.0)
    following(monkeypatch, 5, lambda: kafka.topics["t"].append(FakePartition()))
    client = ConsoleClient(kafka)
    assert pieces(await client.get("/api/topics/t/tail")) == 2
    following(monkeypatch, 5)
    assert pieces(await client.get("/api/topics/t/tail")) == 5, "none was added"
    following(monkeypatch, 5, lambda: kafka.topics["t"].append(FakePartition()))
    assert pieces(await client.get("/api/topics/t/tail?partition=0")) == 5, "only one is wanted"


async def test_what_only_a_script_can_do_waits_for_it(kafka: FakeKafka) -> None:
    """A click before the script has run would be lost: it enables what it serves."""
    client = ConsoleClient(kafka, writable=True)
    for address in ("/topics/t", "/topics/t/settings"):
        page = (await client.get(address)).text
        found = re.findall(
            r"<button type=\"button\"[^>]*data-(?:opens|tail|theme-toggle|time-toggle)[^>]*>", page
        )
        assert len(found) > 3
        assert all(" disabled" in button for button in found), found
