"""`drayd up` with a Kafka to move topics from, and the commands of an operator."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from dray.cli.main import app
from dray.daemons.assembly.failures import Failure
from tests.services.dray import drayd_path
from tests.services.process import free_port
from tests.services.s3 import BUCKET, S3Process

SECONDS = 120


class MigratingDray:
    """A broker with the migrator that `drayd up` runs beside it."""

    def __init__(
        self,
        directory: Path,
        sources: Mapping[str, object],
        stores: Mapping[str, str] | None = None,
        security: Mapping[str, object] | None = None,
        s3: S3Process | None = None,
    ) -> None:
        """`sources`: as `upstream.clusters` has them; `security`: the section of the config. With `s3`, all
        stores are there."""
        self.directory = directory
        self.bootstrap = f"127.0.0.1:{free_port()}"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
        self.environment = inherited | {
            "DRAY_BROKER__LISTEN": self.bootstrap,
            "DRAY_BROKER__HTTP": "off",
            "DRAY_CONSOLE__ENABLED": "false",
            "DRAY_COMPACTION__ENABLED": "false",
        }
        self.config = directory / "dray.yaml"
        upstream = {"clusters": dict(sources), "group_interval": "200ms", "straggler_watch": "1s"}
        config = {
            "data_dir": str(directory / "data"),
            "upstream": {**upstream, "give_up_time": "1m"},
            "foreign": {"stores": dict(stores or {})},
            "security": dict(security or {}),
        }
        if s3 is not None:
            client = {"options": s3.options(), "secrets": s3.secrets()}
            config["objects"] = {"url": f"s3://{BUCKET}/{directory.name}", **client}
            config["foreign"] = {
                "stores": dict(stores or {}),
                **{
                    part: {f"{store}.{name}": value for store in stores or {} for name, value in each.items()}
                    for part, each in client.items()
                },
            }
        self.config.write_text(yaml.safe_dump(config))
        self.log = directory / "broker.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [drayd_path(), "up", "--config", self.config],
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        self.until(lambda: b"migrator is working" in self.log.read_bytes())

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not done():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()[-5000:]
            time.sleep(0.1)

    def migrate(self, *arguments: str, fails: bool = False) -> str:
        """In this process: a fresh one takes seconds to import everything."""
        done = CliRunner().invoke(app, ["migrate", *arguments, "--config", str(self.config)])
        failure = done.exception
        assert (failure is not None) == fails, (arguments, done.output, failure, self.log.read_text()[-3000:])
        if not fails:
            return done.stdout
        assert isinstance(failure, Failure), failure
        return str(failure)

    def status(self, topic: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.migrate("status", topic, "--json"))
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)
