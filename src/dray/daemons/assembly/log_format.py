"""How a process writes its log, where the config leaves that to it."""

from __future__ import annotations

import sys

from dray.base.telemetry.logs import LogFormat
from dray.daemons.config import Settings


def log_format(settings: Settings) -> LogFormat:
    wanted = settings.logging.format
    console = sys.stderr.isatty() if wanted == "auto" else wanted == "console"
    return "console" if console else "json"
