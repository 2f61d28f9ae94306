"""Two clusters and one object store, as real processes: the stranger is told so, and deletes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.services.dray import DrayProcess, drayd_path
from tests.services.logbook import read_partition
from tests.services.topics import create_topic

RECORDS = 500
HOURS = 3
TOPIC = "orders"
PATIENCE = 60.0
COPY = "is a copy of the cluster's"
# A broker that would delete at once, were it let: all objects are older than its orphans have to be.
EAGER = {
    "DRAY_TEST_KNOB__LOG__COLLECT_SECONDS": "1",
    "DRAY_LOG__COLLECT_GRACE": "0s",
    "DRAY_LOG__ORPHAN_TTL": "1h",
    "DRAY_TEST_KNOB__LOG__COLLECT_SHARE": "1.0",
    "DRAY_LOG__CARRY_BYTES": "0",  # every record is an object: this is about which of them may go
}


def new_broker(directory: Path, name: str, objects: Path) -> DrayProcess:
    settings = EAGER | {"DRAY_OBJECTS__URL": f"file:{objects}"}
    return DrayProcess(directory, name=name, data_directory=directory / name, settings=settings)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with records in 500 objects that are three hours old, at rest: made once, to be copied."""
    directory = tmp_path_factory.mktemp("written")
    broker = new_broker(directory, "first", directory / "objects")
    broker.start()
    try:
        create_topic(broker.bootstrap, TOPIC, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=0)
            assert producer.flush(60) == 0
        assert broker.terminate() == 0
    finally:
        broker.kill()
    assert len(wal_objects(directory / "objects")) == RECORDS
    make_old(directory / "objects")
    return directory


@pytest.fixture
def first(written: Path, tmp_path: Path) -> Iterator[DrayProcess]:
    for name in ("first", "objects"):
        shutil.copytree(written / name, tmp_path / name)  # with their times
    broker = new_broker(tmp_path, "first", tmp_path / "objects")
    yield broker
    broker.kill()


def make_old(objects: Path) -> None:
    then = time.time() - HOURS * 3600
    for path in objects.rglob("*"):
        os.utime(path, (then, then))


def wal_objects(objects: Path) -> set[str]:
    return {path.name for path in objects.rglob("*.wo")}


def cluster_id(broker: DrayProcess) -> str:
    found = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=60)
    assert isinstance(found.cluster_id, str)
    return found.cluster_id


def check_all_is_there(broker: DrayProcess) -> None:
    assert read_partition(broker.bootstrap, TOPIC, 0) == [b"%d" % number for number in range(RECORDS)]


