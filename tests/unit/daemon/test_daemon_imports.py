"""What a broker loads before it serves: engines that it does not use cost a second and fifteen megabytes."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "grpc",
    "google.protobuf",
    "pyspark",
    "pyiceberg",
    "duckdb",
    "jwt",
    "cryptography",
    "starlette",
    "jinja2",
)


@pytest.mark.parametrize("module", ["dray.daemon.broker", "dray.daemon.node", "dray.cli.main"])
def test_an_embedded_broker_loads_no_engine_that_it_does_not_use(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    loaded = set(found.stdout.split())
    assert module in loaded
    assert loaded.isdisjoint(HEAVY)
