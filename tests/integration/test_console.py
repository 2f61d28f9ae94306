"""The console's process: beside a broker, for another cluster, and for Apache Kafka."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.services.console import HOSTILE, ORDERS, BrokerWithConsole, ConsoleProcess, answer_of, fill
from tests.services.dray import DrayProcess, drayd_path
from tests.services.kafka import KafkaProcess
from tests.services.target import ON_CLUSTER

from dray.base.build import build_name

pytestmark = pytest.mark.skipif(ON_CLUSTER, reason="the console runs beside one broker here")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerWithConsole]:
    with BrokerWithConsole(tmp_path_factory.mktemp("up")) as process:
        fill(process.bootstrap)
        yield process


def test_the_cluster_and_its_broker(up: BrokerWithConsole) -> None:
    deadline = time.monotonic() + 60
    while (view := up.view("/cluster"))["groups"] != {"Empty": 2} and time.monotonic() < deadline:
        time.sleep(0.1)  # the last member may still be leaving
    [broker] = view["brokers"]
    assert (view["topics"], view["partitions"], view["leaderless"], view["groups"]) == (
        5,
        10,
        0,
        {"Empty": 2},
    )
    assert broker["http"] == f"127.0.0.1:{up.http_port}"
    assert (broker["leads"], broker["build"], broker["zone"]) == (10, build_name(), "local")
    assert 'dray_build_info{python="' in up.http_text("/metrics")


def test_every_record_is_found(up: BrokerWithConsole) -> None:
    seen: list[tuple[int, int]] = []
    address = "/topics/orders?start=oldest&count=70&text=customer-17&where=key"
    more = ""
    while True:
        view = up.view(address + more)
        seen += [(row["partition"], row["offset"]) for row in view["rows"]]
        if view["continuation"] is None:
            break
        more = f"&after={view['continuation']}"
    wanted = [number for number in range(ORDERS) if number % 40 == 17]
    assert sorted(seen) == sorted((number % 4, number // 4) for number in wanted)


def test_where_every_offset_lies(up: BrokerWithConsole) -> None:
    view = up.view("/topics/orders/map")
    assert [part["end"] for part in view["partitions"]] == [150] * 4
    for part in view["partitions"]:
        pieces = part["pieces"]
        assert (pieces[0]["start"], pieces[-1]["end"]) == (0, 150)
        assert all(one["end"] == other["start"] for one, other in pairwise(pieces))
    record = up.view("/topics/orders/2/7")
    assert record["key"]["text"] == "customer-30"
    assert record["place"]["kind"] in ("carried", "wal"), (
        "a small append: in the metadata store until it is packed"
    )
    large = len(HOSTILE) - 1
    place = up.view(f"/topics/hostile/0/{large}")["place"]
    assert place["kind"] == "wal"
    stored = (up.data_directory / "objects" / place["path"]).read_bytes()
    batch = stored[place["position"] : place["position"] + place["length"]]
    assert HOSTILE[large] in batch


def test_lag_in_records_and_seconds(up: BrokerWithConsole) -> None:
    view = up.view("/groups/billing")
    assert view["lag"] == 4 * 50
    by_place = {(row["topic"], row["partition"]): row for row in view["partitions"]}
    assert by_place["payments", 0]["lag_ms"] == 0
    record = up.view("/topics/orders/1/100")
    behind = by_place["orders", 1]["lag_ms"]
    again = up.view("/groups/billing")["partitions"][1]["lag_ms"]
    assert 0 < behind <= again
    assert record["row"]["timestamp"] > 0
    assert up.view("/groups/warehouse%2Feu%20%3C1%3E")["lag"] == 130


def test_top_shows_the_same(up: BrokerWithConsole) -> None:
    command = [str(drayd_path()), "top", "--bootstrap", up.bootstrap, "--json"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    view = json.loads(ran.stdout)
    assert view["cluster"]["cluster_id"] == up.view("/cluster")["cluster_id"]
    assert {row["name"]: row["lag"] for row in view["groups"]["rows"]}["billing"] == 200
    ran = subprocess.run([*command[:-1], "--once"], check=True, capture_output=True, text=True, timeout=240)
    assert "billing" in ran.stdout


def test_a_console_of_its_own_only_shows(up: BrokerWithConsole, tmp_path: Path) -> None:
    with ConsoleProcess(tmp_path, up.bootstrap) as console:
        assert answer_of(f"{console.address}/topics/orders/0/5")[0] == 200
        status, body = answer_of(f"{console.address}/topics/orders/map")
        assert status == 404, "no stores, no map"
        assert b"Read-only" in body
        view = json.loads(answer_of(f"{console.address}/api/groups/billing")[1])
        assert view["lag"] == 200
        assert view["lag_ms"] > 0, "from the record itself"


def test_apache_kafka_is_shown_too(tmp_path: Path) -> None:
    with (
        KafkaProcess(tmp_path / "kafka") as kafka,
        ConsoleProcess(tmp_path / "console", kafka.bootstrap) as console,
    ):
        fill(kafka.bootstrap)
        for path in (
            "/",
            "/topics",
            "/topics/orders",
            "/topics/hostile/0/4",
            "/topics/orders/settings",
            "/groups",
            "/groups/billing",
            "/groups/billing/reset?to=earliest",
            "/topics/orders/groups",
        ):
            status, body = answer_of(f"{console.address}{path}")
            assert status == 200, body
        view = json.loads(answer_of(f"{console.address}/api/groups/billing")[1])
        assert (view["lag"], view["lag_ms"] > 0) == (200, True)
        page = json.loads(answer_of(f"{console.address}/api/topics?filter=orders")[1])
        assert (page["rows"][0]["records"], page["rows"][0]["size"] > 0) == (ORDERS, True)
        found = json.loads(
            answer_of(f"{console.address}/api/topics/orders?start=oldest&text=customer-17&where=key")[1]
        )
        assert len(found["rows"]) == ORDERS // 40


def test_a_broker_serves_though_the_consoles_address_is_taken(up: BrokerWithConsole, tmp_path: Path) -> None:
    second = BrokerWithConsole(tmp_path)
    second.settings["DRAY_CONSOLE__LISTEN"] = f"127.0.0.1:{up.console_port}"
    with DrayProcess(tmp_path / "second", subcommand="up", settings=second.settings) as process:
        assert process.http_status("/readyz") == 200
        assert "is in use: choose another with --console" in process.log_path.read_text()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:9640"])
def test_it_does_not_listen_to_the_world(listen: str) -> None:
    ran = subprocess.run(
        [drayd_path(), "console", "--listen", listen],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 2
    assert re.fullmatch(r"drayd: console\.listen = .*must be a loopback address.*\n", ran.stderr)


def test_several_brokers_have_one_console(tmp_path: Path) -> None:
    with BrokerWithConsole(tmp_path, brokers=2) as process:
        brokers = process.view("/cluster")["brokers"]
        assert [(row["port"], row["http"]) for row in brokers] == [
            (process.port + number, f"127.0.0.1:{process.http_port + number}") for number in range(2)
        ]
        assert process.terminate() == 0
        with pytest.raises(OSError):
            answer_of(f"{process.console}/")


def test_a_console_stops_with_its_broker(tmp_path: Path) -> None:
    with BrokerWithConsole(tmp_path) as process:
        assert process.terminate() == 0
        with pytest.raises(OSError):
            answer_of(f"{process.console}/")
