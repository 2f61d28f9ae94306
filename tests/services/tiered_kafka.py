"""Apache Kafka with tiered storage: its own LocalTieredStorage, which lies in the test jar of
kafka-storage."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.services.kafka import NODE_ID, KafkaProcess
from tests.services.maven import KAFKA_VERSION, JarsMissing, kafka_jars
from tests.services.tools import cache_directory, exclusively, missing

_DOWNLOAD_SECONDS = 300
_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def tiering_jar(version: str = KAFKA_VERSION) -> Path:
    """The jar with LocalTieredStorage, downloaded once."""
    kafka_jars(version)
    home = cache_directory() / f"kafka-{version}" / "tiering"
    jar = home / f"kafka-storage-{version}-test.jar"
    with exclusively(home):
        if jar.exists():
            return jar
        command = ["mvn", "-q", "-B", "dependency:copy", f"-DoutputDirectory={home}"]
        command.append(f"-Dartifact=org.apache.kafka:kafka-storage:{version}:jar:test")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise JarsMissing(f"Maven did not fetch kafka-storage in {_DOWNLOAD_SECONDS} s") from None
        if done.returncode != 0 or not jar.exists():
            lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise JarsMissing(f"Maven could not fetch kafka-storage: {lines[0]}")
    return jar


def require_tiering(version: str = KAFKA_VERSION) -> Path:
    try:
        return tiering_jar(version)
    except JarsMissing as reason:
        missing(str(reason))


class TieredKafka(KafkaProcess):
    """One node that tiers every segment soon after it is rolled."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        tier: Path | None = None,
        version: str = KAFKA_VERSION,
        node: int = NODE_ID,
        controller_port: int | None = None,
    ) -> None:
        self._tiering = tiering_jar(version)
        self.tier = tier or directory / "tier"
        super().__init__(
            directory,
            {
                "remote.log.storage.system.enable": "true",
                "remote.log.storage.manager.class.name": _STORAGE,
                "remote.log.metadata.manager.listener.name": "PLAINTEXT",
                "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
                "rsm.config.dir": str(self.tier),
                "remote.log.manager.task.interval.ms": "200",
                "log.cleaner.backoff.ms": "200",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                **(settings or {}),
            },
            version=version,
            node=node,
            controller_port=controller_port,
        )

    @property
    def classpath(self) -> str:
        return f"{super().classpath}:{self._tiering}"
