"""A real REST catalog: the server that Iceberg's own tests use, from Maven Central, over a SQLite file.

`Interference` stands between a client and it, and does to single commits what networks do: a request that
never arrives, an answer that never does, a request that arrives when its sender no longer waits.
"""

from __future__ import annotations

import http.client
import http.server
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Self

from tests.services.java import quick_options
from tests.services.maven import DOWNLOAD_SECONDS, JarsMissing
from tests.services.process import ServerProcess, free_port
from tests.services.tools import cache_directory, exclusively, find_tool, missing

ICEBERG_VERSION = "1.11.0"
JETTY_VERSION = "12.1.1"
SQLITE_JDBC_VERSION = "3.50.3.0"

_DEPENDENCIES = (
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG_VERSION, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", ICEBERG_VERSION, ""),
    ("org.apache.iceberg", "iceberg-core", ICEBERG_VERSION, "tests"),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.2", ""),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2", ""),
    ("org.eclipse.jetty", "jetty-server", JETTY_VERSION, ""),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY_VERSION, ""),
    ("org.eclipse.jetty.compression", "jetty-compression-server", JETTY_VERSION, ""),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", JETTY_VERSION, ""),
    ("org.xerial", "sqlite-jdbc", SQLITE_JDBC_VERSION, ""),
    ("org.slf4j", "slf4j-simple", "2.0.17", ""),
)
_S3_DEPENDENCIES = (
    *_DEPENDENCIES,
    ("org.apache.iceberg", "iceberg-aws", ICEBERG_VERSION, ""),
    ("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG_VERSION, ""),
)
_SPARK_DEPENDENCIES = (
    ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", ICEBERG_VERSION, ""),
    ("org.xerial", "sqlite-jdbc", SQLITE_JDBC_VERSION, ""),
)

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dray.tests</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def require_rest_jars() -> Path:
    return _require(f"iceberg-rest-{ICEBERG_VERSION}", _DEPENDENCIES)


def require_rest_jars_for_s3() -> Path:
    return _require(f"iceberg-rest-s3-{ICEBERG_VERSION}", _S3_DEPENDENCIES)


def require_spark_jars() -> list[Path]:
    """What Spark needs to read the tables: Iceberg's runtime, and a driver for the embedded catalog."""
    directory = _require(f"iceberg-spark-{ICEBERG_VERSION}", _SPARK_DEPENDENCIES)
    wanted = ("iceberg-spark-runtime-", "sqlite-jdbc-")
    return [jar for jar in sorted(directory.glob("*.jar")) if jar.name.startswith(wanted)]


def _require(name: str, dependencies: Sequence[tuple[str, str, str, str]]) -> Path:
    try:
        return _jars(name, dependencies)
    except JarsMissing as reason:
        missing(str(reason))


def _jars(name: str, dependencies: Sequence[tuple[str, str, str, str]]) -> Path:
    for tool in ("java", "mvn"):
        if find_tool(tool) is None:
            raise JarsMissing(f"needs {tool}, which this machine lacks")
    home = cache_directory() / name
    jars = home / "jars"
    with exclusively(home):
        if jars.is_dir():
            return jars
        pom = home / "pom.xml"
        listed = "\n".join(_dependency(*dependency) for dependency in dependencies)
        pom.write_text(_POM.format(name=name, dependencies=listed))
        fresh = home / "downloading"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command.append(f"-DoutputDirectory={fresh}")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise JarsMissing(f"Maven did not fetch Iceberg's jars in {DOWNLOAD_SECONDS} s") from None
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise JarsMissing(f"Maven could not fetch Iceberg's jars: {lines[0]}")
        os.rename(fresh, jars)
    return jars


def _dependency(group: str, artifact: str, version: str, classifier: str) -> str:
    extra = f"<classifier>{classifier}</classifier>" if classifier else ""
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{extra}</dependency>"
    )


class RestCatalogProcess(ServerProcess):
    """It keeps its port and its catalog over kill and restart."""

    def __init__(self, directory: Path, warehouse: Path) -> None:
        super().__init__("iceberg-rest", directory)
        self.jars = require_rest_jars()
        self.warehouse = warehouse
        self.port = free_port()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        options = ("-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        return [
            "java",
            *options,
            *quick_options(),
            "-cp",
            f"{self.jars}/*",
            "org.apache.iceberg.rest.RESTCatalogServer",
        ]

    def environment(self) -> Mapping[str, str]:
        return os.environ | {
            "CATALOG_WAREHOUSE": str(self.warehouse),
            "CATALOG_URI": f"jdbc:sqlite:{self.directory / 'rest-catalog.sqlite'}",
            "CATALOG_REST_PORT": str(self.port),
        }

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@dataclass(frozen=True)
class CatalogRequest:
    """As it came over the wire."""

    method: str
    path: str
    headers: Mapping[str, str] | Message[str, str]
    body: bytes

    @property
    def is_commit(self) -> bool:
        """Of a REST catalog, or of Glue."""
        if self.headers.get("X-Amz-Target") == "AWSGlue.UpdateTable":
            return True
        return self.method == "POST" and b'"add-snapshot"' in self.body


Guard = Callable[[CatalogRequest], tuple[int, bytes] | None]
"""What stands at the door of a catalog: None lets a request in, an answer is given in the catalog's place."""


class Interference:
    """An HTTP proxy in front of a catalog. A setting holds for the next commit only."""

    def __init__(self, port: int, guard: Guard = lambda _: None) -> None:
        self.target = port
        self.guard = guard
        self.commits = 0
        self.authorizations: set[str | None] = set()
        self.held = threading.Event()
        self._next = ""
        self._release = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="interference", daemon=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose_request(self) -> None:
        self._next = "lose request"

    def lose_reply(self) -> None:
        self._next = "lose reply"

    def hold_request(self) -> None:
        """Until it is released: `held` is set meanwhile."""
        self._next = "hold request"

    def answer_garbage(self) -> None:
        """As a gateway in between does, after the catalog has done its work."""
        self._next = "answer garbage"

    def release(self) -> None:
        self._release.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _handler(outer) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def relay(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.authorizations.add(self.headers.get("Authorization"))
                request = CatalogRequest(self.command, self.path, self.headers, body)
                turned_away = outer.guard(request)
                if turned_away is not None:
                    self.answer(turned_away[0], {"Content-Type": "application/json"}, turned_away[1])
                    return
                fate, outer._next = (outer._next, "") if request.is_commit else ("", outer._next)
                outer.commits += request.is_commit
                if fate == "lose request":
                    self.hang_up()
                    return
                if fate == "hold request":
                    outer.held.set()
                    outer._release.wait(30)
                status, headers, answer = self.forward(body)
                if fate == "lose reply":
                    self.hang_up()
                    return
                if fate == "answer garbage":
                    status, headers, answer = 200, {}, b"<html>Bad gateway</html>"
                self.answer(status, headers, answer)

            def answer(self, status: int, headers: Mapping[str, str], answer: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                connection = http.client.HTTPConnection("127.0.0.1", outer.target, timeout=30)
                try:
                    connection.request(self.command, self.path, body, dict(self.headers))
                    answer = connection.getresponse()
                    return answer.status, dict(answer.getheaders()), answer.read()
                except OSError:
                    self.hang_up()
                    raise
                finally:
                    connection.close()

            def hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            do_GET = do_POST = do_HEAD = do_DELETE = relay  # noqa: N815

        return Handler
