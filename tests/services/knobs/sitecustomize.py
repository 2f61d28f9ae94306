"""Changes what no config can, in processes that tests start: Python imports this as it starts.

`DRAY_TEST_KNOB__LOG__COLLECT_SECONDS=1` is another default of `collect_seconds` in the section `log`. Python
finds this folder by `PYTHONPATH` (`tests/services/dray.py`).
"""

import ast
import os
from dataclasses import fields
from typing import Any

from dray.base.config.setting import SECTION
from dray.daemons.config import Settings

PREFIX = "DRAY_TEST_KNOB__"

for variable, text in os.environ.items():
    if variable.startswith(PREFIX):
        *path, knob = variable.removeprefix(PREFIX).lower().split("__")
        section: type[Any] = Settings
        for name in path:
            section = next(each.metadata[SECTION] for each in fields(section) if each.name == name)
        defaults = section.__init__.__kwdefaults__
        if knob not in defaults:
            raise SystemExit(f"{variable}: there is no {knob}")  # Python passes over others
        defaults[knob] = ast.literal_eval(text)
