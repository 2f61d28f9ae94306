"""Real Oxia servers on loopback: one that stands alone, and a cluster with its coordinator."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import grpc
import yaml

from dray.metadata.oxia.server import SERVICES
from dray.metadata.oxia.wire import client_pb2 as wire
from tests.services.certificates import Certificates
from tests.services.oxia_build import flags, require_oxia
from tests.services.process import POLL_SECONDS, NotReady, ServerProcess, free_port

NAMESPACE = "dray-tests"
RUNNING: Final = re.compile(r"^oxia_coordinator_node_running\{.*\} (\d)", re.MULTILINE)


def leaders(address: str, namespace: str, timeout: float = 1.0) -> dict[int, str]:
    """Shard and leader, as a server tells it; empty while it tells nothing."""
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        for service in SERVICES:
            ask = channel.unary_stream(
                f"/{service}/GetShardAssignments",
                request_serializer=wire.ShardAssignmentsRequest.SerializeToString,
                response_deserializer=wire.ShardAssignments.FromString,
            )
            try:
                answer = next(ask(wire.ShardAssignmentsRequest(namespace=namespace), timeout=timeout))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    continue  # by the other name, then
                return {}
            assignments = answer.namespaces[namespace].assignments
            return {assignment.shard: assignment.leader for assignment in assignments}
    return {}


def all_run(metrics: str) -> bool:
    """Whether a coordinator counts each of its nodes as running; true where it does not say."""
    return set(RUNNING.findall(metrics)) <= {"1"}


class OxiaProcess(ServerProcess):
    """One process of Oxia; it keeps its ports and its data over kill and restart."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        self.program = require_oxia()
        self.port = free_port()
        self.metrics_port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class OxiaStandalone(OxiaProcess):
    """Versions without a choice of key sorting know `hierarchical` alone."""

    namespace = "default"

    def __init__(
        self,
        directory: Path,
        *,
        shards: int = 1,
        key_sorting: str = "hierarchical",
        notifications: bool = True,
    ) -> None:
        super().__init__("oxia", directory)
        self.shards = shards
        self.key_sorting = key_sorting
        self.notifications = notifications

    @property
    def chooses_sorting(self) -> bool:
        return "key-sorting" in flags(self.program, "standalone")

    def command(self) -> Sequence[str]:
        return [
            str(self.program),
            "standalone",
            f"--public-addr={self.address}",
            f"--metrics-addr=127.0.0.1:{self.metrics_port}",
            f"--shards={self.shards}",
            *([f"--key-sorting={self.key_sorting}"] if self.chooses_sorting else ()),
            f"--notifications-enabled={'true' if self.notifications else 'false'}",
            f"--data-dir={self.directory / 'db'}",
            f"--wal-dir={self.directory / 'wal'}",
            "--log-level=warn",
        ]

    def is_ready(self) -> bool:
        return bool(leaders(self.address, self.namespace))


