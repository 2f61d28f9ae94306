"""The console beside much: ten thousand topics and groups, and a producer that does not want to wait."""

from __future__ import annotations

import asyncio
import re
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from tests.services.browser import running_browser
from tests.services.console import BrokerWithConsole, answer_of
from tests.services.dray import DrayProcess

from dray.client import KafkaConnection
from dray.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.protocol.messages.metadata import MetadataRequest
from dray.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MANY = 10_000
PAGE_SECONDS = 1.0
ROUNDS = 8
ROUND_SECONDS = 5.0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[BrokerWithConsole]:
    with BrokerWithConsole(tmp_path) as process:
        yield process


def test_the_console_lets_brokers_have_the_processor(up: BrokerWithConsole) -> None:
    children = psutil.Process(up.pid).children(recursive=True)
    [console] = [child for child in children if "console" in child.cmdline()]
    assert console.nice() > psutil.Process(up.pid).nice()


# --- many topics and groups


async def fill(port: int) -> None:
    async with await KafkaConnection.connect("127.0.0.1", port) as connection:
        await connection.negotiate()
        for first in range(0, MANY, 500):
            topics = [
                CreatableTopic(name=f"topic-{number:05}", num_partitions=1, replication_factor=-1)
                for number in range(first, first + 500)
            ]
            created = await connection.request(CreateTopicsRequest(topics=topics, timeout_ms=60_000))
            assert {topic.error_code for topic in created.topics} == {0}
        metadata = await connection.request(MetadataRequest(topics=None))
        ids = {topic.name or "": topic.topic_id for topic in metadata.topics}
        gate = asyncio.Semaphore(32)

        async def commit(number: int) -> None:
            name = f"topic-{number:05}"
            place = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
            topic = OffsetCommitRequestTopic(name=name, topic_id=ids[name], partitions=[place])
            async with gate:
                answer = await connection.request(
                    OffsetCommitRequest(group_id=f"group-{number:05}", topics=[topic])
                )
            assert answer.topics[0].partitions[0].error_code == 0

        await asyncio.gather(*(commit(number) for number in range(MANY)))


PAGES = (
    "/",
    "/topics",
    "/topics?page=150",
    "/topics?filter=099",
    "/topics/topic-00007",
    "/topics/topic-00007/groups",
    "/topics/topic-00007/map",
    "/topics/topic-00007/settings",
    "/topics/topic-00007/compact",
    "/groups",
    "/groups?page=150",
    "/groups?filter=099",
    "/groups/group-00007",
    "/groups/group-00007/reset?to=latest",
    "/stores",
)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_page_within_a_second(up: BrokerWithConsole) -> None:
    """From the server, and in a browser until it is drawn."""
    asyncio.run(fill(up.port))
    answer_of(f"{up.console}/")  # the first page loads templates
    slow: dict[str, float] = {}
    for page in PAGES:
        began = time.monotonic()
        status, _ = answer_of(f"{up.console}{page}")
        taken = time.monotonic() - began
        assert status == 200, page
        if taken > PAGE_SECONDS:
            slow[page] = taken
    with running_browser() as browser:
        tab = browser.new_page()
        for page in PAGES:
            began = time.monotonic()
            tab.goto(f"{up.console}{page}", wait_until="load")
            taken = time.monotonic() - began
            if taken > PAGE_SECONDS:
                slow[f"{page} in a browser"] = taken
    assert not slow
    # Encoding the metadata of ten thousand topics takes a broker about 100 ms, whoever asks (0092).
    others = [line for line in DrayProcess.held_up() if "protocol/messages/metadata.py" not in line]
    assert not others


# --- a search beside a producer


class Load:
    """A record every few milliseconds, and how long each took to be acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})

    def p99(self, seconds: float) -> float:
        taken: list[float] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()

            def done(error: Any, _: Any, began: float = began) -> None:
                assert error is None
                taken.append(time.monotonic() - began)

            self._producer.produce("live", b"x" * 200, on_delivery=done)
            self._producer.poll(0.005)
        assert self._producer.flush(60) == 0
        return statistics.quantiles(taken, n=100)[98]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_full_search_leaves_producers_alone(up: BrokerWithConsole) -> None:
    """Rounds with and without a search take turns: what else the machine does is in both. A ratio of
    medians, with room for the noise of a machine that tests share."""
    history = Producer({"bootstrap.servers": up.bootstrap, "linger.ms": 20})
    for number in range(400_000):
        history.produce("history", f"value {number} ".encode() * 8, str(number))
        if number % 1000 == 0:
            history.poll(0)
    assert history.flush(120) == 0
    load = Load(up.bootstrap)
    load.p99(2.0)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(ROUNDS):
        alone.append(load.p99(ROUND_SECONDS))
        searching = threading.Event()
        pages: list[bytes] = []

        def search(searching: threading.Event = searching, pages: list[bytes] = pages) -> None:
            while not searching.is_set():
                pages.append(answer_of(f"{up.console}/topics/history?start=oldest&text=not+to+be+found")[1])

        thread = threading.Thread(target=search)
        thread.start()
        beside.append(load.p99(ROUND_SECONDS))
        searching.set()
        thread.join()
        assert pages
        assert all(re.search(rb"400,000|400\xe2\x80\xaf000|looked", page) for page in pages)
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"p99 beside a search / alone: {ratio:.3f}")
    assert ratio < 1.25, f"p99 alone {alone}, beside a search {beside}"
