"""`drayd` with a death: SIGKILL, by itself, right after one step of an attach or an abort. `python -m` this
file with the step and then the arguments of `drayd`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any
from unittest import mock

from dray.cli.main import main
from dray.migration.attach import FAILPOINTS, Attacher


def run(step: str, arguments: list[str]) -> None:
    assert step in FAILPOINTS, step
    make = Attacher.__init__

    def reached(seen: str) -> None:
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(self: Attacher, **given: Any) -> None:
        make(self, **given, reached=reached)

    with mock.patch.object(Attacher, "__init__", dying):
        main(arguments)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
