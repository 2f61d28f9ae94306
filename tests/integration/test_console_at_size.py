"""The console beside much: ten thousand topics and groups, and brokers that come first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.services.browser import running_browser
from tests.services.console import BrokerWithConsole, answer_of
from tests.services.dray import DrayProcess

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MANY = 10_000
PAGE_SECONDS = 1.0


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
    others = [line for line in DrayProcess.held_up() if "kafka/protocol/messages/metadata.py" not in line]
    assert not others
