"""How a process writes its log, where the config leaves that to it."""

from __future__ import annotations

import sys

from dray.config import Settings
from dray.telemetry.logs import LogFormat


def log_format(settings: Settings) -> LogFormat:
    wanted = settings.logging.format
    console = sys.stderr.isatty() if wanted == "auto" else wanted == "console"
    return "console" if console else "json"
