"""The whole cluster on real servers: three brokers in three zones, Oxia or etcd, and S3, through faults.

One long run, with producers and a consumer that nobody restarts: brokers, the leader of the metadata and the
object store are killed, frozen and cut off, one after the other.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.services.brokers import Brokers
from tests.services.consumers import wait_for
from tests.services.counting import CountingProducer, FollowingConsumer
from tests.services.etcd import EtcdCluster, EtcdProcess
from tests.services.logbook import read_partition
from tests.services.oxia import OxiaCluster, OxiaNode
from tests.services.proxy import TcpProxy
from tests.services.s3 import BUCKET, S3Process
from tests.services.topics import create_topic

ZONES = ("zone-a", "zone-b", "zone-c")
TOPIC = "everywhere"
PARTITIONS = 4


@dataclass
class Cluster:
    metadata: OxiaCluster | EtcdCluster
    s3: S3Process
    to_s3: TcpProxy
    brokers: Brokers

    @property
    def bootstrap(self) -> str:
        return self.brokers.bootstrap

    def metadata_leader(self) -> OxiaNode | EtcdProcess:
        return self.metadata.leader(0) if isinstance(self.metadata, OxiaCluster) else self.metadata.leader()


def start_oxia(directory: Path, stack: ExitStack) -> tuple[OxiaCluster, dict[str, str]]:
    oxia = OxiaCluster(directory, sync=False)
    stack.callback(oxia.stop)
    oxia.start()
    return oxia, {
        "DRAY_METADATA__ENGINE": "oxia",
        "DRAY_METADATA__OXIA__ADDRESSES": ",".join(oxia.addresses),
        "DRAY_METADATA__OXIA__NAMESPACE": oxia.namespace,
    }


def start_etcd(directory: Path, stack: ExitStack) -> tuple[EtcdCluster, dict[str, str]]:
    etcd = stack.enter_context(EtcdCluster(directory))
    return etcd, {
        "DRAY_METADATA__ENGINE": "etcd",
        "DRAY_METADATA__ETCD__ENDPOINTS": ",".join(etcd.addresses),
    }


@pytest.fixture(params=[start_oxia, start_etcd], ids=["oxia", "etcd"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with ExitStack() as stack:
        metadata, settings = request.param(tmp_path / "metadata", stack)
        s3 = stack.enter_context(S3Process(tmp_path / "s3"))
        to_s3 = stack.enter_context(TcpProxy(s3.port))
        options = s3.options() | {"endpoint": f"http://{to_s3.address}"}
        settings |= {
            "DRAY_OBJECTS__URL": f"s3://{BUCKET}/cluster",
            "DRAY_BROKER__SESSION_TTL": "3s",
            **{f"DRAY_OBJECTS__OPTIONS__{name.upper()}": value for name, value in options.items()},
            **{f"DRAY_OBJECTS__SECRETS__{name.upper()}": value for name, value in s3.secrets().items()},
        }
        brokers = stack.enter_context(Brokers(tmp_path / "brokers", 3, zones=ZONES, settings=settings))
        yield Cluster(metadata, s3, to_s3, brokers)


def listed(bootstrap: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return set(admin.list_topics(timeout=60).brokers)


def leaders(bootstrap: str, zone: str) -> set[int]:
    """Of the test's topic, as clients of that zone are told."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": f"zone_id={zone}", "log_level": 0})
    partitions = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
    return {partition.leader for partition in partitions}


ZONED: dict[str, Any] = {"client.id": "zone_id=zone-b"}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_whoever_fails(cluster: Cluster) -> None:
    brokers = cluster.brokers
    create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
    for number, zone in enumerate(ZONES):
        assert leaders(brokers[0].bootstrap, zone) == {number}
    everywhere = CountingProducer(cluster.bootstrap, TOPIC, PARTITIONS, name="everywhere", idempotent=True)
    zoned = CountingProducer(
        cluster.bootstrap,
        TOPIC,
        PARTITIONS,
        name="zoned",
        idempotent=True,
        **ZONED,
    )
    with everywhere, zoned, FollowingConsumer(cluster.bootstrap, TOPIC, PARTITIONS) as consumer:

        def go_on() -> None:
            for producer in (everywhere, zoned):
                producer.wait_for_progress(20, timeout=120)

        go_on()
        brokers[1].kill()  # the only one of its zone: its clients fall back to the others
        wait_for("the dead broker is not listed", lambda: listed(brokers[0].bootstrap) == {0, 2})
        go_on()
        brokers[1].start()
        wait_for("the zone has a broker", lambda: leaders(brokers[0].bootstrap, "zone-b") == {1})
        go_on()

        brokers.freeze(2)
        wait_for("the frozen broker is not listed", lambda: listed(brokers[0].bootstrap) == {0, 1})
        go_on()
        brokers.wake(2)
        wait_for("the woken broker is listed", lambda: listed(brokers[0].bootstrap) == {0, 1, 2})
        go_on()

        leader = cluster.metadata_leader()
        leader.kill()
        go_on()
        leader.spawn()
        go_on()
        leader = cluster.metadata_leader()
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            go_on()
        finally:
            os.kill(leader.pid, signal.SIGCONT)
        go_on()

        cluster.to_s3.freeze()
        wait_for("a broker notices", brokers[0].lacks_objects)
        cluster.to_s3.thaw()
        go_on()
        cluster.to_s3.cut()
        cluster.to_s3.mend()
        go_on()
        cluster.s3.kill()
        cluster.s3.start()
        go_on()
        cluster.s3.freeze()
        wait_for("a broker notices", brokers[0].lacks_objects)
        cluster.s3.thaw()
        go_on()

        everywhere.finish()
        zoned.finish()
        held = [read_partition(brokers[2].bootstrap, TOPIC, partition) for partition in range(PARTITIONS)]
        consumer.wait_until_seen([len(values) for values in held])
        for partition, values in enumerate(held):
            everywhere.check(partition, values)
            zoned.check(partition, values)
            assert consumer.seen[partition] == list(enumerate(values))
        assert consumer.errors == []