class OxiaNode(OxiaProcess):
    """A data server of a cluster. With certificates, clients have to speak TLS to it."""

    def __init__(
        self, name: str, directory: Path, certificates: Certificates | None = None, sync: bool = True
    ) -> None:
        super().__init__(name, directory)
        self.internal_port = free_port()
        self.certificates = certificates
        self.sync = sync

    @property
    def internal_address(self) -> str:
        return f"127.0.0.1:{self.internal_port}"

    def command(self) -> Sequence[str]:
        command = [
            str(self.program),
            "server",
            f"--public-addr={self.address}",
            f"--internal-addr={self.internal_address}",
            f"--metrics-addr=127.0.0.1:{self.metrics_port}",
            f"--data-dir={self.directory / 'db'}",
            f"--wal-dir={self.directory / 'wal'}",
            f"--wal-sync-data={'true' if self.sync else 'false'}",
            "--log-level=warn",
        ]
        if self.certificates is not None:
            command += [
                f"--tls-cert-file={self.certificates.certificate}",
                f"--tls-key-file={self.certificates.key}",
                f"--tls-trusted-ca-file={self.certificates.authority}",
                "--tls-client-auth",
            ]
        return command

    def is_ready(self) -> bool:
        """Whether it accepts connections: shards come with the coordinator."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.internal_port), 1):
            return True
        return False


class OxiaCoordinator(OxiaProcess):
    def __init__(self, directory: Path, nodes: Sequence[OxiaNode], shards: int) -> None:
        super().__init__("coordinator", directory)
        self.internal_port = free_port()
        self.configuration = directory / "cluster.yaml"
        self.status = directory / "cluster-status.json"
        self.options = directory / "coordinator.yaml"
        self.configuration.write_text(yaml.safe_dump(self._cluster(nodes, shards)))
        self.options.write_text(yaml.safe_dump(self._coordinator()))

    @staticmethod
    def _cluster(nodes: Sequence[OxiaNode], shards: int) -> dict[str, object]:
        return {
            "namespaces": [
                {
                    "name": NAMESPACE,
                    "initialShardCount": shards,
                    "replicationFactor": len(nodes),
                    "keySorting": "hierarchical",
                    "notificationsEnabled": True,
                }
            ],
            "servers": [
                {"name": node.name, "public": node.address, "internal": node.internal_address}
                for node in nodes
            ],
        }

    def _coordinator(self) -> dict[str, object]:
        return {
            "server": {
                "public": {"bindAddress": self.address},
                "internal": {"bindAddress": f"127.0.0.1:{self.internal_port}"},
            },
            "metadata": {"providerName": "file", "file": {"dir": str(self.directory)}},
            "observability": {
                "metric": {"enabled": True, "bindAddress": f"127.0.0.1:{self.metrics_port}"},
                "log": {"level": "warn"},
            },
        }

    def command(self) -> Sequence[str]:
        command = [str(self.program), "coordinator"]
        if "sconfig" in flags(self.program, "coordinator"):
            return [*command, f"--sconfig={self.options}"]
        return [
            *command,
            f"--conf={self.configuration}",
            f"--file-clusters-status-path={self.status}",
            f"--internal-addr=127.0.0.1:{self.internal_port}",
            f"--metrics-addr=127.0.0.1:{self.metrics_port}",
            "--log-level=warn",
        ]

    def is_ready(self) -> bool:
        return True  # what counts is whether the nodes know their shards

    def counts_all_as_running(self) -> bool:
        """A coordinator replaces a leader when it stops to count it as running. One that it does not count
        yet is never replaced: it was not there when the coordinator looked for it at its start, or was
        restarted, and for its next look the coordinator takes 5 to 15 seconds, and longer each time. A
        version without this figure counts all."""
        address = f"http://127.0.0.1:{self.metrics_port}/metrics"
        try:
            with urllib.request.urlopen(address, timeout=1.0) as answer:
                return all_run(answer.read().decode())
        except OSError:
            return False


class OxiaCluster:
    """Three nodes and a coordinator; every shard on all three. Without `sync` they do not wait for the disk,
    which only a machine that loses its power would notice."""

    namespace = NAMESPACE

    def __init__(
        self,
        directory: Path,
        *,
        shards: int = 2,
        nodes: int = 3,
        certificates: Certificates | None = None,
        sync: bool = True,
    ) -> None:
        names = [f"node-{number}" for number in range(nodes)]
        self.nodes = [OxiaNode(name, directory / name, certificates, sync) for name in names]
        self.coordinator = OxiaCoordinator(directory / "coordinator", self.nodes, shards)
        self.shards = shards

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self.nodes]

    def spawn(self) -> None:
        """Begin to start. The coordinator comes last: for a node that it does not find at once it looks again
        after 5 to 15 seconds."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_until_ready()
        self.coordinator.spawn()

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Every shard has a leader, and any node may be harmed: another one will take its place."""
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            node.wait_until_ready(timeout)
        while not (self._led() and self.coordinator.counts_all_as_running()):
            if time.monotonic() > deadline:
                raise NotReady(f"not whole after {timeout:.0f} s:\n{self.coordinator.log_tail()}")
            time.sleep(POLL_SECONDS)

    def start(self) -> None:
        self.spawn()
        self.wait_until_ready()

    def stop(self) -> None:
        for process in (self.coordinator, *self.nodes):
            process.kill()

    def leader(self, shard: int) -> OxiaNode:
        """The node that leads a shard, asked of any that answers."""
        for node in self.nodes:
            found = leaders(node.address, self.namespace)
            if found.get(shard):
                return next(node for node in self.nodes if node.address == found[shard])
        raise NotReady("no node knows who leads")

    def _led(self) -> bool:
        if self.nodes[0].certificates is not None:
            with contextlib.suppress(OSError):
                status = self.coordinator.status.read_text()
                steady = re.findall(r'"status": ?"[a-zA-Z]*?steady', status, re.IGNORECASE)
                return len(steady) == self.shards
            return False
        shown = {node.address: leaders(node.address, self.namespace) for node in self.nodes}
        known = max(shown.values(), key=len)
        return len(known) == self.shards and all(shown.get(leader) for leader in known.values())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def paused(node: OxiaNode) -> Iterator[None]:
    """Stopped as by a debugger, and going on as if nothing had been."""
    node.pause()
    try:
        yield
    finally:
        node.resume()
