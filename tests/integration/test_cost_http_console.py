"""What a crowd at a console may cost: pages come all the while, and memory comes back."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from bench.harness import resident_bytes_of
from tests.services.authorities import Authority
from tests.services.console import ConsoleProcess
from tests.services.consumers import wait_for
from tests.services.dray import DrayProcess
from tests.services.http_crowds import Crowd, Probe, as_many_as

from dray.daemons.console.server import CONNECTIONS

MIB = 1 << 20
PAGES = ("/", "/topics")
ASKED = b"GET /topics HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ConsoleProcess]:
    with (
        DrayProcess(tmp_path / "broker") as broker,
        ConsoleProcess(tmp_path / "console", broker.bootstrap) as process,
    ):
        yield process


class EncryptedConsole(ConsoleProcess):
    """With a certificate, as where other machines reach it."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        super().__init__(directory / "console", bootstrap)
        authority = Authority(directory / "authority")
        self._own = authority.issue("CN=console", ("127.0.0.1",))
        self.trust = ssl.create_default_context(cafile=str(authority.file))

    def environment(self) -> Mapping[str, str]:
        own = {"CERTIFICATE_FILE": str(self._own.certificate), "KEY_FILE": str(self._own.key)}
        return dict(super().environment()) | {f"DRAY_CONSOLE__{name}": value for name, value in own.items()}

    def is_ready(self) -> bool:
        return Probe(self.port, PAGES, self.trust).ask("/") == 200


def test_handshakes_that_do_not_come_keep_nobody_out(tmp_path: Path) -> None:
    """Before, each had a minute, and a thousand had all file descriptors."""
    with (
        DrayProcess(tmp_path / "broker") as broker,
        EncryptedConsole(tmp_path, broker.bootstrap) as console,
    ):
        probe = Probe(console.port, PAGES, console.trust)
        assert [probe.ask(path) for path in PAGES] == [200, 200]
        before = resident_bytes_of(console.pid)
        with Crowd(console.port) as crowd, probe.asking():
            for _ in range(4):
                crowd.come(as_many_as(4000) // 4)
            wait_for("some give way", lambda: 0 < crowd.still_open() <= CONNECTIONS)
            assert [probe.ask(path) for path in PAGES] == [200, 200]
            wait_for("the others have had their time", lambda: crowd.still_open() == 0)
        assert set(probe.outcomes) == {200}, probe.outcomes
        wait_for("memory comes back", lambda: resident_bytes_of(console.pid) - before < 50 * MIB)


def test_connections_that_ask_nothing_keep_nobody_out(console: ConsoleProcess) -> None:
    """Before, every page was a 503 as long as 300 heads were unfinished."""
    probe = Probe(console.port, PAGES)
    assert [probe.ask(path) for path in PAGES] == [200, 200]
    before = resident_bytes_of(console.pid)
    with Crowd(console.port) as crowd, probe.asking():
        for _ in range(10):
            crowd.come(as_many_as(10_000) // 10)
        wait_for("the idlest are closed", lambda: 0 < crowd.still_open() <= CONNECTIONS)
        for at in range(len(ASKED) - 10):
            crowd.say(ASKED[at : at + 1])
        assert [probe.ask(path) for path in PAGES] == [200, 200]
        wait_for("no byte puts the end off", lambda: crowd.still_open() == 0)
    assert set(probe.outcomes) == {200}, probe.outcomes
    wait_for("memory comes back", lambda: resident_bytes_of(console.pid) - before < 50 * MIB)
