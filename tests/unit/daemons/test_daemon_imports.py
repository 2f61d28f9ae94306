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
    "dray.tables.iceberg",
    "duckdb",
    "jwt",
    "cryptography",
    "starlette",
    "jinja2",
)


@pytest.mark.parametrize(
    "module", ["dray.daemons.broker.process", "dray.daemons.broker.node", "dray.cli.main"]
)
def test_an_embedded_broker_loads_no_engine_that_it_does_not_use(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    loaded = set(found.stdout.split())
    assert module in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_broker_that_starts_a_console_beside_it_loads_none_of_it() -> None:
    """What is loaded then is loaded on the event loop, which serves already."""
    script = """
import sys
from dray.daemons.config import Settings
from dray.base.config.kinds import Address
from dray.daemons.config.console import ConsoleSection
from dray.daemons.broker.process import serve
from dray.daemons.supervisor.children import CONSOLE
before = set(sys.modules)
settings = Settings(console=ConsoleSection(listen=Address("127.0.0.1", 0)))
assert CONSOLE.child(settings, None, ["127.0.0.1:9092"]) is not None
print(*(set(sys.modules) - before))
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=240
    )
    assert (found.returncode, found.stdout.split()) == (0, []), found.stderr


def test_a_console_loads_neither_the_brokers_rooms_nor_the_tables_libraries() -> None:
    """It starts within a second, and has 80 MB at most; tables and queries bring their libraries later."""
    script = """
import sys
import dray.daemons.console.process
resident = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(resident, *sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240
    )
    kilobytes, *loaded = found.stdout.split()
    unwanted = {
        "dray.broker.api",
        "dray.broker.groups.coordinator",
        "pyarrow",
        "pyiceberg",
        "duckdb",
        "pyspark",
        "grpc",
    }
    assert set(loaded).isdisjoint(unwanted)
    assert int(kilobytes) < 80 * 1024
