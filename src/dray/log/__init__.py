"""The log: append, index, read. `service.Log` is what the rooms above use; `types` is what it answers.

The writes and their order are those of the commit protocol; `docs/design/0001` says which module
does which step. The names here are loaded when they are used: a command that reads the settings of the log
does not load the log.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dray.log.life.collector import Collector
    from dray.log.observer import Collection, LogObserver
    from dray.log.service import Log
    from dray.log.settings import LogSettings

__all__ = ["Collection", "Collector", "Log", "LogObserver", "LogSettings"]

_HOMES: Final = {
    "Collection": "observer",
    "Collector": "life.collector",
    "Log": "service",
    "LogObserver": "observer",
    "LogSettings": "settings",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
