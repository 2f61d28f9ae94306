"""Apache Kafka's jars, from wherever this machine's Maven gets its artifacts."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.services.tools import cache_directory, exclusively, missing

KAFKA_VERSION = "4.2.0"
SLF4J_VERSION = "1.7.36"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dray.tests</groupId>
  <artifactId>referee</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{artifacts}
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>{slf4j}</version>
    </dependency>
  </dependencies>
</project>
"""

ARTIFACT = """    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{kafka}</version>
    </dependency>"""

DOWNLOAD_SECONDS = 300


class JarsMissing(Exception):
    """Why this machine cannot have Kafka's jars, in one line."""


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The directory of jars of Apache Kafka, its clients and their dependencies; downloaded once."""
    return _jars(f"kafka-{version}", "kafka_2.13", version=version)


def kafka_tool_jars() -> Path:
    """The same of Kafka's command-line tools, which a server does without."""
    return _jars(f"kafka-tools-{KAFKA_VERSION}", "kafka-tools")


def connect_jars() -> Path:
    """The same of Kafka Connect, with the connectors that read and write files."""
    return _jars(f"kafka-connect-{KAFKA_VERSION}", "connect-runtime", "connect-file")


def streams_jars() -> Path:
    """The same of Kafka Streams."""
    return _jars(f"kafka-streams-{KAFKA_VERSION}", "kafka-streams")


def _jars(directory: str, *artifacts: str, version: str = KAFKA_VERSION) -> Path:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise JarsMissing(f"needs {tool}, which this machine lacks")
    home = cache_directory() / directory
    jars = home / "jars"
    with exclusively(home):
        if (jars / f"kafka-clients-{version}.jar").exists():
            return jars
        pom = home / "pom.xml"
        wanted = [ARTIFACT.format(artifact=artifact, kafka=version) for artifact in artifacts]
        pom.write_text(POM.format(artifacts="\n".join(wanted), slf4j=SLF4J_VERSION))
        fresh = home / "downloading"
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command.append(f"-DoutputDirectory={fresh}")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise JarsMissing(f"Maven did not fetch Kafka's jars in {DOWNLOAD_SECONDS} s") from None
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise JarsMissing(f"Maven could not fetch Kafka's jars: {lines[0]}")
        os.rename(fresh, jars)
    return jars


def require_kafka_jars() -> Path:
    return _required(kafka_jars)


def require_kafka_tools() -> Path:
    return _required(kafka_tool_jars)


def require_connect_jars() -> Path:
    return _required(connect_jars)


def require_streams_jars() -> Path:
    return _required(streams_jars)


def _required(jars: Callable[[], Path]) -> Path:
    try:
        return jars()
    except JarsMissing as reason:
        missing(str(reason))


def compile_java(sources: Path, jars: Path | None = None) -> Path:
    """Compile a directory of Java sources against Kafka's jars, or others: the directory of classes."""
    jars = jars or require_kafka_jars()
    if shutil.which("javac") is None:
        missing("needs javac, which this machine lacks")
    files = sorted(sources.glob("*.java"))
    # Several checkouts share the cache: each finds the classes of its own sources.
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    classes = cache_directory() / f"kafka-{KAFKA_VERSION}" / f"test-classes-{digest}"
    with exclusively(classes):
        stamp = classes / ".compiled"
        if not stamp.exists():
            command = ["javac", "-Xlint:all", "-Werror", "-cp", f"{jars}/*", "-d", str(classes)]
            command += [str(file) for file in files]
            subprocess.run(command, check=True, timeout=240)
            stamp.touch()
    return classes
