"""Three brokers, producers and a consumer, while brokers are killed, frozen and woken again.

What was acknowledged is there, once, in order and where it was said to be; nobody has to restart a client.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import AdminClient
from tests.services.brokers import Brokers
from tests.services.consumers import wait_for
from tests.services.counting import CountingProducer, FollowingConsumer
from tests.services.logbook import read_partition
from tests.services.topics import create_topic

TOPIC = "stormy"
PARTITIONS = 4
SETTINGS = {"DRAY_BROKER__SESSION_TTL": "2s"}


def listed(bootstrap: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return set(admin.list_topics(timeout=60).brokers)


def test_kills_and_freezes_lose_reorder_and_repeat_nothing(tmp_path: Path) -> None:
    with Brokers(tmp_path, 3, settings=SETTINGS) as brokers:
        create_topic(brokers.bootstrap, TOPIC, PARTITIONS)
        safe = CountingProducer(brokers.bootstrap, TOPIC, PARTITIONS, name="safe", idempotent=True)
        plain = CountingProducer(brokers.bootstrap, TOPIC, PARTITIONS, name="plain", idempotent=False)
        with safe, plain, FollowingConsumer(brokers.bootstrap, TOPIC, PARTITIONS) as consumer:
            safe.wait_for_progress(20)
            plain.wait_for_progress(20)

            brokers[0].kill()
            safe.wait_for_progress(20)
            wait_for("the dead broker is not listed", lambda: listed(brokers[1].bootstrap) == {1, 2})
            brokers[0].start()
            wait_for("the new broker is listed", lambda: listed(brokers[1].bootstrap) == {0, 1, 2})
            safe.wait_for_progress(20)

            brokers.freeze(1)
            wait_for("the frozen broker is not listed", lambda: listed(brokers[2].bootstrap) == {0, 2})
            safe.wait_for_progress(20)
            brokers.wake(1)  # with whatever it was in the middle of
            wait_for("the woken broker is listed", lambda: listed(brokers[2].bootstrap) == {0, 1, 2})
            safe.wait_for_progress(20)
            plain.wait_for_progress(20)
            safe.finish()
            plain.finish()

            held = [read_partition(brokers[2].bootstrap, TOPIC, partition) for partition in range(PARTITIONS)]
            consumer.wait_until_seen([len(values) for values in held])
            for partition, values in enumerate(held):
                safe.check(partition, values)
                plain.check(partition, values)
                assert consumer.seen[partition] == list(enumerate(values))
            assert consumer.errors == []
            # any broker tells the same, the one that slept too
            assert read_partition(brokers[1].bootstrap, TOPIC, 0) == held[0]
