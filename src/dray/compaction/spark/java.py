"""Finding a Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

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
