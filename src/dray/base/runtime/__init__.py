"""Time, chance and tasks, injected (see `contract`), and bounds: on work, and who may wait for it."""

from dray.base.runtime.background import BackgroundTasks, KeptTask, keep_running, run_once
from dray.base.runtime.bounds import Allowance, Places, owner_of
from dray.base.runtime.contract import DAY_MS, ExpiryClock, Runtime, UndoubtedClock
from dray.base.runtime.requests import AnswerRoom, CloseConnection, EndlessRoom
from dray.base.runtime.shown import cut
from dray.base.runtime.system import RuntimeInPlace, SystemRuntime
from dray.base.runtime.turns import (
    AT_A_TIME,
    FEW,
    FairTurns,
    FairWork,
    Turns,
    TurnShare,
    current_share,
    gather_some,
    in_turns,
    map_some,
    side_by_side,
)

__all__ = [
    "AT_A_TIME",
    "DAY_MS",
    "FEW",
    "Allowance",
    "AnswerRoom",
    "BackgroundTasks",
    "CloseConnection",
    "EndlessRoom",
    "ExpiryClock",
    "FairTurns",
    "FairWork",
    "KeptTask",
    "Places",
    "Runtime",
    "RuntimeInPlace",
    "SystemRuntime",
    "TurnShare",
    "Turns",
    "UndoubtedClock",
    "current_share",
    "cut",
    "gather_some",
    "in_turns",
    "keep_running",
    "map_some",
    "owner_of",
    "run_once",
    "side_by_side",
]
