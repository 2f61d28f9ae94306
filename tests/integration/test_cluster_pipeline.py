"""The pipeline on a cluster: three brokers, Oxia, S3 and a compactor on Spark, all in processes of their own.

The log becomes a table while clients write and read, a broker and the compactor are killed meanwhile, and
nobody who reads notices anything.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.services.cluster import Cluster
from tests.services.compactor import CompactorProcess
from tests.services.consumers import wait_for
from tests.services.counting import CountingProducer, FollowingConsumer
from tests.services.dray import drayd_path
from tests.services.logbook import read_partition
from tests.services.remote import RemoteStores
from tests.services.target import ON_CLUSTER
from tests.services.tools import require_tool
from tests.services.topics import create_topic

pytestmark = [] if ON_CLUSTER else [pytest.mark.soak]

TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[RemoteStores]:
    require_tool("java")
    with RemoteStores(tmp_path / "stores") as started:
        yield started


@pytest.fixture
def brokers(tmp_path: Path, stores: RemoteStores) -> Iterator[Cluster]:
    settings = stores.new_cluster() | {
        "DRAY_BROKER__SESSION_TTL": "3s",
        "DRAY_ICEBERG__URI": f"sqlite:///{tmp_path / 'catalog.sqlite'}",
        "DRAY_COMPACTION__INTERVAL": "1s",
        "DRAY_COMPACTION__WAL_MAX_AGE": "0s",
        "DRAY_TEST_KNOB__COMPACTION__TAKEOVER_SECONDS": "1",
    }
    with Cluster(tmp_path / "brokers", settings) as started:
        yield started


def run(brokers: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with the config of the brokers and nothing else of theirs."""
    return subprocess.run(
        [str(drayd_path()), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=dict(brokers[0].environment()),
        check=False,
    )


def rows(brokers: Cluster) -> int:
    """How many records the table holds."""
    ran = run(brokers, "admin", "table", TOPIC, "--json")
    if ran.returncode == 1 and "has no table yet" in ran.stderr:
        return 0
    assert ran.returncode == 0, ran.stderr
    count: int = json.loads(ran.stdout)["rows"]
    return count


def in_the_table(brokers: Cluster) -> list[list[bytes]]:
    """The values of each partition, by offset."""
    sql = f'select partition, "offset", decode(value) as value from {TOPIC} order by 1, 2'
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ran = run(brokers, "query", sql, "--format", "json", "--limit", "0")
    assert ran.returncode == 0, ran.stderr
    for row in json.loads(ran.stdout):
        assert row["offset"] == len(found[row["partition"]]), "an offset was skipped or repeated"
        found[row["partition"]].append(row["value"].encode())
    return found


@pytest.mark.timeout(1200)
def test_topics_become_tables_while_clients_go_on_and_processes_are_killed(
    tmp_path: Path, brokers: Cluster
) -> None:
    create_topic(brokers.bootstrap, TOPIC, PARTITIONS)
    sender = CountingProducer(
        brokers.bootstrap, TOPIC, PARTITIONS, name="sender", idempotent=True, pause=0.05
    )
    compactor = CompactorProcess(tmp_path / "compactor", brokers[0], {})
    with compactor, sender, FollowingConsumer(brokers.bootstrap, TOPIC, PARTITIONS) as consumer:
        sender.wait_for_progress(200)
        wait_for("the table holds records", lambda: rows(brokers) > 0, 400)
        compactor.kill()
        compactor.start()
        brokers.kill()
        sender.wait_for_progress(200)
        brokers.start()
        sender.wait_for_progress(200)
        sender.finish()
        held = [read_partition(brokers.bootstrap, TOPIC, partition) for partition in range(PARTITIONS)]
        total = sum(map(len, held))
        wait_for("the table holds all records", lambda: rows(brokers) == total, 400)

        consumer.wait_until_seen([len(values) for values in held])
        assert consumer.errors == []
        for partition, values in enumerate(held):
            sender.check(partition, values)
            assert consumer.seen[partition] == list(enumerate(values))
        # The same records at the same offsets: in the table, and through every broker from its files.
        assert in_the_table(brokers) == held
        for broker in brokers.processes:
            assert [read_partition(broker.bootstrap, TOPIC, number) for number in range(PARTITIONS)] == held
