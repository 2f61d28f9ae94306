"""Brokers with nothing in common but three etcd servers and an S3 server, each of them killed and frozen."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.services.counting import CountingProducer
from tests.services.dray import DrayProcess, drayd_path
from tests.services.etcd import EtcdCluster, EtcdProcess
from tests.services.logbook import read_partition
from tests.services.marks import longer
from tests.services.process import free_port
from tests.services.proxy import TcpProxy
from tests.services.s3 import BUCKET, S3Process
from tests.services.topics import create_topic

TOPIC = "on-etcd"
PARTITIONS = 4


def cluster_settings(endpoints: Sequence[str], s3: S3Process) -> dict[str, str]:
    options = s3.options() | {"timeout": "2s", "backoff": "20ms", "max_backoff": "200ms"}
    return (
        {
            "DRAY_METADATA__ENGINE": "etcd",
            "DRAY_METADATA__ETCD__ENDPOINTS": ",".join(endpoints),
            "DRAY_TEST_KNOB__METADATA__ETCD__REQUEST_TIMEOUT": "1.0",
            "DRAY_OBJECTS__URL": f"s3://{BUCKET}/cluster",
            "DRAY_LOG__FLUSH_LINGER": "20ms",
            "DRAY_BROKER__SESSION_TTL": "3s",
        }
        | {f"DRAY_OBJECTS__OPTIONS__{name.upper()}": value for name, value in options.items()}
        | {f"DRAY_OBJECTS__SECRETS__{name.upper()}": value for name, value in s3.secrets().items()}
    )


def test_nothing_acknowledged_is_lost_whatever_is_killed(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd") as etcd, S3Process(tmp_path / "s3") as s3:
        settings = cluster_settings(etcd.addresses, s3)
        first, second = (
            DrayProcess(
                tmp_path / f"broker-{number}",
                name=f"broker-{number}",
                settings=settings,
                arguments=["--broker-id", str(number)],
            )
            for number in (1, 2)
        )
        with first, second:
            create_topic(first.bootstrap, TOPIC, PARTITIONS)
            bootstrap = f"{first.bootstrap},{second.bootstrap}"
            with CountingProducer(bootstrap, TOPIC, PARTITIONS, name="sender", idempotent=True) as sender:
                sender.wait_for_progress(200)
                leader = etcd.leader()
                leader.kill()
                sender.wait_for_progress(200)
                leader.start()
                first.kill()
                sender.wait_for_progress(200)
                first.start()
                s3.kill()
                s3.start()
                sender.wait_for_progress(200)
                leader = etcd.leader()
                leader.freeze()
                sender.wait_for_progress(200)
                leader.thaw()
                second.kill()
                sender.wait_for_progress(200)
                second.start()
                sender.finish()
            for broker in (first, second):
                for partition in range(PARTITIONS):
                    sender.check(partition, read_partition(broker.bootstrap, TOPIC, partition))
            assert first.terminate() == 0
            assert second.terminate() == 0


def test_a_broker_that_is_cut_off_from_either_store_comes_back(tmp_path: Path) -> None:
    with (
        EtcdProcess(tmp_path / "etcd") as etcd,
        S3Process(tmp_path / "s3") as s3,
        TcpProxy(etcd.port) as to_etcd,
        TcpProxy(s3.port) as to_s3,
    ):
        settings = cluster_settings([to_etcd.address], s3) | {
            "DRAY_OBJECTS__OPTIONS__ENDPOINT": f"http://{to_s3.address}"
        }
        with DrayProcess(tmp_path / "broker", settings=settings) as broker:
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            with CountingProducer(
                broker.bootstrap, TOPIC, PARTITIONS, name="sender", idempotent=True
            ) as sender:
                sender.wait_for_progress(100)
                for proxy in (to_etcd, to_s3):
                    proxy.cut()
                    time.sleep(1)  # a fault that lasts, not a wait for something
                    proxy.mend()
                    sender.wait_for_progress(100)
                    proxy.freeze()
                    time.sleep(1)
                    proxy.thaw()
                    sender.wait_for_progress(100)
                sender.finish()
            for partition in range(PARTITIONS):
                sender.check(partition, read_partition(broker.bootstrap, TOPIC, partition))
            assert broker.terminate() == 0


@pytest.mark.parametrize("carry_bytes", [longer("auto"), "0"])
def test_a_full_etcd_is_told_at_readyz_and_once_in_the_log(tmp_path: Path, carry_bytes: str) -> None:
    """Its reads go on, so only what became of writes shows it."""
    with EtcdProcess(tmp_path / "etcd") as etcd:
        settings = {
            "DRAY_METADATA__ENGINE": "etcd",
            "DRAY_METADATA__ETCD__ENDPOINTS": etcd.address,
            "DRAY_LOG__CARRY_BYTES": carry_bytes,
        }
        with DrayProcess(tmp_path / "broker", settings=settings) as broker:
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            with CountingProducer(
                broker.bootstrap, TOPIC, PARTITIONS, name="sender", idempotent=True
            ) as sender:
                sender.wait_for_progress(100)
                before = len(lines_of(broker))
                etcd.ask("/v3/maintenance/alarm", {"action": "ACTIVATE", "alarm": "NOSPACE"})
                told = wait_until_unready(broker)
                assert told["metadata"]["error"].startswith("StoreFails: writes fail since")
                assert "raise --quota-backend-bytes" in told["metadata"]["error"]
                assert told["objects"] == told["serving"] == {"ok": True}
                etcd.ask("/v3/maintenance/alarm", {"action": "DEACTIVATE", "alarm": "NOSPACE"})
                sender.wait_for_progress(100)
                broker.wait_until_ready()
                sender.finish()
            for partition in range(PARTITIONS):
                sender.check(partition, read_partition(broker.bootstrap, TOPIC, partition))
            lines = lines_of(broker)[before:]
            assert len(lines) <= 12, lines
            fails = [line for line in lines if "a store fails" in line]
            assert len(fails) == 1
            assert "raise --quota-backend-bytes" in fails[0]
            assert len([line for line in lines if "a store works again" in line]) == 1


def lines_of(broker: DrayProcess) -> list[str]:
    return broker.log_path.read_text().splitlines()


def wait_until_unready(broker: DrayProcess) -> dict[str, dict[str, Any]]:
    """What its checks say then."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            broker.http_text("/readyz")
        except HTTPError as error:
            checks: dict[str, dict[str, Any]] = json.load(error)["checks"]
            return checks
        time.sleep(0.2)
    raise TimeoutError("it is still ready")


