"""The jars of Spark's Kafka connector, from wherever this machine's Maven gets its artifacts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.services.maven import DOWNLOAD_SECONDS, JarsMissing
from tests.services.tools import cache_directory, exclusively

VERSION = "4.1.3"

# What the connector needs beside Spark's own jars is named by hand: its parent names repositories that not
# every machine reaches, and Maven would ask them for what follows from it.
_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
_DEPENDENCY = """    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dray.bench</groupId>
  <artifactId>kafka-connector</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{}
  </dependencies>
</project>
"""


def connector_jars() -> list[Path]:
    """Downloaded once. Raises `JarsMissing`."""
    if shutil.which("mvn") is None:
        raise JarsMissing("needs mvn, which this machine lacks")
    home = cache_directory() / f"spark-kafka-{VERSION}"
    jars = home / "jars"
    with exclusively(home):
        if not jars.is_dir():
            pom = home / "pom.xml"
            pom.write_text(_POM.format("\n".join(_DEPENDENCY.format(*jar) for jar in _JARS)))
            fresh = home / "downloading"
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command.append(f"-DoutputDirectory={fresh}")
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
            if done.returncode != 0:
                lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
                raise JarsMissing(f"Maven could not fetch Spark's Kafka connector: {lines[0]}")
            os.rename(fresh, jars)
    return sorted(jars.glob("*.jar"))
