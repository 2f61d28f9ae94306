"""What `docs/migration.md` tells a newcomer to type, typed: only port and place of the tier are others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.services.dray import drayd_path
from tests.services.process import free_port
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_history import checksums
from tests.services.tools import require_tool
from tests.unit.foreign.fixture_files import LOCAL

from dray.foreign import walk_batches

CHAPTER = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
SECONDS = 120
TOUR = CHAPTER.partition("## From a dead cluster")[2].partition("\n## ")[0]

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")


def commands() -> list[str]:
    return "".join(re.findall(r"```sh\n(.*?)```", TOUR, re.DOTALL)).splitlines()


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
        config = re.search(r"```yaml\n(.*?)```", TOUR, re.DOTALL)
        assert config is not None
        shutil.copytree(LOCAL, directory / "tier")
        (directory / "dray.yaml").write_text(config[1].replace("/srv/tier", str(directory / "tier")))
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


def test_from_a_dead_cluster_to_reading_clients(tmp_path: Path) -> None:
    require_tool("kcat")
    newcomer = Newcomer(tmp_path)
    before = checksums(tmp_path / "tier")
    said: dict[str, str] = {}
    try:
        for command in commands():
            if command.endswith("&"):
                newcomer.starts(command)
                continue
            done = newcomer.types(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said[command.split(" orders")[0].split(" --")[0]] = done.stdout
    finally:
        newcomer.leaves()
    assert re.search(r"^ +0 +0 +\d+ +2 ", said["drayd migrate plan"], re.MULTILINE)
    assert "topic orders is attached: 2 partitions" in said["drayd migrate attach"]
    written = [
        batch.header.record_count
        for path in LOCAL.rglob("*.log")
        for batch in walk_batches(path.read_bytes())
        if not batch.is_control
    ]
    (read,) = [text for command, text in said.items() if command.startswith("kcat")]
    assert len(read.splitlines()) == sum(written) - 50  # one of three transactions was aborted
    assert "do not delete that topic at its source" in said["drayd migrate status"]
    assert checksums(tmp_path / "tier") == before
    assert "Traceback" not in (tmp_path / "broker.log").read_text()
