"""What every trial of a live move needs: topics at the source, producers at work, the check at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.services.clients.steady import SteadyProducer
from tests.services.live_move import LiveMove, MoveLedger, below, read_topic
from tests.services.log_referee import LATEST, offset_of
from tests.services.tiered_cluster import TieredCluster
from tests.services.tiered_history import wait_for

PARTITIONS = 2
ASSIGNED = ((2, 3, 1), (3, 1, 2))
"""The replicas of each partition. The controller leads none."""
SECONDS = 180.0
SOME = 100
"""Records that each producer gets through between two events."""


def new_topic(
    kafka: TieredCluster, admin: AdminClient, test: str, assigned: Sequence[Sequence[int]], **configs: str
) -> str:
    """A topic at the source with the name of its test, and a leader for each partition."""
    letters = "".join(each if each.isalnum() else "-" for each in test)
    name = letters.removeprefix("test-").strip("-")[:100]
    kafka.until_complete(admin)
    asked = NewTopic(
        name,
        len(assigned),
        replica_assignment=[list(each) for each in assigned],
        config={key.replace("_", "."): value for key, value in configs.items()},
    )
    admin.create_topics([asked])[name].result(SECONDS)
    for partition in range(len(assigned)):
        wait_for(f"{name}-{partition} is led", lambda p=partition: leader(admin, name, p) > 0, SECONDS)  # type: ignore[misc]
    return name


def leader(admin: AdminClient, topic: str, partition: int = 0) -> int:
    try:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions.get(partition)
    except KafkaException:
        return -1  # the broker that was asked went away
    return -1 if found is None else found.leader


@contextmanager
def producing(bootstrap: str, topic: str, clients: Sequence[str] = ("librdkafka",)) -> Iterator[MoveLedger]:
    """Producers at work until the end of the block, which waits for all that they sent."""
    with ExitStack() as stack:
        made = []
        for client in clients:
            made.append(SteadyProducer(client, bootstrap, topic, PARTITIONS))
            stack.callback(made[-1].stop)
        yield MoveLedger(made)


def go_on(ledger: MoveLedger, more: int = SOME) -> None:
    for producer in ledger.producers:
        producer.until_acknowledged(more)


def write(
    bootstrap: str,
    topic: str,
    word: str,
    count: int,
    partition: int | None = None,
    *,
    idempotent: bool = True,
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent})
    for number in range(count):
        place = number % PARTITIONS if partition is None else partition
        producer.produce(topic, f"{word} {number}", partition=place)
    assert producer.flush(SECONDS) == 0


def begun(bootstrap: str, topic: str) -> Producer:
    """With an open transaction."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    return producer


def boundaries(status: Mapping[str, Any]) -> dict[int, int]:
    return {number: row["boundary"] for number, row in enumerate(status["partitions"])}


def check_moved(
    move: LiveMove, topic: str, ledger: MoveLedger | None = None, *, failures: bool = False
) -> dict[int, int]:
    """The boundaries of a topic that has moved."""
    found = boundaries(move.until(topic, "switched", "moved"))
    at_dray = read_topic(move.dray.bootstrap, topic, PARTITIONS)
    at_source = read_topic(move.kafka.bootstrap, topic, PARTITIONS)
    for partition, boundary in found.items():
        assert below(at_dray[partition], boundary) == below(at_source[partition], boundary)
        assert offset_of(move.kafka.bootstrap, topic, partition, LATEST) == boundary, "nothing is beyond it"
    if ledger is not None:
        ledger.check(at_dray, failures=failures)
    return found
