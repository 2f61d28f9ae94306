"""The Python packages and the Java of the data pipeline: what is missing, and the one line that says what to
do.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Final

PACKAGES = ("pyspark", "pyiceberg")


def missing_packages() -> str | None:
    """The advice to give if packages that compaction needs are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    return not_installed(missing) if missing else None


def not_installed(names: Iterable[str]) -> str:
    return f"{' and '.join(names)} not installed: run `make setup-pipeline`, or pip install 'dray[pipeline]'"


def needs(what: str, error: ImportError) -> str:
    """The line for a part that found a package missing when it imported it."""
    return f"{what} cannot run: {not_installed([error.name or 'a package'])}"


# --- a Java that Spark runs on

LEAST_VERSION: Final = 17
_PATIENCE_SECONDS: Final = 30
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class SparkUnavailable(Exception):
    """This machine, or its settings, cannot run Spark: one line that says what to do."""


def find_java(environment: Mapping[str, str] = os.environ) -> str:
    """The `java` of JAVA_HOME, or else of the PATH."""
    home = environment.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise SparkUnavailable(
                f"JAVA_HOME is {home}, but there is no bin/java in it: set it to a Java 17"
            )
    else:
        found = shutil.which("java", path=environment.get("PATH", ""))
        if found is None:
            raise SparkUnavailable(
                f"compaction needs Java {LEAST_VERSION} or newer: install it, or set JAVA_HOME"
            )
        java = found
    version = _version_of(java)
    if version < LEAST_VERSION:
        raise SparkUnavailable(
            f"compaction needs Java {LEAST_VERSION} or newer, and {java} is Java {version}: "
            "install a newer one, or set JAVA_HOME"
        )
    return java


def _version_of(java: str) -> int:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(f"{java} does not run: {error}") from error
    matched = _VERSION.search(done.stderr + done.stdout)
    if matched is None:
        raise SparkUnavailable(f"{java} does not say its version")
    first, second = int(matched[1]), int(matched[2] or 0)
    return second if first == 1 else first  # 1.8 was Java 8
