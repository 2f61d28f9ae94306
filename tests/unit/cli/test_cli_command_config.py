"""`--command-config`: every command that asks brokers takes it, and a mistake in it is one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from dray.cli.main import COMMANDS, load_command, main

SECRET = "hunter2"


def options(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every command below this one, and the names of its options."""
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from options(command.get_command(context, name), (*path, name))
    else:
        yield path, {name for parameter in command.params for name in parameter.opts}


def asking() -> dict[tuple[str, ...], set[str]]:
    found = (each for name in COMMANDS for each in options(load_command(name), (name,)))
    return {path: names for path, names in found if "--bootstrap" in names}


def test_every_command_that_asks_brokers_can_be_told_how() -> None:
    commands = asking()
    assert {("admin", "topics", "list"), ("admin", "user", "add"), ("top",), ("console",)} <= set(commands)
    assert [path for path, names in commands.items() if "--command-config" not in names] == []


COMMANDS_WITHOUT_ARGUMENTS = [("admin", "topics", "list"), ("admin", "cluster"), ("top",), ("console",)]


@pytest.mark.parametrize("command", COMMANDS_WITHOUT_ARGUMENTS)
def test_a_mistake_is_one_line_before_anything_is_asked(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.jaas.config={SECRET}\n")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--bootstrap", "127.0.0.1:1", "--command-config", str(file)])
    assert ended.value.code == 2
    line = f"drayd: --command-config = '{file}': sasl.mechanism: must be one of"
    error = capsys.readouterr().err
    assert error.startswith(line)
    assert error.count("\n") == 1
    assert SECRET not in error


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admin", "cluster", "--command-config", "/none"])
    assert ended.value.code == 2
    words = "--command-config = '/none': cannot read '/none': No such file or directory"
    assert capsys.readouterr().err == f"drayd: {words}\n"
