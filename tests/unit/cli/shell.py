"""A command line, run by the same `main` that the shell runs."""

from __future__ import annotations

import pytest

from dray.cli.main import main


class CommandResult:
    def __init__(self, code: int, out: str, error: str) -> None:
        self.code = code
        self.out = out
        self.error = error


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> CommandResult:
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        captured = self._capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)
