"""A history that only several nodes can have: leaders that change, one of them without what was
acknowledged; transactions and aborts in between; and a topic that was compacted before it was tiered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.services.log_referee import EARLIEST_LOCAL, LATEST, LATEST_TIERED, offset_of
from tests.services.tiered_cluster import START_SECONDS, TieredCluster
from tests.services.tiered_history import BATCH, COMPACTED, FILLER, TOPIC, produce, transactions, wait_for

ASSIGNED = ([2, 3], [3, 1])
"""The replicas of each partition: a leader of the first can have no other one in sync."""

PATIENCE = 180.0
_SEGMENTS = {"segment.bytes": str(1 << 20), "retention.ms": "-1", "file.delete.delay.ms": "100"}
_TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1"}


class ClusterHistory:
    def __init__(self, cluster: TieredCluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.lost = 0
        """How many offsets of partition 0 a leader gave away that the next one did not know."""

    def write(self) -> None:
        nodes, bootstrap = self._cluster.nodes, self._cluster.bootstrap
        configs = {**_SEGMENTS, **_TIERED, "unclean.leader.election.enable": "true"}
        self._create(TOPIC, ASSIGNED, configs)
        produce(bootstrap, TOPIC, "a", 2_500)
        transactions(bootstrap, TOPIC)
        self._until_in_sync()
        nodes[3].terminate(START_SECONDS)
        self._until_led(1, by=(1,))
        self._until_led(0, by=(2,))
        known = offset_of(bootstrap, TOPIC, 0, LATEST)
        produce(bootstrap, TOPIC, "b", 4_000)
        gone = offset_of(bootstrap, TOPIC, 0, LATEST)
        # Some of what will be lost is in the tier by then: of a lineage that ended.
        wait_for(
            "records that will be lost are tiered",
            lambda: offset_of(bootstrap, TOPIC, 0, LATEST_TIERED) > known,
            PATIENCE,
        )
        nodes[2].kill()
        nodes[3].start(START_SECONDS)
        self._elect(ElectionType.UNCLEAN, 0, 3)
        self.lost = gone - offset_of(bootstrap, TOPIC, 0, LATEST)
        nodes[2].start(START_SECONDS)
        self._until_in_sync()
        self._elect(ElectionType.PREFERRED, 1, 3)
        produce(bootstrap, TOPIC, "c", 2_500)
        transactions(bootstrap, TOPIC)
        self._until_in_sync()
        nodes[3].terminate(START_SECONDS)
        self._until_led(0, by=(2,))
        nodes[3].start(START_SECONDS)
        produce(bootstrap, TOPIC, "d", 2_500)
        transactions(bootstrap, TOPIC)
        produce(bootstrap, TOPIC, "e", 2_500)

    def write_compacted(self) -> None:
        """Kafka tiers no topic whose policy is `compact`. But one that was, and is not any more, it does: so
        segments with holes come into a tier."""
        bootstrap = self._cluster.bootstrap
        quick = {"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
        self._create(COMPACTED, [[2, 3, 1]], {"cleanup.policy": "compact", **_SEGMENTS, **quick})
        self._write_keys("first", 2_500)
        self._write_keys("second", 2_500)
        wait_for("a compacted log", self._is_compacted, PATIENCE)
        self._set(COMPACTED, {"cleanup.policy": "delete"})
        self._set(COMPACTED, _TIERED)
        self._write_keys("third", 2_500)
        assert offset_of(bootstrap, COMPACTED, 0, LATEST) == 7_500

    def _is_compacted(self) -> bool:
        """At every node that can lead: each cleans its own log."""
        for number in self._cluster.nodes:
            checkpoint = self._cluster.logs(number) / "cleaner-offset-checkpoint"
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            cleaned = [int(line.split()[2]) for line in lines if line.startswith(f"{COMPACTED} 0 ")]
            if not cleaned or cleaned[0] < 2_500:
                return False
        return True

    def until_tiered(self, topic: str, partitions: int) -> None:
        """All rolled segments are in the tier, and nowhere else."""
        bootstrap = self._cluster.bootstrap

        def is_tiered() -> bool:
            return all(
                offset_of(bootstrap, topic, number, LATEST_TIERED) + 1
                == offset_of(bootstrap, topic, number, EARLIEST_LOCAL)
                > 1_000
                for number in range(partitions)
            )

        wait_for(f"{topic} is in the tier only", is_tiered, PATIENCE)

    def _create(self, topic: str, assigned: Sequence[Sequence[int]], configs: Mapping[str, str]) -> None:
        asked = NewTopic(
            topic, len(assigned), replica_assignment=[list(each) for each in assigned], config=dict(configs)
        )

        self._cluster.until_complete(self._admin)
        self._admin.create_topics([asked])[topic].result(PATIENCE)
        for partition in range(len(assigned)):
            self._until_led(partition, by=(1, 2, 3), topic=topic)

    def _set(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in configs.items()
            ],
        )
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(PATIENCE)

    def _write_keys(self, word: str, count: int) -> None:
        settings = {"bootstrap.servers": self._cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        producer = Producer(settings | {"batch.num.messages": BATCH})
        for number in range(count):
            key, value = f"k{number % 40}-{word}", f"{number}-".encode() + FILLER
            producer.produce(COMPACTED, key=key.encode(), value=value, partition=0)
            producer.poll(0)
        assert producer.flush(PATIENCE) == 0

    def _led_by(self, partition: int, topic: str = TOPIC) -> tuple[int, list[int]]:
        """Its leader, and the replicas in sync; neither while the broker that was asked goes away."""
        try:
            found = self._admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions.get(partition)
        except KafkaException:
            return -1, []
        return (-1, []) if found is None else (found.leader, list(found.isrs))

    def _until_led(self, partition: int, by: Sequence[int], topic: str = TOPIC) -> None:
        wait_for(
            f"{topic}-{partition} is led by one of {by}",
            _stays(lambda: self._led_by(partition, topic)[0] in by),
            PATIENCE,
        )

    def _until_in_sync(self) -> None:
        for partition, replicas in enumerate(ASSIGNED):
            wait_for(
                f"all replicas of {TOPIC}-{partition} are in sync",
                lambda partition=partition, replicas=replicas: (  # type: ignore[misc]
                    set(self._led_by(partition)[1]) == set(replicas)
                ),
                PATIENCE,
            )

    def _elect(self, kind: ElectionType, partition: int, leader: int) -> None:
        """The controller may have done it already, as it does by and by."""

        def elect() -> bool:
            if self._led_by(partition)[0] != leader:
                with suppress(KafkaException):  # no replica of that kind is there yet
                    self._admin.elect_leaders(kind, [TopicPartition(TOPIC, partition)]).result(PATIENCE)
            return self._led_by(partition)[0] == leader

        wait_for(f"node {leader} leads partition {partition}", elect, PATIENCE)
        self._until_led(partition, by=(leader,))


def _stays(condition: Callable[[], bool]) -> Callable[[], bool]:
    """Brokers hear of a change one after the other: it holds when it was seen three times."""
    seen = 0

    def holds() -> bool:
        nonlocal seen
        seen = seen + 1 if condition() else 0
        time.sleep(0.1)
        return seen >= 3

    return holds
