"""One of three brokers is cut off from Oxia or from S3, or sleeps for minutes, while the others go on.

What was acknowledged is there, once and in order, whatever the lonely one believed in meanwhile; clients that
nobody restarts find their way; what nobody needs is collected.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.services.brokers import Brokers
from tests.services.cluster import ZONES
from tests.services.consumers import wait_for
from tests.services.counting import CountingProducer, FollowingConsumer
from tests.services.dray import DrayProcess, drayd_path
from tests.services.logbook import read_partition
from tests.services.proxy import TcpProxy
from tests.services.remote import oxia_cluster_settings, s3_settings
from tests.services.s3 import S3Process
from tests.services.sorting import SortedOxia
from tests.services.topics import create_topic

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

TOPIC = "everywhere"
PARTITIONS = 4
LONELY = 2
PAUSE_SECONDS = 120.0
UNHURRIED = {"message.timeout.ms": 400_000, "request.timeout.ms": 10_000, "socket.timeout.ms": 10_000}
"""Every request of the brokers goes through proxies in this process."""


@dataclass
class Cluster:
    oxia: SortedOxia
    s3: S3Process
    lonely_to_s3: TcpProxy
    brokers: Brokers

    @property
    def lonely(self) -> DrayProcess:
        return self.brokers[LONELY]

    def listed(self) -> set[int]:
        """The brokers that one which is not lonely tells of."""
        admin = AdminClient({"bootstrap.servers": self.brokers[0].bootstrap, "log_level": 0})
        return set(admin.list_topics(timeout=60).brokers)

    def collect(self) -> dict[str, int]:
        """A round of all collectors, without grace, by a process of its own."""
        ran = subprocess.run(
            [str(drayd_path()), "admin", "gc", "--now", "--json"],
            env=dict(self.brokers[0].environment()),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        done: dict[str, int] = json.loads(ran.stdout)
        return done


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    brokers: Brokers | None = None

    def lonely() -> int | None:
        return brokers[LONELY].pid if brokers is not None and brokers[LONELY].alive else None

    with ExitStack() as stack:
        oxia = stack.enter_context(SortedOxia(tmp_path / "oxia", lonely))
        s3 = stack.enter_context(S3Process(tmp_path / "s3"))
        lonely_to_s3 = stack.enter_context(TcpProxy(s3.port))
        settings = (
            oxia_cluster_settings(oxia.addresses, oxia.cluster.namespace)
            | s3_settings(s3, "cluster", {"timeout": "2s", "backoff": "20ms", "max_backoff": "200ms"})
            | {"DRAY_BROKER__SESSION_TTL": "3s"}
        )
        brokers = Brokers(tmp_path / "brokers", len(ZONES), zones=ZONES, settings=settings)
        brokers[LONELY].settings["DRAY_OBJECTS__OPTIONS__ENDPOINT"] = f"http://{lonely_to_s3.address}"
        yield Cluster(oxia, s3, lonely_to_s3, stack.enter_context(brokers))


class Clients:
    """A producer of the whole cluster, one that keeps to the lonely broker's zone, and a consumer."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._cluster = cluster
        bootstrap = cluster.brokers.bootstrap
        create_topic(bootstrap, TOPIC, PARTITIONS)
        self.everywhere, self.zoned = (
            stack.enter_context(
                CountingProducer(
                    bootstrap,
                    TOPIC,
                    PARTITIONS,
                    name=name,
                    idempotent=True,
                    pause=0.1,
                    **{"client.id": client_id, **UNHURRIED},
                )
            )
            for name, client_id in (("everywhere", "test"), ("zoned", f"zone_id={ZONES[LONELY]}"))
        )
        self.consumer = stack.enter_context(FollowingConsumer(bootstrap, TOPIC, PARTITIONS))

    def go_on(self) -> None:
        for producer in (self.everywhere, self.zoned):
            producer.wait_for_progress(10, timeout=200)

    def finish_and_check(self) -> None:
        self.everywhere.finish()
        self.zoned.finish()
        self.check_brokers(range(len(ZONES)))

    def check_brokers(self, numbers: range) -> None:
        """Every broker tells the same, and that is what was acknowledged, and what the consumer saw."""
        for number in numbers:
            bootstrap = self._cluster.brokers[number].bootstrap
            held = [read_partition(bootstrap, TOPIC, partition) for partition in range(PARTITIONS)]
            self.consumer.wait_until_seen([len(values) for values in held])
            for partition, values in enumerate(held):
                self.everywhere.check(partition, values)
                self.zoned.check(partition, values)
                assert self.consumer.seen[partition] == list(enumerate(values))
        assert self.consumer.errors == []


