"""The log: append, index, read. `service.Log` is what the rooms above use; `types` is what it answers.

The writes and their order are those of the commit protocol; `docs/design/0001` says which module
does which step.
"""

from dray.log.collector import Collector
from dray.log.observer import Collection, LogObserver
from dray.log.service import Log
from dray.log.settings import LogSettings

__all__ = ["Collection", "Collector", "Log", "LogObserver", "LogSettings"]
