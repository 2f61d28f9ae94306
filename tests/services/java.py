"""Java that is started for seconds: compiled once and not again for speed, which takes two fifths less of the
processors. What `make soak` measures runs as people run it."""

from __future__ import annotations

import os
from typing import Final

QUICK: Final = "-XX:TieredStopAtLevel=1"
_SPARK: Final = f"{QUICK} -XX:+UseSerialGC"
_ASKED: Final = "DRAY_TEST_QUICK_JAVA"


def start_java_quickly() -> None:
    """From here on, in this process and those that it starts."""
    os.environ[_ASKED] = "1"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _SPARK)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _SPARK)


def quick_options() -> tuple[str, ...]:
    return (QUICK,) if _ASKED in os.environ else ()
