"""Time, chance and tasks, injected (see `contract`), and bounds on work: per turn of the loop, in threads."""

from dray.runtime.allowance import Allowance
from dray.runtime.contract import Runtime
from dray.runtime.system import SystemRuntime
from dray.runtime.turns import Turns

__all__ = ["Allowance", "Runtime", "SystemRuntime", "Turns"]
