"""The one config model: its settings, where their values come from, and how they are shown.

Defaults < YAML file < `DRAY_...` environment < flags. Only `cli/` and `daemon/` read it: the
rooms take explicit parameters, so that none of them depends on how a broker is configured.
"""

from dray.config.load import FlagValue, LoadedConfig, load
from dray.config.model import Settings
from dray.config.problems import ConfigError

__all__ = ["ConfigError", "FlagValue", "LoadedConfig", "Settings", "load"]
