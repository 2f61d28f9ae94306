"""The units are ones that systemd takes, and start commands that drayd has."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

import pytest
from tests.services.dray import drayd_path
from tests.services.systemd import complaints

from dray.cli.main import load_command

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    assert complaints(unit, tmp_path, drayd_path()) == ""


def test_systemd_would_complain(tmp_path: Path) -> None:
    """The check of the check."""
    wrong = tmp_path / "wrong.service"
    wrong.write_text("[Service]\nExecStart=/opt/dray/bin/drayd up\nKillSignal=SIGNONSENSE\n")
    directory = tmp_path / "copies"
    directory.mkdir()
    assert "SIGNONSENSE" in complaints(wrong, directory, drayd_path())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_starts_a_command_of_drayd(unit: Path) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    service = parser["Service"]
    program, name, *arguments = shlex.split(service["ExecStart"].replace("%i", "0"))
    assert program == "/opt/dray/bin/drayd"
    with load_command(name).make_context(name, arguments) as context:
        assert str(context.params["config"]) == "/etc/dray/dray.yaml"
    # drayd tells when it serves, a wrong config is not tried again, and stopping takes its time
    assert service["Type"] == "notify"
    assert service["RestartPreventExitStatus"] == "2"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= 2 * 30 + 5


def hardening(unit: Path) -> set[str]:
    """What the kernel keeps from it."""
    kinds = (
        "NoNew",
        "Private",
        "Protect",
        "Restrict",
        "LockPersonality",
        "StateDirectoryMode",
        "DynamicUser",
    )
    lines = unit.read_text().splitlines()
    return {line for line in lines if line.startswith(kinds) and not line.startswith("RestartPrevent")}


def test_all_units_are_kept_as_close() -> None:
    broker, *others = (hardening(unit) for unit in UNITS)
    assert "ProtectKernelModules=yes" in broker
    assert "StateDirectoryMode=0700" in broker
    assert others == [broker, broker]
