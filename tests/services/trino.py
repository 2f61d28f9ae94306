"""Trino, from Maven Central: a reader of the tables that shares no code with those that write them.

Of its distribution only the server and the Iceberg connector are kept. It needs a newer Java than the rest:
the one that `DRAY_TEST_TRINO_JAVA` names, or one that is installed where Debian puts them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.services.process import ServerProcess, free_port
from tests.services.tools import cache_directory, exclusively, find_tool, missing

VERSION = "476"
LEAST_JAVA = 24
DOWNLOAD_SECONDS = 900
START_SECONDS = 600.0
QUERY_SECONDS = 120

_KEPT = re.compile(rf"trino-server-{VERSION}/(lib|plugin/iceberg)/.+")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class TrinoError(Exception):
    """What Trino said of a query, on one line."""


def require_java() -> Path:
    named = os.environ.get("DRAY_TEST_TRINO_JAVA")
    installed = [Path(named)] if named else sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    found = [java for java in installed if _version(java) >= LEAST_JAVA]
    if not found:
        missing(f"needs Java {LEAST_JAVA} or newer for Trino (DRAY_TEST_TRINO_JAVA)")
    return found[0]


def _version(java: Path) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else 0


def require_trino() -> Path:
    if find_tool("mvn") is None:
        missing("needs mvn, which this machine lacks")
    home = cache_directory() / f"trino-{VERSION}"
    server = home / f"trino-server-{VERSION}"
    with exclusively(home):
        if not server.is_dir():
            _download(home)
    return server


def _download(home: Path) -> None:
    """Maven's own copy of the archive is not kept: it is nearly a gigabyte."""
    fresh = home / "downloading"
    shutil.rmtree(fresh, ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact=io.trino:trino-server:{VERSION}:tar.gz"]
    command += [f"-DoutputDirectory={fresh}", f"-Dmaven.repo.local={fresh / 'maven'}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        missing(f"Maven did not fetch Trino in {DOWNLOAD_SECONDS} s")
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        missing(f"Maven could not fetch Trino: {lines[0]}")
    with tarfile.open(fresh / f"trino-server-{VERSION}.tar.gz") as archive:
        kept = [member for member in archive if _KEPT.fullmatch(member.name)]
        archive.extractall(fresh, members=kept, filter="data")
    (fresh / f"trino-server-{VERSION}").rename(home / f"trino-server-{VERSION}")
    shutil.rmtree(fresh)


class TrinoProcess(ServerProcess):
    """One server that is coordinator and worker. `catalogs` are Trino's properties of each, by its name."""

    def __init__(self, directory: Path, catalogs: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__("trino", directory)
        self.java = require_java()
        self.server = require_trino()
        self.port = free_port()
        folder = directory / "catalogs"
        folder.mkdir()
        for name, properties in catalogs.items():
            lines = [f"{key}={value}" for key, value in properties.items()]
            (folder / f"{name}.properties").write_text("\n".join(lines))

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        config = {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self.port),
            "discovery.uri": self.uri,
            "node.internal-address": "127.0.0.1",
            "query.max-memory": "256MB",
            "query.max-memory-per-node": "200MB",
            "memory.heap-headroom-per-node": "200MB",
        }
        file = self.directory / "config.properties"
        file.write_text("\n".join(f"{name}={value}" for name, value in config.items()))
        options = {
            "config": file,
            "node.id": "one",
            "node.environment": "test",
            "node.data-dir": self.directory / "data",
            "plugin.dir": self.server / "plugin",
            "catalog.config-dir": self.directory / "catalogs",
            "jdk.attach.allowAttachSelf": "true",
            "log.enable-console": "true",
        }
        small = ["-Xmx1G", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        given = [f"-D{name}={value}" for name, value in options.items()]
        return [str(self.java), *small, *given, "-cp", f"{self.server}/lib/*", "io.trino.server.TrinoServer"]

    def start(self, timeout: float = START_SECONDS) -> None:
        super().start(timeout)

    def is_ready(self) -> bool:
        try:
            return not self._ask("/v1/info")["starting"]
        except (OSError, urllib.error.URLError):
            return False

    def rows(self, sql: str) -> list[list[Any]]:
        return [row for page in self._pages(sql) for row in page.get("data", [])]

    def _pages(self, sql: str) -> Iterator[dict[str, Any]]:
        page = self._ask("/v1/statement", sql.encode())
        yield page
        while "nextUri" in page:
            page = self._ask(page["nextUri"].removeprefix(self.uri))
            if "error" in page:
                raise TrinoError(" ".join(page["error"]["message"].split()))
            yield page

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self.uri + path, body, {"X-Trino-User": "reader"})
        with _OPENER.open(request, timeout=QUERY_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
