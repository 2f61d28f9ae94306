"""What each broker of `drayd up --brokers` is told: its own id and ports, and the stores they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dray.cli.main import app
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.config import Settings, load
from dray.daemons.supervisor.fleet import broker_children

MIB = 1 << 20


def children(count: int = 3, config: Path | None = None, **environment: str):
    return broker_children(load(None, environment).settings, count, config)


def flags(child) -> dict[str, str]:
    assert child.arguments[0] == "broker"
    rest = child.arguments[1:]
    return dict(zip(rest[::2], rest[1::2], strict=True))


def test_ids_and_ports_count_upwards() -> None:
    found = children(config=Path("dray.yaml"))
    assert [child.name for child in found] == ["broker 0", "broker 1", "broker 2"]
    assert flags(found[2]) == {
        "--data-dir": "./dray-data",
        "--broker-id": "2",
        "--listen": "127.0.0.1:9094",
        "--http": "127.0.0.1:9646",
        "--config": "dray.yaml",
    }


def test_they_start_from_what_is_configured() -> None:
    found = children(
        DRAY_BROKER__ID="7",
        DRAY_BROKER__LISTEN="[::1]:100",
        DRAY_BROKER__HTTP="off",
        DRAY_BROKER__ADVERTISED="kafka.example:19092",
        DRAY_LOG__TAIL_CACHE_BYTES="64MiB",
    )
    assert found[1].name == "broker 8"
    assert flags(found[1])["--listen"] == "[::1]:101"
    assert flags(found[1])["--http"] == "off"
    assert found[1].environment == {"DRAY_BROKER__ADVERTISED": "kafka.example:19093"}


@pytest.mark.parametrize(("command", "wanted"), [("up", 512 * MIB), ("broker", 8192 * MIB)])
def test_one_alone_takes_no_more_than_that_with_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, wanted: int
) -> None:
    served: list[Settings] = []
    monkeypatch.setattr("dray.log.settings.usable_memory", lambda: 1 << 36)
    monkeypatch.setattr("dray.cli.commands.up.serve", lambda settings, *_, **__: served.append(settings))
    assert CliRunner().invoke(app, [command, "--data-dir", str(tmp_path)]).exit_code == 0
    assert [settings.log.tail_bytes for settings in served] == [wanted]


@pytest.mark.parametrize(("memory", "shared"), [(1 << 31, 256 * MIB), (1 << 36, 512 * MIB)])
def test_they_share_the_memory_that_one_would_take(
    monkeypatch: pytest.MonkeyPatch, memory: int, shared: int
) -> None:
    monkeypatch.setattr("dray.log.settings.usable_memory", lambda: memory)
    for child in children(3):
        taken = load(None, child.environment).settings.log.tail_bytes
        assert shared // 3 - 1 <= taken <= shared // 3


def test_ports_that_the_system_chooses_it_chooses_for_each() -> None:
    found = children(DRAY_BROKER__LISTEN="127.0.0.1:0", DRAY_BROKER__HTTP="127.0.0.1:0")
    assert {flags(child)["--listen"] for child in found} == {"127.0.0.1:0"}
    assert {flags(child)["--http"] for child in found} == {"127.0.0.1:0"}


def test_a_broker_may_take_its_grace_to_stop() -> None:
    [child] = children(1, DRAY_BROKER__SHUTDOWN_GRACE="100s")
    assert 100 < child.stop_seconds < 200


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"DRAY_METADATA__ENGINE": "memory"}, "metadata.engine = memory: several brokers need a store"),
        ({"DRAY_OBJECTS__URL": "memory:"}, "objects.url = memory:: several brokers need a store"),
        ({"DRAY_BROKER__LISTEN": "127.0.0.1:65534"}, "broker.listen: 3 ports from 65534 on are beyond 65535"),
        ({"DRAY_BROKER__HTTP": "127.0.0.1:9094"}, "would share ports"),
        ({"DRAY_BROKER__HTTP": "127.0.0.1:9090"}, "would share ports"),
    ],
)
def test_what_cannot_work_is_one_line(environment: dict[str, Any], line: str) -> None:
    with pytest.raises(Failure) as caught:
        children(**environment)
    assert line in str(caught.value)
    assert caught.value.code == USAGE


def test_http_right_behind_the_last_broker_is_fine() -> None:
    assert len(children(DRAY_BROKER__HTTP="127.0.0.1:9095")) == 3