def refused(broker: DrayProcess, *command: str) -> str:
    """The one line with which a command ends, in the place of this broker."""
    given = command or tuple(broker.command())
    ran = subprocess.run(
        given, env=dict(broker.environment()), capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 1, ran.stderr
    [line] = [line for line in ran.stderr.splitlines() if line.startswith("drayd: ")]
    return line


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


def test_a_stranger_is_refused_and_deletes_nothing(first: DrayProcess, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    before = wal_objects(objects)
    stranger = new_broker(tmp_path, "stranger", objects)
    line = refused(stranger)
    collecting = refused(
        stranger, str(drayd_path()), "admin", "gc", "--data-dir", str(stranger.data_directory), "--now"
    )
    assert wal_objects(objects) == before
    first.start()
    assert collecting == line
    assert cluster_id(first) in line
    assert len(set(re.findall(r"cluster ([\w-]{22})", line))) == 2, "both are named"
    check_all_is_there(first)


def test_a_bucket_from_before_there_were_owners(first: DrayProcess, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    (objects / "dray-cluster").unlink()
    stranger = new_broker(tmp_path, "stranger", objects)
    assert "adopt-bucket" in refused(stranger)
    preview = subprocess.run(
        [str(drayd_path()), "admin", "adopt-bucket", "--data-dir", str(stranger.data_directory)],
        env=dict(stranger.environment()),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout
    assert f"{RECORDS} objects listed" in preview
    assert not (objects / "dray-cluster").exists(), "it was only a look"
    first.start()
    check_all_is_there(first)
    assert (objects / "dray-cluster").exists(), "its own cluster knows all that lies there"
    assert cluster_id(first) in refused(stranger)


def test_a_broker_whose_bucket_became_anothers_deletes_nothing(first: DrayProcess, tmp_path: Path) -> None:
    """It is past its start: its rounds find out, say so, and it goes on serving."""
    forgotten = new_broker(tmp_path, "forgotten", tmp_path / "reused")
    forgotten.start()
    try:

        def rounds() -> float:
            found = re.search(
                r'dray_deletions_held_total{reason="owner"} ([0-9.]+)', forgotten.http_text("/metrics")
            )
            assert found is not None
            return float(found[1])

        assert rounds() == 0
        shutil.copy2(tmp_path / "objects" / "dray-cluster", tmp_path / "reused" / "dray-cluster")
        until(lambda: rounds() >= 1)
        shutil.copytree(tmp_path / "objects", tmp_path / "reused", dirs_exist_ok=True)
        began = rounds()
        until(lambda: rounds() >= began + 3)
        assert wal_objects(tmp_path / "reused") == wal_objects(tmp_path / "objects")
        answer = json.loads(forgotten.http_text("/readyz"))
        assert answer["status"] == "ready"
        assert "belongs to cluster" in answer["notes"]["collection"]
        assert "nothing is deleted" in forgotten.log_path.read_text()
    finally:
        forgotten.kill()


def ports_that_it_names(broker: DrayProcess) -> set[int]:
    """To a client that knows no other broker yet."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    return {each.port for each in client.list_topics(timeout=60).brokers.values()}


def test_a_restore_drill_beside_production_deletes_nothing(first: DrayProcess, tmp_path: Path) -> None:
    """A copy of the metadata with the same bucket, as somebody starts it who practises a restore."""
    first.start()
    drill = new_broker(tmp_path, "drill", tmp_path / "objects")
    drill.data_directory.mkdir()
    with (
        closing(sqlite3.connect(first.data_directory / "metadata.sqlite")) as live,
        closing(sqlite3.connect(drill.data_directory / "metadata.sqlite")) as copy,
    ):
        live.backup(copy)
    objects = wal_objects(tmp_path / "objects")
    drill.start()
    try:
        until(lambda: COPY in json.loads(drill.http_text("/readyz"))["notes"].get("tally", ""))
        [line] = [line for line in drill.log_path.read_text().splitlines() if "nothing is written" in line]
        assert COPY in line
        assert "drayd restore" in line
        # Until its session is over, the copy names production's broker to clients, which go on with that.
        until(lambda: ports_that_it_names(drill) == {drill.port})
        deletion = AdminClient({"bootstrap.servers": drill.bootstrap, "log_level": 0})
        with pytest.raises(KafkaException):
            deletion.delete_topics([TOPIC], request_timeout=3, operation_timeout=3)[TOPIC].result(60)
        failed: list[object] = []
        told = {"bootstrap.servers": drill.bootstrap, "message.timeout.ms": 1000, "log_level": 0}
        producer = Producer(told)
        producer.produce(TOPIC, b"lost", partition=0, on_delivery=lambda error, _: failed.append(error))
        producer.flush(60)
        assert failed[0] is not None
        collecting = refused(
            drill, str(drayd_path()), "admin", "gc", "--data-dir", str(drill.data_directory), "--now"
        )
        assert COPY in collecting
        assert wal_objects(tmp_path / "objects") == objects
        check_all_is_there(first)
        assert "tally" not in json.loads(first.http_text("/readyz")).get("notes", {})
        writer = Producer({"bootstrap.servers": first.bootstrap, "log_level": 0})
        writer.produce(TOPIC, b"%d" % RECORDS, partition=0)
        assert writer.flush(60) == 0, "production goes on"
    finally:
        drill.kill()
