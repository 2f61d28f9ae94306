"""A store that answers badly once, and clients of Kafka that must not notice: a real S3 server, a proxy
before it that lies, and a broker that reads every record from there."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.services.clients import CLIENTS, Message
from tests.services.dray import DrayProcess
from tests.services.kafka_tools import KafkaTools
from tests.services.marks import longer
from tests.services.remote import s3_settings
from tests.services.s3 import S3Process
from tests.services.s3_proxy import (
    BARE_MISSING,
    MISSING,
    Answer,
    Bent,
    Cut,
    Fault,
    Request,
    S3Proxy,
    Silence,
    s3_proxy,
)
from tests.services.topics import create_topic

TOPIC = "bent"
RECORDS = 20
TIME = 1_700_000_000_000

BAD: list[Fault] = [MISSING, BARE_MISSING, Bent.FLIPPED, Bent.SHORT, Bent.TORN, Bent.CHUNKED, Cut(after=True)]
REFUSED: list[Fault] = [
    Bent.OTHER_RANGE,
    Bent.WHOLE,
    Bent.ENDLESS,
    Answer("403 Forbidden", "KMS.DisabledException"),
    Answer("404 Not Found", "NoSuchBucket"),
]
"""The store's client sees that these are no good."""
ALONE: dict[str, Fault] = {f"bent-{number}": fault for number, fault in enumerate(BAD + REFUSED)}
"""A topic for each, with one record."""


def reads_records(request: Request) -> bool:
    return request.method == "GET" and "/wal/" in request.target


def messages() -> list[Message]:
    return [Message(None, b"%d" % n * 100, timestamp=TIME + n) for n in range(RECORDS)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def written(server: S3Process, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a broker needs to serve records that are in objects, each in one of its own, and nowhere else."""
    directory = tmp_path_factory.mktemp("writer")
    settings = s3_settings(server, "bent") | {"DRAY_LOG__CARRY_BYTES": "0", "DRAY_LOG__TAIL_CACHE_BYTES": "0"}
    with DrayProcess(directory, settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for topic in (TOPIC, *ALONE):
            create_topic(broker.bootstrap, topic, 1)
            for message in messages() if topic == TOPIC else messages()[:1]:
                producer.produce(topic, message.value, timestamp=message.timestamp)
                assert producer.flush(60) == 0
    return settings | {"directory": str(directory)}


@pytest.fixture
async def proxy(server: S3Process) -> AsyncIterator[S3Proxy]:
    async with s3_proxy(server.port) as proxy:
        proxy.matches = reads_records
        yield proxy


@pytest.fixture
async def broker(written: dict[str, str], proxy: S3Proxy, tmp_path: Path) -> AsyncIterator[DrayProcess]:
    """One that has read nothing yet."""
    settings = {name: value for name, value in written.items() if name != "directory"}
    settings["DRAY_OBJECTS__OPTIONS__ENDPOINT"] = proxy.endpoint
    # What is bad for long is called corrupt; how long that is must not depend on the machine of the tests.
    settings["DRAY_TEST_KNOB__LOG__DOUBT_SECONDS"] = "600"
    data = Path(written["directory"]) / "data"
    broker = DrayProcess(tmp_path, data_directory=data, settings=settings)
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.terminate)


@contextmanager
def reading(client: str, bootstrap: str) -> Iterator[Callable[[str], list[bytes | None]]]:
    """What a client finds in a topic of one record."""
    if client != "console-consumer":
        yield lambda topic: [message.value for message in CLIENTS[client](bootstrap).fetch(topic, 1)]
        return
    with KafkaTools(bootstrap) as tools:
        asked = ("--partition", "0", "--offset", "earliest", "--max-messages", "1", "--timeout-ms", "60000")

        def found(topic: str) -> list[bytes | None]:
            said = tools.run("kafka-console-consumer", "--topic", topic, *asked)
            assert "ERROR" not in said.text, said.text
            return [line.encode() for line in said.lines if line.isdigit()]

        yield found


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "console-consumer"])
async def test_no_client_notices_one_bad_answer(broker: DrayProcess, proxy: S3Proxy, client: str) -> None:
    """Each kind alone, in answer to the one read that the client waits for. Java's ended with "Encountered
    corrupt message when fetching offset 0"."""
    with reading(client, broker.bootstrap) as read:
        for topic, fault in ALONE.items():
            proxy.faults.append(fault)
            assert await asyncio.to_thread(read, topic) == [messages()[0].value], fault
            assert not proxy.faults, "nobody met it"


@pytest.mark.parametrize("fault", [*BAD, *map(longer, REFUSED)], ids=str)
async def test_nor_one_that_looks_for_an_offset(broker: DrayProcess, proxy: S3Proxy, fault: Fault) -> None:
    proxy.faults.append(fault)

    def looked_up() -> list[TopicPartition]:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
        try:
            return consumer.offsets_for_times([TopicPartition(TOPIC, 0, TIME + 7)], timeout=60)
        finally:
            consumer.close()

    [found] = await asyncio.to_thread(looked_up)
    assert (found.error, found.offset) == (None, 7)
    assert not proxy.faults


@pytest.mark.parametrize("client", [longer("confluent"), longer("kafka-python"), "java"])
@pytest.mark.parametrize(
    ("fault", "reads"),
    [(MISSING, RECORDS + 6), (Bent.FLIPPED, 3 * RECORDS + 3), longer(Bent.SHORT, 3 * RECORDS + 3)],
    ids=str,
)
async def test_clients_wait_while_a_store_lies(
    broker: DrayProcess, proxy: S3Proxy, client: str, fault: Fault, reads: int
) -> None:
    """They ask again, at least twice, and go on when it says the truth."""
    proxy.always = fault
    fetching = asyncio.create_task(asyncio.to_thread(CLIENTS[client](broker.bootstrap).fetch, TOPIC, RECORDS))
    while sum(map(reads_records, proxy.requests)) < reads:
        assert not fetching.done(), "it gave up, or was told something else"
        await asyncio.sleep(0.05)
    proxy.always = None
    assert len(await fetching) == RECORDS


@pytest.mark.soak
async def test_producers_hardly_notice_requests_that_hang(broker: DrayProcess, proxy: S3Proxy) -> None:
    """One in fifty for ever, and then all of them for a while."""
    numbers = itertools.count(1)
    proxy.matches = lambda _: next(numbers) % 50 == 0
    proxy.always = Silence()
    gap = await asyncio.to_thread(longest_gap, broker.bootstrap, 600)
    assert next(numbers) > 500, "each record is an object"
    assert gap < 2.0
    proxy.matches = lambda _: True
    producing = asyncio.create_task(asyncio.to_thread(longest_gap, broker.bootstrap, 1))
    await asyncio.sleep(20)
    assert not producing.done()
    proxy.always = None
    began = asyncio.get_running_loop().time()
    await producing
    assert asyncio.get_running_loop().time() - began < 2.0


def longest_gap(bootstrap: str, records: int) -> float:
    """Seconds between acknowledgements of records that are sent one by one."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})
    longest = 0.0
    for number in range(records):
        began = time.monotonic()
        producer.produce("gaps", b"%d" % number * 1000)
        assert producer.flush(120) == 0
        longest = max(longest, time.monotonic() - began) if number else longest
    return longest
