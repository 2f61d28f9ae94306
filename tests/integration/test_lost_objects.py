"""An object is deleted behind the log's back: what a client, the metrics and the operator see."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.commands import drayd
from tests.services.consumers import wait_for
from tests.services.dray import DrayProcess, drayd_path
from tests.services.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Process

PREFIX = "some/prefix"
SETTINGS = {
    "DRAY_LOG__CARRY_BYTES": "0",
    "DRAY_LOG__TAIL_CACHE_BYTES": "0",
    "DRAY_TEST_KNOB__LOG__DOUBT_SECONDS": "3.0",
}


def produce(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce("orders", b"value %d" % number)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int, until: int | None = None) -> list[int | None]:
    """The offsets that came, or the code of the first error that the application sees."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[int | None] = []
    try:
        for _ in range(600):
            for message in consumer.consume(count, timeout=0.1):
                error = message.error()
                if error is not None and error.code() == until:
                    return [until]
                if error is None:
                    found.append(message.offset())
            if len(found) >= count:
                break
        return found
    finally:
        consumer.close()


def test_consumers_go_on_behind_an_object_that_was_given_up(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DrayProcess(tmp_path, data_directory=data, settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [created] = admin.create_topics([NewTopic("orders", 1)]).values()
        created.result(60)
        produce(broker.bootstrap, 0, 5)
        before = set(data.glob("objects/wal/**/*.wo"))
        produce(broker.bootstrap, 5, 5)
        doomed = set(data.glob("objects/wal/**/*.wo")) - before
        produce(broker.bootstrap, 10, 5)
    assert doomed
    for path in doomed:
        path.unlink()
    lost = ("admin", "lost", "orders", "--json", "--data-dir", data)
    with DrayProcess(tmp_path, name="second", data_directory=data, settings=SETTINGS) as broker:
        assert consume(broker.bootstrap, 15, KafkaError.INVALID_MSG) == [KafkaError.INVALID_MSG]
        wait_for("the metric", lambda: "dray_lost_objects 1.0" in broker.http_text("/metrics"))
        assert "drayd admin lost" in broker.http_text("/readyz")

        found = json.loads(drayd(*lost))
        assert [(each["first"], each["last"], each["state"]) for each in found] == [(5, 9, "gone")]
        assert json.loads(drayd(*lost, "--give-up")) == found
        assert json.loads(drayd(*lost)) == found, "a preview changes nothing"
        assert [each["state"] for each in json.loads(drayd(*lost, "--give-up", "--execute"))] == ["given up"]
        assert consume(broker.bootstrap, 10) == [*range(5), *range(10, 15)]
        assert json.loads(drayd(*lost)) == []


# --- in a bucket that keeps versions


def client_of(server: S3Process) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )


def settings_of(server: S3Process) -> dict[str, str]:
    settings = SETTINGS | {"DRAY_OBJECTS__URL": f"s3://{BUCKET}/{PREFIX}"}
    settings |= {f"DRAY_OBJECTS__OPTIONS__{name.upper()}": text for name, text in server.options().items()}
    return settings | {
        f"DRAY_OBJECTS__SECRETS__{name.upper()}": text for name, text in server.secrets().items()
    }


@pytest.fixture
def versioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Process]:
    versions = tmp_path / "versions"
    versions.mkdir()
    monkeypatch.setenv("VGW_VERSIONING_DIR", str(versions))
    with S3Process(tmp_path / "versioned") as server:
        client_of(server).put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield server


def wal_of(client: Any) -> set[str]:
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{PREFIX}/wal/")
    return {each["Key"] for each in found.get("Contents", ()) if each["Key"].endswith(".wo")}


def produced(broker: DrayProcess, client: Any) -> list[set[str]]:
    """The objects of three times five records."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [created] = admin.create_topics([NewTopic("orders", 1)]).values()
    created.result(60)
    objects, seen = [], wal_of(client)
    for number in range(3):
        produce(broker.bootstrap, 5 * number, 5)
        objects.append(wal_of(client) - seen)
        seen = wal_of(client)
    assert all(objects)
    return objects


def refused(*arguments: object, **settings: str) -> str:
    ran = subprocess.run(
        [str(drayd_path()), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env=settings,
        check=False,
    )
    assert ran.returncode
    assert ran.stderr.count("\n") == 1
    assert SECRET_KEY not in ran.stderr
    return ran.stderr


def test_what_somebody_deleted_comes_back_and_consumers_read_on(tmp_path: Path, versioned: S3Process) -> None:
    client, data, settings = client_of(versioned), tmp_path / "data", settings_of(versioned)
    with DrayProcess(tmp_path, data_directory=data, settings=settings) as broker:
        _, second, third = produced(broker, client)
    for key in (*second, *second):  # by a program that asked again: two markers
        client.delete_object(Bucket=BUCKET, Key=key)
    for key in third:  # what lies behind the marker is not what was written
        client.put_object(Bucket=BUCKET, Key=key, Body=b"x")
        client.delete_object(Bucket=BUCKET, Key=key)

    def undelete(*options: str) -> list[tuple[int, str]]:
        arguments = ("admin", "lost", "--undelete", "--json", "--data-dir", data)
        found = json.loads(drayd(*arguments, *options, **settings))
        return [(each["first"], each["state"]) for each in found]

    with DrayProcess(tmp_path, name="second", data_directory=data, settings=settings) as broker:
        assert consume(broker.bootstrap, 15, KafkaError.INVALID_MSG) == [KafkaError.INVALID_MSG]
        other = (10, "its newest version has 1 bytes: another object")
        [(first, state), preview] = undelete()
        assert (first, state.partition(" of ")[0], preview) == (5, "a version", other)
        # It was a preview: the first is still to be brought back.
        assert undelete("orders", "--execute") == [(5, "back"), other]
        for key in third:
            newest = client.list_object_versions(Bucket=BUCKET, Prefix=key)["Versions"][0]
            client.delete_object(Bucket=BUCKET, Key=key, VersionId=newest["VersionId"])
        assert undelete("--execute") == [(10, "back")]
        assert consume(broker.bootstrap, 15) == [*range(15)]

        for key in third:
            client.delete_object(Bucket=BUCKET, Key=key)
            for each in client.list_object_versions(Bucket=BUCKET, Prefix=key)["Versions"]:
                client.delete_object(Bucket=BUCKET, Key=key, VersionId=each["VersionId"])
        assert undelete("--execute") == [(10, "no version is left")]


def test_a_bucket_without_versions_is_one_line(tmp_path: Path) -> None:
    with S3Process(tmp_path / "s3") as server:
        client, data, settings = client_of(server), tmp_path / "data", settings_of(server)
        with DrayProcess(tmp_path, data_directory=data, settings=settings) as broker:
            _, second, _ = produced(broker, client)
        for key in second:
            client.delete_object(Bucket=BUCKET, Key=key)
        said = refused("admin", "lost", "orders", "--undelete", "--execute", "--data-dir", data, **settings)
    assert "the bucket keeps no versions: put the objects back from a copy" in said
