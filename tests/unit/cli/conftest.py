"""A `drayd` for the tests of commands."""

from __future__ import annotations

import os

import pytest
from tests.unit.cli.shell import Shell


@pytest.fixture
def drayd(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in os.environ:
        if name.startswith("DRAY_"):
            monkeypatch.delenv(name)
    return Shell(capsys)
