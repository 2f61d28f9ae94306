"""Kubernetes' own description of its objects, and a program that holds objects against it: no cluster needed.

The schemas of many versions are in a package of PyPI, of 17,000 files: what is asked for is taken out of it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.services.go_build import ProgramMissing, go_program
from tests.services.tools import cache_directory, exclusively, missing

SCHEMAS = "kubernetes-validate==1.37.0"
SHA256 = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"
VERSIONS = ("1.25.0", "1.30.0", "1.36.0")


def require_kubeconform() -> Path:
    try:
        return go_program("github.com/yannh/kubeconform/cmd/kubeconform", "v0.7.0")
    except ProgramMissing as reason:
        missing(str(reason))


def require_schemas() -> Path:
    """A directory with one of schemas for each version."""
    home = cache_directory() / SCHEMAS.replace("==", "-")
    with exclusively(home):
        if not (home / "complete").exists():
            _take_out(_download(home), home)
            (home / "complete").touch()
    return home


def _download(home: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--dest", str(home)]
    command = [sys.executable, "-m", "pip", "download", *options, SCHEMAS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        missing(f"needs {SCHEMAS}: {done.stderr.strip().splitlines()[-1]}")
    [wheel] = home.glob("*.whl")
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        missing(f"{SCHEMAS} has other bytes than those that were checked")
    return wheel


def _take_out(wheel: Path, home: Path) -> None:
    folders = {f"v{version}-local-strict": home / version for version in VERSIONS}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            folder, _, file = name.rpartition("/")
            target = folders.get(folder.rpartition("/")[2])
            if target is not None:
                target.mkdir(exist_ok=True)
                # They name each other by addresses on a server: here they lie beside each other.
                schema = json.loads(archive.read(name).replace(b'"/api/_definitions', b'"_definitions'))
                schema.pop("$id", None)
                (target / file).write_text(json.dumps(schema))
    wheel.unlink()


def refused_fields(objects: list[dict[str, Any]], version: str) -> str:
    """All that Kubernetes of that version would refuse in these objects, or nothing."""
    schemas = require_schemas() / version / "{{ .ResourceKind }}{{ .KindSuffix }}.json"
    done = subprocess.run(
        [require_kubeconform(), "-strict", "-schema-location", str(schemas), "-"],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""
