"""`drayd` commands against a broker, through the same `main` that the shell runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.cli.main import main


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str], bootstrap: str) -> None:
        self._capsys = capsys
        self._bootstrap = bootstrap

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            main([*arguments, "--bootstrap", self._bootstrap])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def __call__(self, *arguments: str) -> str:
        """What `drayd admin ...` prints when all goes well."""
        code, out, error = self.run("admin", *arguments)
        assert (code, error) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def fails(self, *arguments: str) -> str:
        """The one line that `drayd admin ...` says when it is refused."""
        code, _, error = self.run("admin", *arguments)
        assert code == 1
        assert error.count("\n") == 1
        return error
