"""The migrator that `drayd up` runs beside its brokers, where the config names a cluster to move from."""

from __future__ import annotations

from pathlib import Path

import structlog

from dray.config import Settings
from dray.daemon.supervisor import Child

_log = structlog.get_logger(__name__)


def migrator_child(settings: Settings, config: Path | None) -> Child | None:
    """None where there is nothing to do for it, and where it cannot run: then a line says why."""
    if not settings.upstream.clusters:
        return None
    if settings.metadata.engine == "memory" or settings.objects_url.startswith("memory:"):
        _log.warning(
            "topics are not moved here", reason="a store in memory cannot be shared with another process"
        )
        return None
    arguments = ["migrator", "--data-dir", settings.data_dir]
    if config is not None:
        arguments += ["--config", str(config)]
    return Child("the migrator", arguments)
