"""kill -9 at any moment: what was acknowledged is there, once per acknowledgement, in order."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Report
from tests.services.batches import batch
from tests.services.dray import DrayProcess
from tests.services.logbook import read_partition
from tests.services.marks import longer
from tests.services.servers import Server, new_server
from tests.services.target import ON_KAFKA
from tests.services.topics import create_topic

from dray.kafka.client import ClientError, KafkaConnection
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = 3
TOPIC = "killed"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, with a topic."""
    with new_server(tmp_path) as started:
        make_topic(started.bootstrap, PARTITIONS)
        yield started


def make_topic(bootstrap: str, partitions: int) -> None:
    create_topic(bootstrap, TOPIC, partitions)


class Sender:
    """A producer in a thread of its own that counts upwards, number n to partition n % PARTITIONS."""

    def __init__(self, bootstrap: str, name: str, idempotent: bool) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.failed: dict[int, KafkaError] = {}
        self._stop = threading.Event()
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": 50,
            "queue.buffering.max.messages": 2000,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
        if not idempotent:
            # Sent once, so stored at most once: each acknowledgement then stands for exactly one record.
            settings["message.send.max.retries"] = 0
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                break
            while True:
                try:
                    self._producer.produce(
                        TOPIC,
                        value_of(self.name, number),
                        partition=number % PARTITIONS,
                        on_delivery=self._on_delivery(number),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self.sent = number + 1
            self._producer.poll(0)
        self._producer.flush(90)

    def _on_delivery(self, number: int) -> Callable[[KafkaError | None, Report], None]:
        def delivered(error: KafkaError | None, report: Report) -> None:
            if error is None:
                offset = report.offset()
                self.acknowledged[number] = -1 if offset is None else offset
            else:
                self.failed[number] = error

        return delivered

    def wait_for_acknowledgements(self, more: int, timeout: float = 60.0) -> None:
        """Progress since now: a broker that does not come back is a failure, not a slow test."""
        target = len(self.acknowledged) + more
        deadline = time.monotonic() + timeout
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline, f"{self.name}: nothing is acknowledged any more"
            assert self._thread.is_alive()
            time.sleep(0.005)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever became of the test: no thread outlives it."""
        self._stop.set()
        self._producer.purge()
        self._thread.join(100)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(100)
        assert not self._thread.is_alive()
        assert len(self.acknowledged) + len(self.failed) == self.sent


def value_of(name: str, number: int) -> bytes:
    return b"%s:%d:" % (name.encode(), number) + b"." * 200


def number_of(value: bytes) -> tuple[str, int]:
    name, number, _ = value.split(b":", 2)
    return name.decode(), int(number)


def kill_and_restart(server: Server, sender: Sender, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(rounds):
        sender.wait_for_acknowledgements(chance.randint(1, 400))
        # Right after an acknowledgement is no random moment: let the broker get into the middle of something.
        time.sleep(chance.uniform(0, 0.1))
        server.kill()
        server.start()
    sender.wait_for_acknowledgements(100)
    sender.finish()


def check_idempotent(server: Server, sender: Sender) -> None:
    """Everything sent is there exactly once and in order."""
    assert sender.failed == {}
    for partition in range(PARTITIONS):
        numbers = [number_of(value)[1] for value in read_partition(server.bootstrap, TOPIC, partition)]
        assert numbers == list(range(partition, sender.sent, PARTITIONS))
        for offset, number in enumerate(numbers):
            assert sender.acknowledged[number] in (offset, -1)


def check_plain(server: Server, sender: Sender) -> None:
    """Everything acknowledged is where the acknowledgement said, nothing is there twice."""
    for partition in range(PARTITIONS):
        numbers = [number_of(value)[1] for value in read_partition(server.bootstrap, TOPIC, partition)]
        assert max(Counter(numbers).values()) == 1
        acknowledged = {n: o for n, o in sender.acknowledged.items() if n % PARTITIONS == partition}
        found = {number: offset for offset, number in enumerate(numbers) if number in acknowledged}
        assert found == acknowledged
        unacknowledged = set(numbers) - set(acknowledged)
        assert unacknowledged <= set(sender.failed)
    assert sender.acknowledged


@pytest.mark.parametrize("seed", [1, longer(2)])
def test_idempotent_producers_lose_and_repeat_nothing(seed, server):
    with Sender(server.bootstrap, "idempotent", idempotent=True) as sender:
        kill_and_restart(server, sender, rounds=6, seed=seed)
    check_idempotent(server, sender)


@pytest.mark.parametrize("seed", [3, longer(4)])
def test_acknowledged_records_are_there_once(seed, server):
    with Sender(server.bootstrap, "plain", idempotent=False) as sender:
        kill_and_restart(server, sender, rounds=6, seed=seed)
    check_plain(server, sender)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_kills(seed, idempotent, server):
    with Sender(server.bootstrap, "soak", idempotent=idempotent) as sender:
        kill_and_restart(server, sender, rounds=100, seed=seed)
    (check_idempotent if idempotent else check_plain)(server, sender)


def test_a_kill_while_starting_harms_nothing(server):
    """Start-up reads, recovers and registers: none of it may be half done for ever."""
    chance = random.Random(5)
    with Sender(server.bootstrap, "idempotent", idempotent=True) as sender:
        sender.wait_for_acknowledgements(300)
        for _ in range(8):
            server.kill()
            server.spawn()
            time.sleep(chance.uniform(0.05, 0.8))
        server.kill()
        server.start()
        sender.wait_for_acknowledgements(300)
        sender.finish()
    check_idempotent(server, sender)


def test_a_graceful_stop_answers_what_is_in_flight(server):
    """SIGTERM: whatever a broker stored it also answered, so nobody is left in doubt."""
    with Sender(server.bootstrap, "plain", idempotent=False) as sender:
        sender.wait_for_acknowledgements(300)
        code = server.terminate()
        assert ON_KAFKA or code == 0
        server.start()
        sender.wait_for_acknowledgements(100)
        sender.finish()
    check_plain(server, sender)
    for partition in range(PARTITIONS):
        numbers = {number_of(value)[1] for value in read_partition(server.bootstrap, TOPIC, partition)}
        assert numbers <= set(sender.acknowledged)


class Writer:
    """Writes to one given broker, whoever leads: brokers without state can all take the same partition."""

    def __init__(self, server: DrayProcess, name: str) -> None:
        self.server = server
        self.name = name
        self.acknowledged: dict[int, int] = {}
        self.unclear: set[int] = set()
        self._moved = asyncio.Condition()

    async def until(self, acknowledged: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: len(self.acknowledged) >= acknowledged)

    async def run(self, stop: asyncio.Event, in_flight: int = 3) -> None:
        numbers = itertools.count()
        await asyncio.gather(*(self._lane(numbers, stop) for _ in range(in_flight)))

    async def _lane(self, numbers: Iterator[int], stop: asyncio.Event) -> None:
        connection = await KafkaConnection.connect("127.0.0.1", self.server.port)
        try:
            while not stop.is_set():
                number = next(numbers)
                data = batch([(None, value_of(self.name, number), ())])
                partition = PartitionProduceData(index=0, records=data)
                topic = TopicProduceData(name=TOPIC, partition_data=[partition])
                request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
                self.unclear.add(number)
                response = await asyncio.wait_for(connection.request(request, 9), 60)
                answer = response.responses[0].partition_responses[0]
                if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
                    continue  # the other broker was faster too often: try again, in doubt about this one
                assert answer.error_code == ErrorCode.NONE, answer
                self.unclear.discard(number)
                self.acknowledged[number] = answer.base_offset
                async with self._moved:
                    self._moved.notify_all()
        except ClientError:
            return  # this broker was killed; what was in flight stays unclear
        finally:
            await connection.close()


@pytest.mark.skipif(ON_KAFKA, reason="two brokers on one data directory are Dray's own")
async def test_two_brokers_write_one_partition_and_one_is_killed(tmp_path):
    data = tmp_path / "data"
    first, second = (
        DrayProcess(
            tmp_path / name,
            name=name,
            data_directory=data,
            arguments=["--broker-id", name.removeprefix("broker")],
        )
        for name in ("broker1", "broker2")
    )
    with first, second:
        await asyncio.to_thread(make_topic, first.bootstrap, 1)
        stop = asyncio.Event()
        writers = [Writer(first, "first"), Writer(second, "second")]
        tasks = [asyncio.create_task(writer.run(stop)) for writer in writers]
        try:
            async with asyncio.timeout(60):
                await progress(writers, 300)
                second.kill()
                await tasks[1]
                await progress(writers[:1], 300)
                second.start()
                writers.append(Writer(second, "second-again"))
                tasks.append(asyncio.create_task(writers[2].run(stop)))
                await progress([writers[0], writers[2]], 300)
        finally:
            stop.set()
            await asyncio.gather(*tasks)
        for server in (first, second):
            found = await asyncio.to_thread(read_partition, server.bootstrap, TOPIC, 0)
            seen = {number_of(value): offset for offset, value in enumerate(found)}
            assert len(seen) == len(found), "a record is there twice"
            for writer in writers:
                for number, offset in writer.acknowledged.items():
                    assert seen.pop((writer.name, number)) == offset
            unclear = {(writer.name, number) for writer in writers for number in writer.unclear}
            assert set(seen) <= unclear


async def progress(writers: list[Writer], more: int) -> None:
    await asyncio.gather(*(writer.until(len(writer.acknowledged) + more) for writer in writers))
