"""Apache Kafka's own commands (`kafka-topics`, `kafka-configs`, ...), from Maven, in one JVM."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Self

from tests.services.clients.java_client import JVM_OPTIONS, SOURCES
from tests.services.maven import compile_java, require_kafka_jars, require_kafka_tools

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
}


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class KafkaTools:
    """A JVM that runs them one after the other: each would take seconds to start one of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        jars = f"{require_kafka_tools()}/*:{require_kafka_jars()}/*:{compile_java(SOURCES)}"
        self._process = subprocess.Popen(
            ["java", *JVM_OPTIONS, "-cp", jars, "RunTools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, command: str, *arguments: str) -> Said:
        """What a command says; its `--bootstrap-server` comes first, as all of them take it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [CLASSES[command], "--bootstrap-server", self._bootstrap, *arguments]
        if command == "kafka-cluster":  # whose options follow the name of what it is to do
            words = [CLASSES[command], *arguments, "--bootstrap-server", self._bootstrap]
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("."):
                return Said(int(line[1:]), lines)
            lines.append(line.removeprefix("|").rstrip("\n"))
        raise RuntimeError(f"the JVM of Kafka's tools ended: {lines}")
