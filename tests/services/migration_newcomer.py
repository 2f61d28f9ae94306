"""An operator who types what the pages of migration say: only the port is another one."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.services.dray import drayd_path
from tests.services.process import free_port

DOCS = Path(__file__).parents[2] / "docs"
CHAPTER = (DOCS / "migration.md").read_text()
LIVE_CHAPTER = (DOCS / "migration-live.md").read_text()
SECONDS = 120


class Newcomer:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
        self.environment = inherited | {
            "PATH": f"{drayd_path().parent}{os.pathsep}{os.environ['PATH']}",
            # What is not part of the chapter: it takes ports, and time.
            "DRAY_BROKER__LISTEN": self.address,
            "DRAY_BROKER__HTTP": "off",
            "DRAY_CONSOLE__ENABLED": "false",
            "DRAY_COMPACTION__ENABLED": "false",
        }
        self.broker: subprocess.Popen[bytes] | None = None

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command.replace("localhost:9092", self.address)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def starts(self, command: str) -> None:
        log = self.directory / "broker.log"
        with log.open("wb") as output:
            self.broker = subprocess.Popen(
                command.removesuffix("&").split(),
                cwd=self.directory,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        end = time.monotonic() + SECONDS
        while b"broker is serving" not in log.read_bytes():
            assert self.broker.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def leaves(self) -> None:
        if self.broker is not None:
            self.broker.terminate()
            self.broker.wait(SECONDS)
