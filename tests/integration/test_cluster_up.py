"""`drayd up --brokers 3`: three processes, one command, one data directory."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from tests.services.consumers import wait_for
from tests.services.counting import CountingProducer
from tests.services.dray import DrayProcess, drayd_path
from tests.services.logbook import read_partition
from tests.services.process import free_ports
from tests.services.topics import create_topic

COUNT = 3
PARTITIONS = 3


class UpProcess(DrayProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, subcommand="up", arguments=["--brokers", str(COUNT)])
        self.port = free_ports(COUNT)
        self.http_port = free_ports(COUNT)

    def is_ready(self) -> bool:
        first = self.http_port
        try:
            for self.http_port in range(first, first + COUNT):  # noqa: SIM110 - `super` needs a method
                if not super().is_ready():
                    return False
            return True
        finally:
            self.http_port = first

    def kill(self) -> None:
        """The children are in groups of their own, and end by themselves when this one does."""
        children = self.children() if self.alive else {}
        super().kill()
        psutil.wait_procs(list(children.values()), timeout=30)

    def children(self) -> dict[int, psutil.Process]:
        """The brokers' processes by their ids."""
        found = {}
        for child in psutil.Process(self.pid).children():
            try:
                arguments = child.cmdline()
            except psutil.NoSuchProcess:  # it ended, and its parent has not heard of it yet
                continue
            if "--broker-id" in arguments:
                found[int(arguments[arguments.index("--broker-id") + 1])] = child
        return found

    def addresses(self) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port + 1}", "log_level": 0})
        return {broker.id: broker.port for broker in admin.list_topics(timeout=60).brokers.values()}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    with UpProcess(tmp_path) as process:
        assert isinstance(process, UpProcess)
        yield process


def run_up(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [drayd_path(), "up", "--data-dir", str(directory), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "DRAY_LOGGING__LEVEL": "error"},
    )


def test_three_brokers_one_of_which_is_killed_and_comes_back(up: UpProcess) -> None:
    assert up.addresses() == {number: up.port + number for number in range(COUNT)}
    refused = run_up(up.data_directory, "--brokers", "2", "--listen", "127.0.0.1:0", "--http", "off")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"drayd: drayd is already running on {up.data_directory} (pid {up.pid}): "
        "stop it, or choose another --data-dir\n"
    )
    topic = "supervised"
    create_topic(up.bootstrap, topic, PARTITIONS)
    with CountingProducer(up.bootstrap, topic, PARTITIONS, name="steady", idempotent=True) as producer:
        producer.wait_for_progress(20)
        before = up.children()
        before[1].kill()
        wait_for("it is started again", lambda: up.children().get(1, before[1]).pid != before[1].pid)
        producer.wait_for_progress(20)
        wait_for("it serves again", lambda: set(up.addresses()) == {0, 1, 2})
        producer.finish()
    after = up.children()
    assert (after[0].pid, after[2].pid) == (before[0].pid, before[2].pid)
    assert up.log_path.read_text().count("broker 1 was killed by SIGKILL; it is started again") == 1
    for partition in range(PARTITIONS):
        producer.check(partition, read_partition(up.bootstrap, topic, partition))
    children = list(up.children().values())
    assert up.terminate() == 0
    assert not [child for child in children if child.is_running()]
    assert up.log_path.read_text().count('"event": "broker has stopped"') == COUNT


def test_brokers_do_not_outlive_a_killed_supervisor(up: UpProcess) -> None:
    children = list(up.children().values())
    assert len(children) == COUNT
    os.kill(up.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    assert up.log_path.read_text().count('"event": "broker has stopped"') == COUNT  # gracefully, even so
    up.kill()
    up.start()  # and the directory can be used again


def test_a_terminal_shows_where_to_connect_and_ctrl_c_stops_gracefully(tmp_path: Path) -> None:
    """The terminal sends its signal to all processes in the foreground. A broker that got it there and again
    from its supervisor would end at once."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["DRAY_COMPACTION__ENABLED"] = "false"
        arguments = [
            "--data-dir",
            str(tmp_path),
            "--listen",
            "127.0.0.1:0",
            "--http",
            "off",
            "--brokers",
            "2",
        ]
        os.execv(drayd_path(), ["drayd", "up", *arguments])
    shown = ""
    try:
        while "Ctrl-C" not in shown:
            shown += os.read(terminal, 65536).decode()
        os.write(terminal, b"\x03")
        with suppress(OSError):  # what a terminal says when its last process is gone
            while data := os.read(terminal, 65536):
                shown += data.decode()
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "with 2 brokers" in shown
    addresses = re.search(r"127\.0\.0\.1:(\d+),127\.0\.0\.1:(\d+)", shown)
    assert addresses is not None
    assert "0" not in addresses.groups()
    assert shown.count("broker has stopped") == 2


def test_a_broker_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    first = free_ports(COUNT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 1))
        taken.listen()
        ran = run_up(tmp_path / "data", "--brokers", "3", "--listen", f"127.0.0.1:{first}", "--http", "off")
    assert ran.returncode == 1
    lines = ran.stderr.splitlines()
    assert lines[0].startswith(f"drayd: the address 127.0.0.1:{first + 1} is already in use: stop what ")
    assert lines[-1] == "drayd: broker 1 did not start: it ended with code 1"
    assert len(lines) == 2
