"""Real etcd servers: one, or a cluster whose leader can be found and killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.services.certificates import Certificates
from tests.services.go_build import ProgramMissing, go_program
from tests.services.process import POLL_SECONDS, ServerProcess, free_port
from tests.services.tools import cache_directory, exclusively, missing

DEBIAN_PACKAGE = "etcd-server"
GO_PACKAGE = "go.etcd.io/etcd/server/v3"
GO_VERSION = "v3.5.21"
DOWNLOAD_SECONDS = 180

HEARTBEAT_MS = 50
ELECTION_MS = 500


def etcd_program() -> Path:
    """The machine's own, else Debian's package unpacked beside it, else one built from the module proxy."""
    installed = shutil.which("etcd")
    if installed:
        return Path(installed)
    try:
        return unpacked_package()
    except ProgramMissing as reason:
        try:
            return go_program(GO_PACKAGE, GO_VERSION, "etcd")
        except ProgramMissing as other:
            raise ProgramMissing(f"needs etcd: {reason}; {other}") from None


def unpacked_package() -> Path:
    home = cache_directory() / DEBIAN_PACKAGE
    program = home / "package" / "usr" / "bin" / "etcd"
    with exclusively(home):
        if program.exists():
            return program
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise ProgramMissing("this machine has no apt-get to download it with")
        if not run(["apt-get", "download", DEBIAN_PACKAGE], home):
            run(["apt-get", "update"], home)  # a machine that starts bare knows of no packages yet
            if not run(["apt-get", "download", DEBIAN_PACKAGE], home):
                raise ProgramMissing(f"apt-get could not download {DEBIAN_PACKAGE}")
        package = max(home.glob(f"{DEBIAN_PACKAGE}_*.deb"))
        fresh = home / "unpacking"
        if not run(["dpkg-deb", "-x", str(package), str(fresh)], home):
            raise ProgramMissing(f"dpkg-deb could not unpack {package.name}")
        os.rename(fresh, home / "package")
    return program


def run(command: Sequence[str], directory: Path) -> bool:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def require_etcd() -> Path:
    try:
        return etcd_program()
    except ProgramMissing as reason:
        missing(str(reason))


class EtcdProcess(ServerProcess):
    """One member. It keeps its ports and its data over kill and restart."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "etcd",
        certificates: Certificates | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        super().__init__(name, directory)
        self.program = require_etcd()
        self.certificates = certificates
        self.arguments = tuple(arguments)
        self.port = free_port()
        self.peer_port = free_port()
        self.members: Sequence[EtcdProcess] = (self,)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.certificates else 'http'}://{self.address}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def command(self) -> Sequence[str]:
        command = {
            "name": self.name,
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(f"{member.name}={member.peer_url}" for member in self.members),
            "heartbeat-interval": str(HEARTBEAT_MS),
            "election-timeout": str(ELECTION_MS),
            "log-level": "warn",
            "logger": "zap",
        }
        if self.certificates:
            command["cert-file"] = str(self.certificates.certificate)
            command["key-file"] = str(self.certificates.key)
        return [str(self.program), *(f"--{name}={value}" for name, value in command.items()), *self.arguments]

    def is_ready(self) -> bool:
        try:
            return bool(self.ask("/health").get("health") == "true")
        except OSError:
            return False

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Its JSON gateway, for what only a test needs."""
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.certificates:
            context = ssl.create_default_context(cafile=str(self.certificates.authority))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.build_opener(*handlers).open(f"{self.url}{path}", data, timeout=2) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def leads(self) -> bool:
        """Whether it believes to lead."""
        try:
            status = self.ask("/v3/maintenance/status", {})
        except OSError:
            return False
        return bool(status["header"]["member_id"] == status.get("leader"))

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class EtcdCluster:
    """Three members on one machine."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.members = [
            EtcdProcess(directory / f"member-{number}", name=f"etcd-{number}") for number in range(size)
        ]
        for member in self.members:
            member.members = self.members

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    def start(self) -> None:
        for member in self.members:
            member.spawn()
        for member in self.members:
            member.wait_until_ready()

    def leader(self, timeout: float = 20.0) -> EtcdProcess:
        deadline = time.monotonic() + timeout
        while True:
            for member in self.members:
                if member.alive and member.leads():
                    return member
            if time.monotonic() > deadline:
                raise TimeoutError("no member leads")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def __exit__(self, *_: object) -> None:
        self.kill()
