"""A real Prometheus, and promtool beside it: Debian's package, unpacked without root. Building it takes ten
minutes, most of them for the clouds in which it can discover targets. `DRAY_TEST_PROMETHEUS` names another
folder with both programs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.services.debian import unpacked
from tests.services.process import free_port
from tests.services.tools import missing

PACKAGE = "prometheus"


def require_prometheus() -> Path:
    """The folder of the programs `prometheus` and `promtool`."""
    named = os.environ.get("DRAY_TEST_PROMETHEUS")
    folder = Path(named) if named else unpacked(PACKAGE, PACKAGE, alone=True) / "usr/bin"
    for program in ("prometheus", "promtool"):
        if not os.access(folder / program, os.X_OK):
            missing(f"{folder / program} cannot be run")
    return folder


def promtool(*arguments: str | Path, directory: Path | None = None) -> str:
    """What it prints; an error of it is the test's."""
    done = subprocess.run(
        [require_prometheus() / "promtool", *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=240,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    return printed


@dataclass(frozen=True)
class Prometheus:
    address: str

    def get(self, path: str, **parameters: str) -> Any:
        with urlopen(f"http://{self.address}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found


@contextmanager
def running_prometheus(
    directory: Path, targets: Mapping[str, Sequence[str]], rules: Path
) -> Iterator[Prometheus]:
    """Scrapes the targets of each job, and evaluates the rules, every second."""
    programs = require_prometheus()
    config = directory / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                    for job, addresses in targets.items()
                ],
            }
        )
    )
    address = f"127.0.0.1:{free_port()}"
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                programs / "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait(10)
