"""A broker with a tier that another system left, and `drayd migrate` beside it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.daemons.config import FlagValue, Settings, load
from tests.services.dray import DrayProcess, drayd_path

STORE = "old"
SECONDS = 120.0


@dataclass(frozen=True)
class AttachedBroker:
    broker: DrayProcess
    config: Path

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def settings(self) -> Settings:
        """Those of the broker, for what is done beside it."""
        data = FlagValue("test", "data_dir", str(self.broker.data_directory))
        return load(self.config, dict(self.broker.environment()), [data]).settings

    def migrate(self, word: str, topic: str, *arguments: str) -> str:
        return self.run("migrate", word, topic, *arguments, "--execute")

    def run(self, *words: str) -> str:
        """What `drayd` prints, on the stores of the broker."""
        places = ("--config", str(self.config), "--data-dir", str(self.broker.data_directory))
        done = subprocess.run(
            [str(drayd_path()), *words, *places],
            env=dict(self.broker.environment()),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def query(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("query", sql, "--format", "json", "--limit", "0"))
        return found

    def attach(self, topic: str, *arguments: str) -> None:
        place = ("--from", STORE, "--layout", "kafka-tiered", "--bootstrap", self.bootstrap)
        self.migrate("attach", topic, *place, *arguments)


@contextmanager
def attached_broker(directory: Path, tier: Path) -> Iterator[AttachedBroker]:
    config = directory / "dray.yaml"
    config.write_text(f"foreign:\n  stores:\n    {STORE}: file:{tier}\n")
    with DrayProcess(directory, arguments=["--config", str(config)]) as broker:
        yield AttachedBroker(broker, config)
