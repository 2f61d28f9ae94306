"""Time, chance and tasks, injected. See `contract`."""

from dray.runtime.contract import Runtime
from dray.runtime.system import SystemRuntime

__all__ = ["Runtime", "SystemRuntime"]
