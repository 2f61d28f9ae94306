"""Servers do not outlive the process that started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

STARTER = """
import sys
from pathlib import Path
from tests.services.process import ServerProcess

class Sleeper(ServerProcess):
    def command(self):
        return [sys.executable, "-c", "import time; time.sleep(600)"]

    def is_ready(self):
        return True

first, second = (Sleeper(name, Path(sys.argv[1])) for name in ("first", "second"))
first.start()
second.start()
print(first.pid, second.pid, flush=True)
first.kill()
print("killed", flush=True)
sys.stdin.read()
"""


def test_what_is_left_ends_with_the_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        first, second = (int(pid) for pid in tests.stdout.readline().split())
        assert tests.stdout.readline() == "killed\n"
        assert not psutil.pid_exists(first)
        server = psutil.Process(second)
        tests.kill()
        assert server.wait(30) is None
