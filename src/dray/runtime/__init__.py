"""Time, chance and tasks, injected (see `contract`), and bounds on work: per turn of the loop, in threads."""

from dray.runtime.allowance import Allowance
from dray.runtime.answer_room import AnswerRoom, EndlessRoom
from dray.runtime.background import BackgroundTasks, KeptTask, keep_running, run_once
from dray.runtime.close_connection import CloseConnection
from dray.runtime.contract import Runtime
from dray.runtime.expiry import ExpiryClock, UndoubtedClock
from dray.runtime.system import SystemRuntime
from dray.runtime.turns import Turns

__all__ = [
    "Allowance",
    "AnswerRoom",
    "BackgroundTasks",
    "CloseConnection",
    "EndlessRoom",
    "ExpiryClock",
    "KeptTask",
    "Runtime",
    "SystemRuntime",
    "Turns",
    "UndoubtedClock",
    "keep_running",
    "run_once",
]
