"""`drayd` with a death: SIGKILL, by itself, right after one step of a migration. `python -m` this file with
the step and then the arguments of `drayd`. `STEP=SIGNAL:PID` gives that signal to another process instead,
once, and goes on; `STEP=STOP:` stands still itself, until it is woken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from dray.cli.main import main
from dray.migration.attach import steps as attach
from dray.migration.attach.steps import Attacher
from dray.migration.live import migration as live_migration
from dray.migration.live.migration import LiveMigration
from tests.services.dray import freeze_process

STEPS = frozenset(attach.FAILPOINTS) | frozenset(live_migration.FAILPOINTS)


def dying(step: str) -> list[str]:
    """What comes before the arguments of `drayd`."""
    return [sys.executable, "-m", "tests.services.dying_migration", step]


def environment() -> dict[str, str]:
    """So that it is found."""
    return {"PYTHONPATH": str(Path(__file__).parents[2])}


def run(asked: str, arguments: list[str]) -> None:
    step, _, other = asked.partition("=")
    assert step in STEPS, step
    name, _, pid = other.partition(":")
    number = signal.SIGKILL if not other else signal.Signals[f"SIG{name}"]
    data_directory = Path(arguments[arguments.index("--data-dir") + 1])
    acts = [lambda: _give(number, int(pid or os.getpid()), data_directory)]

    def reached(seen: str) -> None:
        if seen == step and acts:
            acts.pop()()

    with (
        mock.patch.object(Attacher, "__init__", _reaching(Attacher.__init__, reached)),
        mock.patch.object(LiveMigration, "__init__", _reaching(LiveMigration.__init__, reached)),
    ):
        main(arguments)


def _give(number: signal.Signals, pid: int, data_directory: Path) -> None:
    if number is signal.SIGSTOP and pid == os.getpid():
        # By another process, which waits until the metadata store is not written to, and all threads stand.
        code = (
            "import sys; from pathlib import Path; from tests.services.dray import freeze_process; "
            "freeze_process(int(sys.argv[1]), Path(sys.argv[2]))"
        )
        subprocess.run([sys.executable, "-c", code, str(pid), str(data_directory)], check=True)
    elif number is signal.SIGSTOP:
        freeze_process(pid, data_directory)
    else:
        os.kill(pid, number)


def _reaching(make: Callable[..., None], reached: Callable[[str], None]) -> Callable[..., None]:
    def made(self: object, *given: Any, **named: Any) -> None:
        make(self, *given, **named, reached=reached)

    return made


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
