"""A real S3 server: versitygw (Apache-2.0), which keeps objects as files."""

from __future__ import annotations

import os
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.certificates import Certificates
from tests.services.go_build import ProgramMissing, go_program
from tests.services.process import POLL_SECONDS, ServerProcess, free_port
from tests.services.tools import missing

PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"

BUCKET = "dray-bucket"
REGION = "eu-test-1"
ACCESS_KEY = "dray-access-key"
SECRET_KEY = "dray-hidden-secret-key"


def require_s3() -> Path:
    """The server's program, or the end of the test."""
    try:
        return go_program(PACKAGE, VERSION)
    except ProgramMissing as reason:
        missing(str(reason))


class S3Process(ServerProcess):
    """It keeps its port and its data over kill and restart."""

    def __init__(
        self,
        directory: Path,
        *,
        certificates: Certificates | None = None,
        arguments: Sequence[str] = (),
        buckets: Sequence[str] = (BUCKET,),
    ) -> None:
        super().__init__("versitygw", directory)
        self.program = require_s3()
        self.certificates = certificates
        self.arguments = tuple(arguments)
        self.port = free_port()
        self.data = directory / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        for bucket in buckets:
            (self.data / bucket).mkdir(exist_ok=True)

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.port}"

    def options(self) -> dict[str, str]:
        """`objects.options` of a store on this server."""
        options = {"endpoint": self.endpoint, "region": REGION, "path_style": "true"}
        if self.certificates:
            options["ca_file"] = str(self.certificates.authority)
        return options

    def secrets(self) -> dict[str, str]:
        """`objects.secrets` of its only account."""
        return {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}

    def command(self) -> Sequence[str]:
        command = [str(self.program), "--port", f"127.0.0.1:{self.port}", "--region", REGION]
        command += ["--keep-alive", "--quiet", "--health", "/health"]
        if self.certificates:
            command += ["--cert", str(self.certificates.certificate), "--key", str(self.certificates.key)]
        command += [*self.arguments, "posix"]
        if not keeps_attributes(self.data):
            sidecar = self.directory / "attributes"
            sidecar.mkdir(exist_ok=True)
            command += ["--sidecar", str(sidecar)]
        return [*command, str(self.data)]

    def environment(self) -> Mapping[str, str]:
        return os.environ | {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY}

    def is_ready(self) -> bool:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.certificates:
            context = ssl.create_default_context(cafile=str(self.certificates.authority))
            handlers.append(urllib.request.HTTPSHandler(context=context))
        try:
            with urllib.request.build_opener(*handlers).open(f"{self.endpoint}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def freeze(self) -> None:
        """Connections stay open, and nothing is answered. Returns when the last thread stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task")
        while any(") T " not in (thread / "stat").read_text() for thread in threads.iterdir()):
            time.sleep(POLL_SECONDS)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def keeps_attributes(directory: Path) -> bool:
    """Whether files there can carry extended attributes, where the server keeps what S3 knows of them."""
    try:
        os.setxattr(directory, "user.dray-test", b"")
        os.removexattr(directory, "user.dray-test")
    except OSError:
        return False
    return True
