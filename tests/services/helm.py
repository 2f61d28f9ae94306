"""Helm, built from the Go module proxy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.services.go_build import ProgramMissing, go_program
from tests.services.tools import find_tool, missing

PACKAGE = "helm.sh/helm/v3/cmd/helm"
VERSION = "v3.22.0"


def require_helm() -> Path:
    """The program, or the end of the test."""
    found = find_tool("helm")
    if found is not None:
        return found
    try:
        return go_program(PACKAGE, VERSION)
    except ProgramMissing as reason:
        missing(str(reason))


def run_helm(directory: Path, *arguments: str) -> str:
    """What it prints. It knows no cluster, and keeps its files in `directory`."""
    environment = os.environ | {
        f"HELM_{kind}_HOME": str(directory / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
    }
    done = subprocess.run(
        [require_helm(), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        raise RuntimeError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def render(
    directory: Path, chart: Path, values: dict[str, Any] | None = None, release: str = "test"
) -> list[dict[str, Any]]:
    """The objects that a chart makes."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(values or {}))
    # Built without a release's flags, it takes itself for one of an old cluster.
    options = ["--namespace", "data", "--values", str(file), "--kube-version", "1.30.0"]
    text = run_helm(directory, "template", release, str(chart), *options)
    return [found for found in yaml.safe_load_all(text) if found]