# --- what keeps a broker from starting


def run_broker(tmp_path: Path, settings: Mapping[str, str]) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DRAY_")}
    addresses = ("--http", "off", "--listen", f"127.0.0.1:{free_port()}")
    done = subprocess.run(
        [str(drayd_path()), "broker", "--data-dir", str(tmp_path / "data"), *addresses],
        env={
            **inherited,
            "DRAY_METADATA__ENGINE": "etcd",
            "DRAY_TEST_KNOB__METADATA__ETCD__PATIENCE": "1.0",
            **settings,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stderr


def test_what_cannot_work_is_one_line_at_the_start(tmp_path: Path) -> None:
    code, errors = run_broker(tmp_path, {"DRAY_METADATA__ETCD__ENDPOINTS": "127.0.0.1:9"})
    assert (code, errors.count("\n")) == (1, 1)
    assert "cannot open the metadata store: no connection to etcd at 127.0.0.1:9: check" in errors
    with EtcdProcess(tmp_path / "etcd", arguments=["--max-txn-ops=100"]) as etcd:
        code, errors = run_broker(tmp_path, {"DRAY_METADATA__ETCD__ENDPOINTS": etcd.address})
        assert (code, errors.count("\n")) == (1, 1)
        assert "start them with --max-txn-ops=128" in errors
        login = {
            "DRAY_METADATA__ETCD__ENDPOINTS": etcd.address,
            "DRAY_METADATA__ETCD__USER": "somebody",
            "DRAY_METADATA__ETCD__SECRETS__PASSWORD": "hidden-word",
        }
        code, errors = run_broker(tmp_path, login)
        assert (code, errors.count("\n")) == (1, 1)
        assert "cannot log in" in errors
        assert "hidden-word" not in errors


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENDPOINTS", "no-port"), ("PREFIX", "with space"), ("TLS", "perhaps")],
)
def test_settings_that_make_no_sense(tmp_path: Path, name: str, value: str) -> None:
    code, errors = run_broker(tmp_path, {f"DRAY_METADATA__ETCD__{name}": value})
    assert (code, errors.count("\n")) == (2, 1)
    assert f"metadata.etcd.{name.lower()}" in errors
