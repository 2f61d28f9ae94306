"""`drayd` as a process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from tests.services.metadata import store_settings
from tests.services.process import ServerProcess, free_port


def drayd_path() -> Path:
    """The `drayd` beside the Python that runs the tests: the one of this checkout."""
    return Path(sys.executable).parent / "drayd"


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is asked directly, whatever proxy the machine's environment names."""


HELD_UP = b"the event loop was held up"
"""What a broker logs of a turn of its loop that took more than 100 ms of processor time."""


UNLESS_ASKED = {
    "DRAY_CLUSTER__TALLY_INTERVAL": "500ms",
    "DRAY_COMPACTION__ENABLED": "false",
    "DRAY_CONSOLE__ENABLED": "false",
    "DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "100ms",
    "DRAY_LOG__RETENTION_INTERVAL": "30d",
    "DRAY_METADATA__BALLAST": "0",
}
"""Unless a test asks for it, a process soon knows whether it is the cluster, neither Spark nor a console is
started beside a broker, a new group does not wait three seconds for more members, and retention does not come
by: tests write records of years ago. The directories of hundreds of brokers are kept: without ballast."""

FOR_ALL: dict[str, str] = json.loads(os.environ.get("DRAY_TEST_SETTINGS", "{}"))
"""Settings of every broker that does not have its own, by hand: `{"DRAY_LOG__RETENTION_INTERVAL": "1s"}`
shows which tests lean on the time that they take."""


def with_knobs(settings: Mapping[str, str]) -> dict[str, str]:
    """What has to be in the environment beside settings such as `DRAY_TEST_KNOB__LOG__COLLECT_SECONDS`."""
    knobs = any(name.startswith("DRAY_TEST_KNOB__") for name in settings)
    return {"PYTHONPATH": str(Path(__file__).parent / "knobs")} if knobs else {}


class DrayProcess(ServerProcess):
    """A broker on loopback. It keeps its data directory and its ports over kill and restart."""

    spawned: ClassVar[set[DrayProcess]] = set()
    """Those whose log has not been looked at since they were up."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "drayd",
        data_directory: Path | None = None,
        subcommand: str = "broker",
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(name, directory)
        self.data_directory = data_directory or directory / "data"
        self.subcommand = subcommand
        self.settings = dict(settings or {})
        self.arguments = tuple(arguments)
        self.port = free_port()
        self.http_port = free_port()
        self._looked_at = 0  # bytes of its log

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return [
            str(drayd_path()),
            self.subcommand,
            "--data-dir",
            str(self.data_directory),
            "--listen",
            self.bootstrap,
            "--http",
            f"127.0.0.1:{self.http_port}",
            *self.arguments,
        ]

    def environment(self) -> Mapping[str, str]:
        """The caller's environment without DRAY_ settings meant for the tests themselves, plus ours."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
        given = UNLESS_ASKED | store_settings(self.data_directory) | FOR_ALL | self.settings
        return inherited | given | with_knobs(given)

    def spawn(self) -> None:
        super().spawn()
        DrayProcess.spawned.add(self)

    @classmethod
    def held_up(cls) -> list[str]:
        """What the logs of all brokers say, since this was asked last, of turns that took too long."""
        found: list[str] = []
        for process in list(cls.spawned):
            with process.log_path.open("rb") as log:
                log.seek(process._looked_at)
                lines = log.read()
            process._looked_at += len(lines)
            found += [
                f"{process.name}: {line.decode(errors='replace')}"
                for line in lines.splitlines()
                if HELD_UP in line
            ]
            if not process.alive:
                cls.spawned.discard(process)
        return found

    def is_ready(self) -> bool:
        return self.http_status("/readyz") == 200

    def http_status(self, path: str) -> int | None:
        """The status of an HTTP answer, None while there is no answer."""
        try:
            with OPENER.open(f"http://127.0.0.1:{self.http_port}{path}", timeout=2) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def http_text(self, path: str) -> str:
        with OPENER.open(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def lacks_objects(self) -> bool:
        """Does it say that its object store is away? While it carries, it is ready all the same."""
        try:
            said = self.http_text("/readyz")
        except urllib.error.HTTPError as error:
            said = error.read().decode()
        return json.loads(said)["checks"]["objects"]["ok"] is False

    def freeze(self) -> None:
        freeze_process(self.pid, self.data_directory)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def freeze_process(pid: int, data_directory: Path | None = None) -> None:
    """SIGSTOP, while the metadata file is not written to; it stands still when this returns. One that is
    stopped in the middle of a write keeps the embedded store's one lock, and then no other process can write:
    a limit of that store, and no test of the brokers."""
    with ExitStack() as stack:
        embedded = None if data_directory is None else data_directory / "metadata.sqlite.lock"
        if embedded is not None and embedded.exists():
            fcntl.flock(stack.enter_context(embedded.open("rb+")), fcntl.LOCK_EX)
        os.kill(pid, signal.SIGSTOP)
        while not all(_is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
            time.sleep(0.001)


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
