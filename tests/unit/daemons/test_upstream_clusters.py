"""The clusters that the config names: read, shown, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.unit.kafka.client.client_fakes import Write, running

from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.failures import Failure
from dray.daemons.config import ConfigError, Settings, load
from dray.daemons.config.schema import fields
from dray.daemons.migrator import upstream_clusters
from dray.daemons.migrator.upstream_clusters import UnknownUpstream, UpstreamClusters
from dray.kafka.client import ClientError
from dray.kafka.protocol import RequestHeader


def settings(tmp_path: Path, upstream: object, environment: dict[str, str] | None = None) -> Settings:
    file = tmp_path / "dray.yaml"
    file.write_text(yaml.safe_dump({"upstream": upstream}))
    return load(file, environment or {}, []).settings


def test_a_cluster_is_found_by_its_name(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    properties = tmp_path / "old.properties"
    properties.write_text("security.protocol=PLAINTEXT\n")
    found = UpstreamClusters(
        settings(
            tmp_path,
            {
                "clusters": {
                    "old": {"bootstrap": "a:1, [::1]:2", "command_config": str(properties)},
                    "plain": "b:3",
                }
            },
            {"DRAY_UPSTREAM__CLUSTERS__THIRD": "c:4"},
        ),
        runtime,
    )
    assert found.names == ["old", "plain", "third"]
    assert found.bootstrap("old") == [("a", 1), ("::1", 2)]
    assert found.bootstrap("third") == [("c", 4)]
    assert found.open("plain").view.brokers == {}
    with pytest.raises(
        UnknownUpstream, match=r"no upstream 'new' \(there are: old, plain, third\): add it to"
    ):
        found.open("new")


async def test_a_broker_of_the_source_that_stands_still_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch would wait for it with its fence up, for longer than it may."""
    monkeypatch.setattr(upstream_clusters, "SILENCE_SECONDS", 0.05)

    async def silent(_header: RequestHeader, _body: memoryview, _write: Write) -> None: ...

    async with running(silent) as broker:
        wanted = settings(tmp_path, {"clusters": {"old": f"127.0.0.1:{broker.port}"}})
        with pytest.raises(ClientError, match=r"has been silent for 0\.05 s"):
            await UpstreamClusters(wanted, SystemRuntime(threads=1)).open("old").learn(None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"old": 9092},
        {"old": "kafka"},
        {"Old": "a:1"},
        {"old": {"bootstrap": "a:1", "password": "x"}},
        {"old": {"command_config": "f"}},
        {"old": {"bootstrap": "a:1", "command_config": ""}},
        {"old": "{bootstrap"},
        ["a:1"],
    ],
)
def test_what_names_no_cluster_is_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"upstream\.clusters"):
        settings(tmp_path, {"clusters": wrong})


def test_properties_that_cannot_be_used_are_found_out_at_the_start(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    file = tmp_path / "old.properties"
    wanted = settings(tmp_path, {"clusters": {"old": {"bootstrap": "a:1", "command_config": str(file)}}})
    with pytest.raises(Failure, match=r"upstream\.clusters old: command_config = .*: cannot read"):
        UpstreamClusters(wanted, runtime)
    file.write_text("security.protocol=SASL_SSL\nsasl.unknown=1\n")
    with pytest.raises(Failure, match=r"upstream\.clusters old: .*sasl\.unknown: is not known here"):
        UpstreamClusters(wanted, runtime)


def test_a_broker_goes_on_without_a_source_whose_properties_it_may_not_read(tmp_path: Path) -> None:
    """It serves all other topics. A migrator does not: it has nothing else to do."""
    runtime = SystemRuntime(threads=1)
    unreadable = {"bootstrap": "a:1", "command_config": str(tmp_path / "of-the-migrator.properties")}
    wanted = settings(tmp_path, {"clusters": {"old": unreadable, "older": "b:1"}})
    found = UpstreamClusters(wanted, runtime, for_brokers=True)
    assert found.names == ["older"]
    assert list(found.left_out) == ["old"]
    assert "cannot read" in found.left_out["old"]
    with pytest.raises(UnknownUpstream):
        found.open("old")


def test_brokers_have_a_file_of_their_own_and_read_no_other(tmp_path: Path) -> None:
    """In `command_config` is a user that may alter the source's ACLs: brokers need no such right."""
    runtime = SystemRuntime(threads=1)
    files = {name: tmp_path / f"{name}.properties" for name in ("command", "forward")}
    for name, file in files.items():
        file.write_text(f"client.id={name}\n")
    address = {
        "bootstrap": "a:1",
        "command_config": str(files["command"]),
        "forward_config": str(files["forward"]),
    }
    wanted = settings(tmp_path, {"clusters": {"old": address, "plain": "b:1"}})
    migrator = UpstreamClusters(wanted, runtime)
    assert migrator.open_as_brokers("old") is not None
    assert migrator.open_as_brokers("plain") is None
    files["command"].unlink()
    assert UpstreamClusters(wanted, runtime, for_brokers=True).names == ["old", "plain"]
    with pytest.raises(Failure, match=r"upstream\.clusters old: command_config = .*: cannot read"):
        UpstreamClusters(wanted, runtime)
    files["command"].write_text("")
    files["forward"].write_text("sasl.unknown=1\n")
    found = UpstreamClusters(wanted, runtime, for_brokers=True)
    assert "forward_config = " in found.left_out["old"]
    with pytest.raises(Failure, match=r"upstream\.clusters old: forward_config = .*sasl\.unknown"):
        UpstreamClusters(wanted, runtime)


def test_what_was_read_can_be_read_again(tmp_path: Path) -> None:
    """`drayd config show` prints it."""
    address = {"bootstrap": "a:1,b:2", "command_config": "c", "forward_config": "f"}
    wanted = settings(tmp_path, {"clusters": {"old": address, "plain": "b:1"}})
    [shown] = [
        item.kind.render(wanted.upstream.clusters) for item in fields() if item.key == "upstream.clusters"
    ]
    assert shown == {"old": address, "plain": "b:1"}
