"""What `drayd up` was given reaches the processes that it starts: by the environment, a file, and flags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path

import pytest
import yaml
from tests.unit.daemons.recorded_processes import replace_everywhere
from tests.unit.daemons.setting_samples import samples
from typer.testing import CliRunner

from dray.base.telemetry import configure_logging
from dray.cli.commands.up import up as up_command
from dray.cli.main import app
from dray.cli.options import client_security
from dray.daemons.broker.process import serve
from dray.daemons.compactor.process import compact
from dray.daemons.config import Settings
from dray.daemons.config.schema import fields
from dray.daemons.console.process import serve_console
from dray.daemons.supervisor.children import CONSOLE
from dray.daemons.supervisor.fleet import serve_fleet
from dray.daemons.supervisor.processes import Child, Supervisor

COUNTED = {
    "broker.id",
    "broker.listen",
    "broker.http",
    "broker.advertised",
    "broker.listeners",
    "broker.advertised_listeners",
    "log.tail_cache_bytes",
}
"""Each of several brokers has its own: `test_daemon_fleet.py`."""

ONLY_OF_UP = {"compaction.enabled", "console.enabled"}
"""Whether there is a compactor or a console at all: no child asks."""

FLAGS = {
    "--data-dir": ("data_dir", "flagged"),
    "--listen": ("broker.listen", "127.0.0.9:17001"),
    "--http": ("broker.http", "127.0.0.9:17101"),
    "--broker-id": ("broker.id", "40"),
}


class Ended(Exception):
    """Before anything is started."""


class Children:
    """What `drayd up` would start, and the config that each of them then has."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: list[Child] = []
        self._seen: list[Settings] = []

        def supervise(_: Supervisor, children: Sequence[Child], *__: object) -> None:
            self.found = list(children)
            raise Ended

        patch.setattr(Supervisor, "__init__", supervise)
        replace_everywhere(patch, configure_logging, lambda *_, **__: None)  # of the whole test process

    def settings_of_up(self, arguments: Sequence[str]) -> Settings:
        """And its children, in `found`."""
        CliRunner().invoke(app, ["up", "--brokers", "3", *arguments])
        assert self.found
        with pytest.MonkeyPatch.context() as patch:
            replace_everywhere(patch, serve_fleet, self._see)
            CliRunner().invoke(app, ["up", "--brokers", "3", *arguments])
        return self._seen.pop()

    def settings_of(self, child: Child) -> Settings:
        """As it loads them from its arguments, and from the environment that it inherits."""
        with pytest.MonkeyPatch.context() as patch:
            replace_everywhere(patch, serve, self._see)
            replace_everywhere(patch, compact, self._see)
            CliRunner().invoke(app, list(child.arguments), env=dict(child.environment))
        return self._seen.pop()

    def _see(self, settings: Settings, *_: object, **__: object) -> None:
        self._seen.append(settings)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Children:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DRAY_")]:
        monkeypatch.delenv(name)
    return Children(monkeypatch)


def value(settings: Settings, key: str) -> object:
    found: object = settings
    for name in key.split("."):
        found = getattr(found, name)
    return found


def check(children: Children, arguments: Sequence[str], changed: set[str]) -> None:
    up = children.settings_of_up(arguments)
    [*brokers, compactor] = children.found
    assert (len(brokers), compactor.name) == (3, "the compactor")
    default = Settings()
    for key in changed:
        assert value(up, key) != value(default, key), f"{key} was not changed"
    for child in children.found:
        its = children.settings_of(child)
        for known in fields():
            if known.key not in COUNTED | ONLY_OF_UP:
                assert value(its, known.key) == value(up, known.key), f"{child.name}: {known.key}"


def given() -> dict[str, str]:
    """Changed, but for what keeps several brokers from running beside each other."""
    texts = {key: sample.text for key, sample in samples().items()}
    texts |= {"data_dir": "other", "broker.listen": "127.0.0.2:17001", "broker.http": "127.0.0.3:17101"}
    return texts | {"broker.listeners": "{INTERNAL: 127.0.0.4:0}", "spark.master": "sc://sample:15002"}


def test_by_the_environment(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {known.key: known.variable for known in fields()}
    for key, text in given().items():
        monkeypatch.setenv(variables[key], text)
    check(children, [], set(given()))


def test_by_a_file(children: Children, tmp_path: Path) -> None:
    tree: dict[str, object] = {}
    for key, text in given().items():
        section = tree
        *path, name = key.split(".")
        for step in path:
            section = section.setdefault(step, {})  # type: ignore[assignment]
        section[name] = _typed(text)
    file = tmp_path / "dray.yaml"
    file.write_text(yaml.safe_dump(tree))
    check(children, ["--config", str(file)], set(given()))


def _typed(text: str) -> object:
    found = yaml.safe_load(text)
    return found if isinstance(found, (int, Mapping)) else text


@pytest.mark.parametrize("flag", FLAGS)
def test_by_a_flag(children: Children, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, text = FLAGS[flag]
    monkeypatch.setenv("DRAY_SPARK__MASTER", "sc://sample:15002")  # where no Java is needed
    check(children, [flag, text], {key})
    if key in COUNTED:
        first, *others = [value(children.settings_of(child), key) for child in children.found[:-1]]
        assert first == value(children.settings_of_up([flag, text]), key)
        assert len({str(first), *map(str, others)}) == 3


def test_every_flag_of_up_is_among_them() -> None:
    named = {flag.removeprefix("--").replace("-", "_") for flag in FLAGS}
    assert set(signature(up_command).parameters) == named | {
        "brokers",
        "compactor",
        "config",
        "console",
        "no_console",
        "command_config",
        "runs",
    }


def test_the_console_gets_its_own(
    children: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By flags, and by the settings: its arguments are the same, whichever way."""
    monkeypatch.setenv("DRAY_SPARK__MASTER", "sc://sample:15002")
    who = tmp_path / "who.properties"
    who.write_text("security.protocol=PLAINTEXT\n")
    given = ["--console", "127.0.0.1:0", "--command-config", str(who), "--runs", "some/runs"]
    by_flags = CONSOLE.child(children.settings_of_up(given), None, ["127.0.0.1:9092"])
    file = tmp_path / "dray.yaml"
    console = {"listen": "127.0.0.1:0", "command_config": str(who), "runs": "some/runs"}
    file.write_text(yaml.safe_dump({"console": console}))
    by_file = CONSOLE.child(children.settings_of_up(["--config", str(file)]), None, ["127.0.0.1:9092"])
    assert by_flags is not None
    assert by_file is not None
    assert by_flags.arguments == by_file.arguments
    with pytest.MonkeyPatch.context() as patch:
        replace_everywhere(patch, serve_console, children._see)
        replace_everywhere(patch, client_security, lambda file: None)
        CliRunner().invoke(app, list(by_flags.arguments))
    [its] = children._seen
    assert (its.console.command_config, its.console.runs) == (str(who), "some/runs")
