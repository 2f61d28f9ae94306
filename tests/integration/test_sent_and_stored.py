"""Each batch is stored at most as often as it was sent whole, and at least as often as it was acknowledged.

A plain producer's batch carries nothing by which a broker could know it again: one that is stored twice looks
like two. So a ledger between clients and brokers counts what was really sent. The producers send each record
once as far as they know (`message.send.max.retries=0`), with every kind of `acks`.

Where librdkafka is asked not to retry, it still sends some records twice; the last test shows when.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from tests.services.brokers import Brokers
from tests.services.consumers import wait_for
from tests.services.counting import CountingProducer
from tests.services.etcd import EtcdProcess
from tests.services.ledger import ProduceLedger, SentBatch, stored_batches
from tests.services.proxy import TcpProxy
from tests.services.s3 import BUCKET, S3Process
from tests.services.topics import client_of, create_topic

PARTITIONS = 2
ROUNDS = 12
ACKS = ("all", "1", "0")
SETTINGS = {"DRAY_BROKER__SESSION_TTL": "2s"}
ONCE = {
    "message.send.max.retries": 0,
    "batch.num.messages": 300,
    # Who gives up a request that is only slow, and sends no less, keeps slow brokers busy for nothing.
    "request.timeout.ms": 30_000,
    "socket.timeout.ms": 30_000,
}
METADATA_SECONDS = 1.0  # how often producers ask who is there: see `counting.IMPATIENT`


def topic_of(acks: str) -> str:
    return f"acks-{acks}"


class Storm:
    """Brokers, each behind a proxy that is all that clients know of it, and what can happen to them."""

    def __init__(self, brokers: Brokers, proxies: Sequence[TcpProxy], chance: random.Random) -> None:
        self.brokers = brokers
        self.proxies = proxies
        self.chance = chance
        self.bootstrap = ",".join(proxy.address for proxy in proxies)

    def cut(self, number: int) -> None:
        """In the middle of a request, as often as not."""
        for _ in range(5):
            time.sleep(self.chance.uniform(0, 0.1))
            self.proxies[number].cut()
            self.proxies[number].mend()

    def kill(self, number: int) -> None:
        time.sleep(self.chance.uniform(0, 0.1))
        self.brokers[number].kill()
        self.brokers[number].start()

    def pause(self, number: int) -> None:
        self.brokers.freeze(number)
        time.sleep(self.chance.uniform(0.1, 1.0))
        self.brokers.wake(number)

    def pause_until_unlisted(self, number: int) -> None:
        """It wakes with requests that clients have given up long ago, and takes them all."""
        other = self.brokers[(number + 1) % len(self.proxies)].bootstrap
        self.brokers.freeze(number)
        wait_for("the frozen broker is not listed", lambda: number not in listed(other))
        time.sleep(2 * METADATA_SECONDS)
        self.brokers.wake(number)
        wait_for("the woken broker is listed", lambda: number in listed(other))


def listed(bootstrap: str) -> set[int]:
    return set(client_of(bootstrap).list_topics(timeout=60).brokers)


@contextmanager
def storm(
    directory: Path, count: int, ledger: ProduceLedger, seed: int, settings: Mapping[str, str] | None = None
) -> Iterator[Storm]:
    brokers = Brokers(directory, count, settings=SETTINGS | dict(settings or {}))
    with ExitStack() as stack:
        proxies = [stack.enter_context(TcpProxy(broker.port, tap=ledger.tap)) for broker in brokers.processes]
        for broker, proxy in zip(brokers.processes, proxies, strict=True):
            broker.settings["DRAY_BROKER__ADVERTISED"] = proxy.address
        stack.enter_context(brokers)
        for acks in ACKS:
            create_topic(brokers.bootstrap, topic_of(acks), PARTITIONS)
        yield Storm(brokers, proxies, random.Random(seed))


def wait_for_deliveries(producer: CountingProducer, count: int) -> None:
    """Of records that are sent from now on; others may fail, since nobody tries again."""
    begin = producer.sent

    def delivered() -> bool:
        return sum(number in producer.acknowledged for number in range(begin, producer.sent)) >= count

    wait_for(f"{producer.name} gets records through", delivered, 60)


def produce_through(storm: Storm, faults: Sequence[Callable[[], None]]) -> list[CountingProducer]:
    """All producers make progress before, between and after the faults; then nothing is in flight."""
    with ExitStack() as stack:
        producers = [
            stack.enter_context(
                CountingProducer(
                    storm.bootstrap,
                    topic_of(acks),
                    PARTITIONS,
                    name=f"acks-{acks}",
                    idempotent=False,
                    acks=acks,
                    pause=0.02,
                    **ONCE,
                )
            )
            for acks in ACKS
        ]
        for fault in [*faults, None]:
            for producer in producers:
                wait_for_deliveries(producer, 40)
            if fault is not None:
                fault()
        for producer in producers:
            producer.finish()
    return producers


def stored_after(storm: Storm) -> Counter[SentBatch]:
    """What is there once every broker has ended in peace, whatever it still had to do."""
    for broker in storm.brokers.processes:
        assert broker.terminate() == 0
    storm.brokers[0].start()
    stored: Counter[SentBatch] = Counter()
    for acks in ACKS:
        stored += asyncio.run(stored_batches(storm.brokers[0].port, topic_of(acks), PARTITIONS))
    return stored


def check(ledger: ProduceLedger, producers: Sequence[CountingProducer], stored: Counter[SentBatch]) -> None:
    ledger.check(stored)
    assert ledger.acknowledged
    there: dict[str, set[bytes | None]] = {topic_of(acks): set() for acks in ACKS}
    for batch in stored:
        there[batch.topic].update(batch.values())
    for producer, acks in zip(producers, ACKS, strict=True):
        assert there[topic_of(acks)]
        if acks != "0":
            assert len(there[topic_of(acks)]) >= len(producer.acknowledged)


def test_two_brokers_store_what_was_sent_and_no_more(tmp_path: Path) -> None:
    ledger = ProduceLedger()
    with storm(tmp_path, 2, ledger, 1) as weather:
        producers = produce_through(
            weather,
            [
                lambda: weather.cut(0),
                lambda: weather.kill(1),
                lambda: weather.pause_until_unlisted(0),
            ],
        )
        check(ledger, producers, stored_after(weather))


# --- for longer, and on remote stores that are slow and leave brokers in doubt


class RemoteStores:
    """S3 and etcd, each behind a proxy."""

    def __init__(self, directory: Path, *, with_etcd: bool, chance: random.Random) -> None:
        self._stack = ExitStack()
        self._s3 = S3Process(directory / "s3")
        self._etcd = EtcdProcess(directory / "etcd") if with_etcd else None
        self._proxies: list[TcpProxy] = []
        self._chance = chance
        self.settings: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._s3)
            s3 = stack.enter_context(TcpProxy(self._s3.port))
            self._proxies.append(s3)
            options = self._s3.options() | {"endpoint": f"http://{s3.address}", "timeout": "2s"}
            self.settings = {
                "DRAY_OBJECTS__URL": f"s3://{BUCKET}/stored",
                "DRAY_LOG__FLUSH_LINGER": "20ms",
                "DRAY_BROKER__SESSION_TTL": "6s",  # kept by servers on this machine, which is busy
            }
            for kind, given in (("OPTIONS", options), ("SECRETS", self._s3.secrets())):
                self.settings |= {f"DRAY_OBJECTS__{kind}__{name.upper()}": given[name] for name in given}
            if self._etcd is not None:
                stack.enter_context(self._etcd)
                etcd = stack.enter_context(TcpProxy(self._etcd.port))
                self._proxies.append(etcd)
                self.settings |= {
                    "DRAY_METADATA__ENGINE": "etcd",
                    "DRAY_METADATA__ETCD__ENDPOINTS": etcd.address,
                    "DRAY_TEST_KNOB__METADATA__ETCD__REQUEST_TIMEOUT": "2.0",
                }
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def be_slow(self) -> None:
        for proxy in self._proxies:
            proxy.delay(self._chance.uniform(0.05, 0.3))
        time.sleep(1.0)  # a fault that lasts, not a wait for something
        for proxy in self._proxies:
            proxy.delay(0)

    def leave_in_doubt(self) -> None:
        """Requests arrive and answers do not: what was asked for may have happened."""
        for _ in range(5):
            time.sleep(self._chance.uniform(0, 0.3))
            proxy = self._chance.choice(self._proxies)
            proxy.cut()
            proxy.mend()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stores", ["local", "s3", "s3 and etcd"])
@pytest.mark.parametrize("count", [1, 2])
def test_brokers_store_what_was_sent_and_no_more(tmp_path: Path, count: int, stores: str) -> None:
    seed = ROUNDS * count + len(stores)
    chance = random.Random(seed)
    ledger = ProduceLedger()
    with ExitStack() as stack:
        settings: dict[str, str] = {}
        remote = None
        if stores != "local":
            remote = RemoteStores(tmp_path, with_etcd="etcd" in stores, chance=chance)
            settings = stack.enter_context(remote).settings
        weather = stack.enter_context(storm(tmp_path, count, ledger, seed, settings))
        kinds = [weather.cut, weather.kill, weather.pause]
        kinds += [weather.pause_until_unlisted] if count > 1 else []
        faults: list[Callable[[], None]] = [
            partial(chance.choice(kinds), chance.randrange(count)) for _ in range(ROUNDS)
        ]
        if remote is not None:
            faults += [chance.choice([remote.be_slow, remote.leave_in_doubt]) for _ in range(ROUNDS)]
        chance.shuffle(faults)
        producers = produce_through(weather, faults)
        check(ledger, producers, stored_after(weather))


@pytest.mark.soak
def test_librdkafka_sends_again_what_a_broker_that_is_no_longer_listed_had_in_flight(tmp_path: Path) -> None:
    """Though it was told not to retry, and without a word to the application (since librdkafka 2.10). If this
    fails, the client has changed: then `docs/operations/durability.md` has to say something else."""
    ledger = ProduceLedger()
    with storm(tmp_path, 2, ledger, 1) as weather:
        producers = produce_through(weather, [partial(weather.pause_until_unlisted, 0)])
        stored = stored_after(weather)
        check(ledger, producers, stored)
    twice = [value for value, count in ledger.times_sent().items() if count > 1]
    assert twice
