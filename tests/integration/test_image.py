"""The image, built by its Dockerfile and run as containers are: by its own user, on a root that is read-only,
with its data in a volume, and stopped by its signal."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.consumers import wait_for
from tests.services.image import DATA, Image, ImageProcess, require_image, volume
from tests.services.logbook import read_partition
from tests.services.process import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]  # the first run builds for a quarter of an hour

RECORDS = [b"%d" % number for number in range(1000)]


@pytest.fixture(scope="module")
def image() -> Image:
    return require_image()


def test_the_image_is_what_its_dockerfile_says_and_has_nothing_of_the_machine_that_built_it(
    image: Image,
) -> None:
    assert image.config["User"] == "10001"
    assert image.config["Entrypoint"] == ["tini", "--", "drayd"]
    assert image.config["Cmd"] == ["broker"]
    assert image.config["StopSignal"] == "SIGTERM"
    assert image.config["Volumes"].keys() == {DATA}
    assert not any(name.startswith("PIP_") for name in image.config["Env"])
    for mounted_while_building in (image.root / "etc" / "pip.conf", image.root / "root" / ".config" / "pip"):
        assert not mounted_while_building.exists() or mounted_while_building.stat().st_size == 0
    for compiler in ("gcc", "cc"):
        assert not (image.root / "usr" / "bin" / compiler).exists()


def test_records_are_kept_by_a_broker_and_made_rows_by_a_compactor(image: Image, tmp_path: Path) -> None:
    data = volume(tmp_path / "data")
    port, http, compactor_http = free_port(), free_port(), free_port()
    bootstrap = f"127.0.0.1:{port}"
    addresses = {"DRAY_BROKER__LISTEN": bootstrap, "DRAY_BROKER__HTTP": f"127.0.0.1:{http}"}
    broker = ImageProcess(
        "broker",
        tmp_path / "broker",
        image,
        image.config["Cmd"],
        addresses,
        ready=f"http://127.0.0.1:{http}/readyz",
        data=data,
    )
    compactor = ImageProcess(
        "compactor",
        tmp_path / "compactor",
        image,
        ["compactor"],
        {
            "DRAY_SPARK__MASTER": "local[1,3]",
            "DRAY_COMPACTION__HTTP": f"127.0.0.1:{compactor_http}",
            "DRAY_COMPACTION__INTERVAL": "1s",
            "DRAY_COMPACTION__WAL_MAX_AGE": "0s",
        },
        ready=f"http://127.0.0.1:{compactor_http}/readyz",
        data=data,
    )
    with broker:
        admin(image, broker, "topics", "create", "orders", "--partitions", "1", "--bootstrap", bootstrap)
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        for record in RECORDS:
            producer.produce("orders", record, partition=0)
        assert producer.flush(60) == 0
        assert read_partition(bootstrap, "orders", 0) == RECORDS
        compactor.start(timeout=300)
        wait_for("the records are rows", lambda: rows(image, compactor) == len(RECORDS), 300)
        assert "orders" in admin(image, broker, "table", "orders")
        for process in (broker, compactor):
            found = [(user_of(pid), root_is_read_only(pid)) for pid in process.inside()]
            lasting = [one for one in found if None not in one]
            assert len(lasting) >= 2, "tini, and what it runs"
            assert set(lasting) == {(10001, True)}
        assert compactor.terminate() == 0
        assert broker.terminate() == 0
        broker.start()  # a new container on the old volume
        assert read_partition(bootstrap, "orders", 0) == RECORDS
        assert broker.terminate() == 0


def admin(image: Image, process: ImageProcess, *arguments: str) -> str:
    return image.run(["admin", *arguments], process.settings, process.volumes)


def rows(image: Image, process: ImageProcess) -> int:
    """As `drayd query` of the image counts them; 0 while there is no table."""
    question = "select count(*) as n from orders"
    try:
        printed = image.run(["query", question, "--format", "csv"], {}, process.volumes)
    except RuntimeError:
        return 0
    [row] = csv.DictReader(io.StringIO(printed))
    return int(row["n"])


def user_of(pid: int) -> int | None:
    """None if it has ended meanwhile: Spark has children that live for moments."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def root_is_read_only(pid: int) -> bool | None:
    try:
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    except OSError:
        return None
    [options] = [mount[5] for mount in mounts if mount[4] == "/"]
    return "ro" in options.split(",")
