"""Kafka Connect: one distributed worker, with its state in three topics of the broker."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.services.dray import OPENER
from tests.services.maven import require_connect_jars
from tests.services.process import ServerProcess, free_port

STATE_TOPICS = ("connect-configs", "connect-offsets", "connect-status")
SECONDS = 120.0


class ConnectProcess(ServerProcess):
    def __init__(self, directory: Path, bootstrap: str) -> None:
        super().__init__("connect", directory)
        self.port = free_port()
        self.jars = require_connect_jars()
        configs, offsets, status = STATE_TOPICS
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": configs,
            "offset.storage.topic": offsets,
            "status.storage.topic": status,
            "offset.flush.interval.ms": "200",
            "scheduled.rebalance.max.delay.ms": "0",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
        }
        self.properties_path = directory / "connect.properties"
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def command(self) -> Sequence[str]:
        options = (
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
        )
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return ["java", *options, "-cp", f"{self.jars}/*", main, str(self.properties_path)]

    def start(self, timeout: float = SECONDS) -> None:
        super().start(timeout)

    def is_ready(self) -> bool:
        """It has read its topics up to their ends, and is in its group."""
        try:
            self.ask("GET", "/connectors")
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Raises `OSError` for an answer that is none, or no good one."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            {"Content-Type": "application/json"},
            method=method,
        )
        with OPENER.open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """While the group is being formed it refuses changes for a moment."""
        self._until_taken("PUT", f"/connectors/{name}/config", config)

    def delete(self, name: str) -> None:
        self._until_taken("DELETE", f"/connectors/{name}", None)

    def _until_taken(self, method: str, path: str, body: Mapping[str, Any] | None) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                self.ask(method, path, body)
                return
            except urllib.error.HTTPError as error:
                if error.code != 409 or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def states(self) -> dict[str, list[str]]:
        """By connector, its state and that of its tasks."""
        found = self.ask("GET", "/connectors?expand=status")
        return {
            name: [each["status"]["connector"]["state"], *(task["state"] for task in each["status"]["tasks"])]
            for name, each in found.items()
        }
