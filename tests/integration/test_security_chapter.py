"""What `docs/security.md` tells a newcomer to type, typed: only the ports are others."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from tests.services.dray import drayd_path
from tests.services.process import free_port
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tools import require_tool

CHAPTER = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
TOUR = CHAPTER.partition("## From nothing")[2].partition("\n## ")[0]
SECONDS = 60

pytestmark = pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts a broker of its own")


def files() -> dict[str, str]:
    """The two files: each is named right before its text."""
    found = re.findall(r"`([a-z.]+)`[^`]*?:\n\n```(?:yaml|properties)\n(.*?)```", TOUR, re.DOTALL)
    return dict(found)


def commands() -> list[str]:
    return "".join(re.findall(r"```sh\n(.*?)```", TOUR, re.DOTALL)).splitlines()


class Newcomer:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {"9094": str(free_port()), "9095": str(free_port())}
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
        self.environment |= {
            "PATH": f"{drayd_path().parent}{os.pathsep}{os.environ['PATH']}",
            # What is not part of the chapter: it takes ports, and time.
            "DRAY_BROKER__LISTEN": f"127.0.0.1:{free_port()}",
            "DRAY_BROKER__HTTP": "off",
            "DRAY_CONSOLE__ENABLED": "false",
            "DRAY_COMPACTION__ENABLED": "false",
            "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "0s",
        }
        self.broker: subprocess.Popen[bytes] | None = None
        for name, text in files().items():
            (directory / name).write_text(self.here(text))

    def here(self, text: str) -> str:
        for port, other in self.ports.items():
            text = text.replace(f"localhost:{port}", f"localhost:{other}")
        return text

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", self.here(command)],
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
                self.here(command).removesuffix("&").split(),
                cwd=self.directory,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        end = time.monotonic() + SECONDS
        while b"broker is serving" not in log.read_bytes() and b"localhost" not in log.read_bytes():
            assert self.broker.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)

    def leaves(self) -> None:
        if self.broker is not None:
            self.broker.terminate()
            self.broker.wait(SECONDS)


def test_the_chapter_has_two_files_and_ten_commands() -> None:
    assert sorted(files()) == ["admin.properties", "dray.yaml"]
    assert len(commands()) == 10


def test_from_nothing_to_mtls_scram_and_acls(tmp_path: Path) -> None:
    require_tool("openssl")
    require_tool("kcat")
    newcomer = Newcomer(tmp_path)
    try:
        for command in commands():
            if command.endswith("&"):
                newcomer.starts(command)
                continue
            done = newcomer.types(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        written = commands()[-1]
        instead = re.search(r"`([^`]*-G readers orders)`\s+in place of\s+`(-P -t orders)`", TOUR)
        assert instead is not None
        reading = written.partition("|")[2].replace(instead[2], f"-c 1 {instead[1]}")
        assert newcomer.types(reading).stdout == "hello\n"
        refused = newcomer.types(written.replace("-t orders", "-t others"))
        assert "Topic authorization failed" in refused.stdout + refused.stderr
        stranger = re.sub(r" -X ssl\.(key|certificate)\.location=\S+", "", written)
        assert newcomer.types(stranger + " -X message.timeout.ms=2000").returncode != 0
        listed = newcomer.types(
            "drayd admin topics list --bootstrap localhost:9094 --command-config admin.properties"
        )
        assert "orders" in listed.stdout
        (tmp_path / "app.pem").write_text(
            (tmp_path / "app.key").read_text() + (tmp_path / "app.crt").read_text()
        )
        example = CHAPTER.partition("in one file:\n\n```properties\n")[2].partition("```")[0]
        (tmp_path / "app.properties").write_text(example)
        shown = newcomer.types(
            "drayd admin topics list --bootstrap localhost:9095 --command-config app.properties"
        )
        assert "orders" in shown.stdout, shown.stderr
    finally:
        newcomer.leaves()
    log = (tmp_path / "broker.log").read_text()
    assert "the client has no certificate, and this listener asks for one" in log
    assert "Traceback" not in log
    assert (tmp_path / "admin.password").read_text().strip() not in log
