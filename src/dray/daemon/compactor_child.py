"""The compactor that `drayd up` runs beside its brokers, where this machine can run one."""

from __future__ import annotations

from pathlib import Path

import structlog

from dray.compaction.packages import missing_packages
from dray.config import Settings
from dray.daemon.supervisor import Child

_log = structlog.get_logger(__name__)


def compactor_child(settings: Settings, config: Path | None) -> Child | None:
    """None where it is off, and where it cannot run: then a line says why, and the brokers go on without."""
    if not settings.compaction.enabled:
        return None
    reason = _why_not(settings)
    if reason is not None:
        _log.warning("topics are not compacted into tables here", reason=reason)
        return None
    arguments = ["compactor", "--data-dir", settings.data_dir]
    if config is not None:
        arguments += ["--config", str(config)]
    return Child("the compactor", arguments)


def _why_not(settings: Settings) -> str | None:
    if settings.metadata.engine == "memory" or settings.objects_url.startswith("memory:"):
        return "a store in memory cannot be shared with another process"
    missing = missing_packages()
    if missing is not None:
        return missing
    if settings.spark.master.startswith("sc://"):
        return None
    from dray.compaction.spark.java import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as error:
        return str(error)
    return None
