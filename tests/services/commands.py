"""Commands as a user types them, with nothing of the test's own environment."""

from __future__ import annotations

import os
import subprocess

from tests.services.dray import drayd_path


def drayd(*arguments: object, **settings: str) -> str:
    return run(str(drayd_path()), *map(str, arguments), **settings)


def run(*command: str, **settings: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
    environment["PATH"] = f"{drayd_path().parent}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        env=environment | settings,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