@pytest.mark.parametrize("harm", ["cut", "freeze"])
def test_a_broker_without_oxia(cluster: Cluster, harm: str) -> None:
    """For longer than its session: meanwhile the others are the cluster, for the clients of its zone too. It
    says so itself."""
    with ExitStack() as stack:
        clients = Clients(cluster, stack)
        clients.go_on()
        assert any(link.open_connections for link in cluster.oxia.links), "the lonely links are not used"
        for link in cluster.oxia.links:
            getattr(link, harm)()
        wait_for("the lonely broker is not listed", lambda: cluster.listed() == {0, 1})
        clients.go_on()
        for link in cluster.oxia.links:
            link.mend() if harm == "cut" else link.thaw()
        wait_for("the lonely broker is listed again", lambda: cluster.listed() == {0, 1, 2})
        clients.go_on()
        clients.finish_and_check()


@pytest.mark.parametrize("harm", ["cut", "freeze"])
def test_a_broker_without_s3(cluster: Cluster, harm: str) -> None:
    """It says so, and goes on when it can; the others never noticed."""
    with ExitStack() as stack:
        clients = Clients(cluster, stack)
        clients.go_on()
        getattr(cluster.lonely_to_s3, harm)()
        wait_for("the lonely broker notices", cluster.lonely.lacks_objects)
        assert [cluster.brokers[number].http_status("/readyz") for number in (0, 1)] == [200, 200]
        assert not any(cluster.brokers[number].lacks_objects() for number in (0, 1))
        cluster.lonely_to_s3.mend() if harm == "cut" else cluster.lonely_to_s3.thaw()
        wait_for("it has it again", lambda: not cluster.lonely.lacks_objects())
        clients.go_on()
        clients.finish_and_check()


def test_a_broker_that_sleeps_for_minutes(cluster: Cluster) -> None:
    """Stopped in the middle of its writes. Everything that it left half done is collected while it sleeps;
    what it does when it wakes, as if no time had passed, does no harm."""
    with ExitStack() as stack:
        clients = Clients(cluster, stack)
        clients.go_on()
        cluster.brokers.freeze(LONELY)
        wait_for("the sleeping broker is not listed", lambda: cluster.listed() == {0, 1})
        asleep_until = time.monotonic() + PAUSE_SECONDS
        while time.monotonic() < asleep_until:
            cluster.collect()
            clients.go_on()
        cluster.brokers.wake(LONELY)
        wait_for("the woken broker is listed", lambda: cluster.listed() == {0, 1, 2})
        clients.go_on()
        clients.finish_and_check()


def test_what_killed_brokers_leave_behind_is_collected(cluster: Cluster) -> None:
    with ExitStack() as stack:
        clients = Clients(cluster, stack)
        for number in (0, 1, 2, 0, 1, 2):
            clients.go_on()
            cluster.brokers[number].kill()
            cluster.brokers[number].start()
        clients.go_on()
        clients.everywhere.finish()
        clients.zoned.finish()
        cluster.collect()
        again = cluster.collect()
        assert again["orphans"] == 0, again
        clients.check_brokers(range(len(ZONES)))
