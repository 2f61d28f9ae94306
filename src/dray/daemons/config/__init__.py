"""The one config: its settings, where their values come from, and how they are shown.

Defaults < YAML file < `DRAY_...` environment < flags. Only `cli/` and `daemons/` read it: each room is given
its own section, so that none of them depends on how a broker is configured.
"""

from dray.daemons.config.load import FlagValue, LoadedConfig, load
from dray.daemons.config.model import Settings
from dray.daemons.config.problems import ConfigError

__all__ = ["ConfigError", "FlagValue", "LoadedConfig", "Settings", "load"]
