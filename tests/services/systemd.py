"""systemd's own opinion of a unit, without installing it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.services.tools import require_tool


def complaints(unit: Path, directory: Path, program: Path) -> str:
    """What `systemd-analyze verify` says about a unit whose program stands where `program` does."""
    analyze = require_tool("systemd-analyze")
    text = unit.read_text().replace("/opt/dray/bin/drayd", str(program))
    copy = directory / unit.name
    copy.write_text(text)
    name = copy.with_name(unit.name.replace("@.", "@0."))
    if name != copy:
        name.symlink_to(copy)
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(name)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stderr.strip() or ("" if done.returncode == 0 else f"exit code {done.returncode}")
