"""One node of Apache Kafka in KRaft mode: the referee of behaviour, and the measure of speed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.java import quick_options
from tests.services.maven import KAFKA_VERSION, kafka_jars
from tests.services.process import ServerProcess, answers_api_versions, free_port

CLUSTER_ID = "ZHJheS10ZXN0cy1rYWZrYQ"
NODE_ID = 1

JVM_OPTIONS = (
    # What Kafka's own start script passes, so that a comparison is with Kafka as people run it.
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


class KafkaProcess(ServerProcess):
    """`controller_port` makes it one of several nodes: a broker only, of the cluster whose first node listens
    there as its controller."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        version: str = KAFKA_VERSION,
        node: int = NODE_ID,
        controller_port: int | None = None,
    ) -> None:
        super().__init__("kafka" if node == NODE_ID else f"kafka-{node}", directory)
        self.jars = kafka_jars(version)
        self.node = node
        self.port = free_port()
        self.controller_port = controller_port or free_port()
        self.properties_path = directory / "server.properties"
        self._write_properties(settings or {})
        self._format()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _write_properties(self, settings: Mapping[str, str]) -> None:
        leads = self.node == NODE_ID
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        if leads:
            listeners += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        properties = {
            "process.roles": "broker,controller" if leads else "broker",
            "node.id": str(self.node),
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self.controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.directory / "logs"),
            # One node cannot hold three replicas.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **settings,
        }
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def _format(self) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties_path), "--ignore-formatted"]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", arguments, ("-Xmx256m",)),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _java(self, main: str, arguments: Sequence[str], options: Sequence[str] = JVM_OPTIONS) -> list[str]:
        return ["java", *options, *quick_options(), "-cp", self.classpath, main, *arguments]

    @property
    def classpath(self) -> str:
        return f"{self.jars}/*"

    def command(self) -> Sequence[str]:
        return self._java("kafka.Kafka", [str(self.properties_path)])

    def is_ready(self) -> bool:
        return answers_api_versions("127.0.0.1", self.port)
