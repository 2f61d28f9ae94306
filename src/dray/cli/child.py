"""A `drayd` command as the child of a supervisor: it is asked to stop when its parent dies, however it dies.

    python -m dray.cli.child PARENT-PID COMMAND [ARGUMENT...]

The kernel sends the signal, so a parent that was killed cannot leave an unsupervised broker behind. It sends
one for each thread of the parent, so it must be one that may come twice: SIGUSR1. If the kernel cannot (it is
not Linux), a child outlives a killed parent. SIGHUP, which asks to read files again, does nothing until the
command listens for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
ORPHANED: Final = signal.SIGUSR1
"""Of `dray.daemons.assembly.process`, which is not loaded yet."""


def die_with(parent: int) -> None:
    """From now on the end of `parent` is a SIGUSR1 for this process."""
    signal.signal(ORPHANED, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, ORPHANED, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(128 + ORPHANED)  # the parent died while this process was starting


if __name__ == "__main__":
    die_with(int(sys.argv[1]))

    from dray.cli.main import main

    main(sys.argv[2:])
