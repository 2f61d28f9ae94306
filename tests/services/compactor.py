"""`drayd compactor` as a process of its own, beside brokers and on their stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import ServerProcess


class CompactorProcess(ServerProcess):
    """On the stores of a broker, with its settings and some of its own."""

    def __init__(self, directory: Path, broker: DrayProcess, settings: Mapping[str, str]) -> None:
        super().__init__("compactor", directory)
        self._broker = broker
        self._settings = dict(settings)

    def command(self) -> Sequence[str]:
        return [str(drayd_path()), "compactor", "--data-dir", str(self.directory / "data")]

    def environment(self) -> Mapping[str, str]:
        return dict(self._broker.environment()) | self._settings

    def is_ready(self) -> bool:
        return True  # what counts is what it does to the tables
