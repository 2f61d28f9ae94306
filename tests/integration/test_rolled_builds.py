"""Real brokers of the earlier build that `tests/fixtures/earlier_build.txt` names are rolled to this build
and back, one at a time, while clients work: every record is judged by its number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.services.commands import drayd
from tests.services.counting import CountingProducer, FollowingConsumer
from tests.services.earlier_build import RolledProcess, require_earlier_build
from tests.services.topics import create_topic

from dray.base.build import build_name

TOPIC = "rolled"
PARTITIONS = 6
BROKERS = 3


@contextmanager
def three_brokers(directory: Path, program: Path | None) -> Iterator[list[RolledProcess]]:
    made = [
        RolledProcess(
            directory / f"broker-{number}",
            name=f"broker-{number}",
            data_directory=directory / "data",
            arguments=["--broker-id", str(number)],
        )
        for number in range(BROKERS)
    ]
    with ExitStack() as stack:
        for broker in made:
            broker.program = program
            broker.spawn()
            stack.callback(broker.kill)
        for broker in made:
            broker.wait_until_ready()
        yield made


def roll(brokers: list[RolledProcess], program: Path | None, producers: list[CountingProducer]) -> None:
    """As docs/operations/start-and-stop.md has it: one after the other, and each serves before the next."""
    for broker in brokers:
        assert broker.terminate() == 0
        broker.program = program
        broker.start()
        for producer in producers:
            producer.wait_for_progress(20)


def builds(brokers: list[RolledProcess]) -> set[str]:
    """The versions that the brokers say they are."""
    found = "".join(broker.http_text("/metrics") for broker in brokers)
    return set(re.findall(r'dray_build_info{.*version="([^"]*)"', found))


@contextmanager
def counted(brokers: list[RolledProcess]) -> Iterator[list[CountingProducer]]:
    """Producers and a consumer at work; at the end every record was read once, in its order."""
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    create_topic(bootstrap, TOPIC, PARTITIONS)
    with ExitStack() as stack:
        producers = [
            stack.enter_context(
                CountingProducer(bootstrap, TOPIC, PARTITIONS, name=f"p{number}", idempotent=True, pause=0.05)
            )
            for number in range(3)
        ]
        consumer = stack.enter_context(FollowingConsumer(bootstrap, TOPIC, PARTITIONS))
        for producer in producers:
            producer.wait_for_progress(20)
        yield producers
        for producer in producers:
            producer.finish()
        sent = sum(producer.sent for producer in producers)
        ends = [
            sum(len(range(partition, producer.sent, PARTITIONS)) for producer in producers)
            for partition in range(PARTITIONS)
        ]
        consumer.wait_until_seen(ends)
    assert [len(seen) for seen in consumer.seen] == ends, "0 doubled"
    for partition, seen in enumerate(consumer.seen):
        assert [offset for offset, _ in seen] == list(range(ends[partition]))
        for producer in producers:
            producer.check(partition, [value for _, value in seen])
    assert sum(map(len, consumer.seen)) == sent == sum(len(each.acknowledged) for each in producers)
    print(f"{sent} records acknowledged and read: 0 lost, 0 doubled, 0 out of order")


def test_a_roll_to_this_build_and_back_loses_doubles_and_moves_nothing(tmp_path: Path) -> None:
    earlier_program = require_earlier_build()
    with three_brokers(tmp_path, earlier_program) as brokers, counted(brokers) as producers:
        earlier = builds(brokers)
        roll(brokers, None, producers)
        assert builds(brokers) == {build_name()}
        # The cluster's level is the earlier build's for a day, so the way back needs no preparation. Settings
        # that it does not know go with it (`RolledProcess`).
        roll(brokers, earlier_program, producers)
        assert builds(brokers) == earlier


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_roll_back_ends_at_its_first_process_unless_the_level_was_lowered(tmp_path: Path) -> None:
    earlier_program = require_earlier_build()
    with three_brokers(tmp_path, None) as brokers, counted(brokers) as producers:
        first = brokers[0]
        assert first.terminate() == 0
        first.program = earlier_program
        first.spawn()
        assert first.wait(60) != 0
        assert "upgrade it" in first.log_tail(5)
        for producer in producers:
            producer.wait_for_progress(200)  # the others serve
        first.program = None
        first.start()
        drayd("admin", "level", "lower", "--to", "1", "--execute", "--data-dir", tmp_path / "data")
        roll(brokers, earlier_program, producers)
