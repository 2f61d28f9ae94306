"""Project Nessie (Apache-2.0), from Maven Central, over an S3 server. It needs Java 21."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.process import ServerProcess, free_ports
from tests.services.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Process
from tests.services.tools import cache_directory, exclusively, find_tool, missing

VERSION = "0.99.0"
JAVA = 21
ARTIFACT = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"
DOWNLOAD_SECONDS = 600


def require_nessie() -> Path:
    """Its jar, or the end of the test."""
    if find_tool("mvn") is None:
        missing("needs mvn, which this machine lacks")
    home = cache_directory() / f"nessie-{VERSION}"
    jar = home / f"nessie-quarkus-{VERSION}-runner.jar"
    with exclusively(home):
        if not jar.exists():
            command = [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={ARTIFACT}",
                f"-DoutputDirectory={home}",
            ]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
            if done.returncode != 0:
                lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
                missing(f"Maven could not fetch Nessie: {lines[0]}")
    return jar


def require_java() -> Path:
    """One that is new enough, wherever Debian and others put it."""
    found = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    for home in [*found, *sorted(Path("/usr/lib/jvm").glob("*"))]:
        release = home / "release"
        told = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.is_file() else None
        if told is not None and int(told[1]) >= JAVA and (home / "bin" / "java").is_file():
            return home / "bin" / "java"
    return missing(f"needs Java {JAVA} or newer, which this machine lacks")


class NessieProcess(ServerProcess):
    def __init__(self, directory: Path, s3: S3Process, prefix: str) -> None:
        super().__init__("nessie", directory)
        self.jar, self.java = require_nessie(), require_java()
        self.port = free_ports(2)
        store = "nessie.catalog.service.s3.default-options"
        self.settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": self.port + 1,
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "lake",
            "nessie.catalog.warehouses.lake.location": f"s3://{BUCKET}/{prefix}/",
            f"{store}.endpoint": s3.endpoint,
            f"{store}.region": REGION,
            f"{store}.path-style-access": "true",
            f"{store}.access-key": "urn:nessie-secret:quarkus:store",
            "store.name": ACCESS_KEY,
            "store.secret": SECRET_KEY,
        }

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/iceberg"

    def command(self) -> Sequence[str]:
        settings = [f"-D{name}={value}" for name, value in self.settings.items()]
        return [str(self.java), "-Xmx400m", *settings, "-jar", str(self.jar)]

    def environment(self) -> Mapping[str, str]:
        """Its own AWS client writes metadata files, with checksums that the server does not know."""
        return os.environ | {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}

    def is_ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.uri}/v1/config", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
