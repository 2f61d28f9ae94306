"""The services of the compose file, each on a host of its own in one network, as `docker compose up` has it.

Dray's own run from the image, with the commands and the environment that the file gives them. Of the others
the programs are the tests' own (Oxia, the S3 server, the catalog), configured as the file says. A host is a
network namespace; it has its service's name, and ends with the process that holds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from tests.services.iceberg_rest import require_rest_jars_for_s3
from tests.services.image import DATA, Image, ImageProcess, require_image, volume
from tests.services.oxia_build import flags, require_oxia
from tests.services.process import ServerProcess
from tests.services.s3 import keeps_attributes, require_s3
from tests.services.tools import missing

DIRECTORY = Path(__file__).parents[2] / "deploy" / "compose"
CLIENT = "client"
_NETWORK = "10.91.0"
_TOOLS = ("ip", "nsenter", "unshare")
_KNOW_NAMES = 'mount --bind "$0" /etc/hosts && exec "$@"'


class Host(ServerProcess):
    """A process that does nothing but keep a network namespace."""

    def command(self) -> Sequence[str]:
        return ["unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep infinity"]

    def is_ready(self) -> bool:
        return self.command_name() == "sleep"

    def command_name(self) -> str:
        return Path(f"/proc/{self.pid}/comm").read_text().strip()

    @property
    def enter(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net"]


class Network:
    """Hosts that know each other by name, and nothing beyond."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.hosts = {name: Host(name, directory / name) for name in names}
        self.switch = Host("switch", directory / "switch")
        self.names = directory / "hosts"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.switch)
        run([*self.switch.enter, "ip", "link", "add", "bridge", "type", "bridge"])
        run([*self.switch.enter, "ip", "link", "set", "bridge", "up"])
        lines = ["127.0.0.1 localhost"]
        for number, (name, host) in enumerate(self.hosts.items(), start=2):
            self._stack.enter_context(host)
            port, address = f"port{number}", f"{_NETWORK}.{number}"
            ends = [
                "netns",
                str(self.switch.pid),
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                str(host.pid),
            ]
            run(["ip", "link", "add", port, *ends])
            run([*self.switch.enter, "ip", "link", "set", port, "master", "bridge", "up"])
            run([*host.enter, "ip", "address", "add", f"{address}/24", "dev", "eth0"])
            run([*host.enter, "ip", "link", "set", "eth0", "up"])
            lines.append(f"{address} {name}")
        self.names.write_text("\n".join(lines) + "\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def on(self, name: str) -> list[str]:
        """What a command begins with that runs there and knows the names."""
        return [*self.hosts[name].enter, "unshare", "--mount", "sh", "-c", _KNOW_NAMES, str(self.names)]


class Supplied(ServerProcess):
    """A service of another project: the tests' own program, configured as the file says for its image."""

    def __init__(
        self,
        name: str,
        directory: Path,
        network: Network,
        command: Sequence[str],
        environment: Mapping[str, str],
        port: int,
    ) -> None:
        super().__init__(name, directory)
        self._command = [*network.on(name), *command]
        self._environment = dict(environment)
        self._host = network.hosts[name]
        self._port = port

    def command(self) -> Sequence[str]:
        return self._command

    def environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory)} | self._environment

    def is_ready(self) -> bool:
        """Whether something listens: in its namespace, which is where the table is that it is asked of."""
        listening = Path(f"/proc/{self._host.pid}/net")
        for table in ("tcp", "tcp6"):
            for line in (listening / table).read_text().splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                if state == "0A" and int(local.rpartition(":")[2], 16) == self._port:
                    return True
        return False


class Compose:
    """All services of the file, started in its order."""

    def __init__(self, directory: Path) -> None:
        require_namespaces()
        self.image: Image = require_image()
        self.directory = directory
        self.file: Any = yaml.safe_load((DIRECTORY / "compose.yaml").read_text())
        self.services: dict[str, Any] = self.file["services"]
        self.network = Network(directory / "hosts", [*self.services, CLIENT])
        self.brokers = [name for name in self.services if name.startswith("broker-")]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._stack.enter_context(self.network)
        (self.directory / "objects" / "dray").mkdir(parents=True)  # what the service `bucket` does
        assert self.services["bucket"]["command"] == ["mkdir", "-p", "/objects/dray"]
        for name in self.services:
            if name.startswith("oxia-") and name != "oxia-coordinator":
                self._supply(name, self._oxia_server(name), 6649)
        self._supply("oxia-coordinator", self._oxia_coordinator(), 6649)
        self._supply("s3", self._s3(), 7070)
        self._supply("catalog", self._catalog(), 8181)
        self.processes = {name: self._from_image(name) for name in (*self.brokers, "compactor")}
        for process in self.processes.values():
            self._stack.callback(process.kill)
            process.spawn()
        for process in self.processes.values():
            process.wait_until_ready(300)

    def _from_image(self, name: str) -> ImageProcess:
        service = self.services[name]
        port = service["ports"][-1].rpartition(":")[2]
        process = ImageProcess(
            name,
            self.directory / name,
            self.image,
            service["command"],
            service["environment"],
            ready=f"http://127.0.0.1:{port}/readyz",
            before=self.network.hosts[name].enter,
            hostname=name,
        )
        process.volumes["/etc/hosts"] = self.network.names
        return process

    def run(self, name: str, *arguments: str) -> str:
        """A command of `drayd` from the image, as `docker compose run` has it: with the environment of that
        service, on a host of its own."""
        volumes = {
            DATA: volume(self.directory / CLIENT / "data"),
            "/tmp": volume(self.directory / CLIENT / "tmp"),
            "/etc/hosts": self.network.names,
        }
        environment = self.services[name]["environment"]
        there = self.network.hosts[CLIENT].enter
        return self.image.run(arguments, environment, volumes, before=there, hostname=CLIENT, timeout=600)

    def _supply(self, name: str, command: Sequence[str], port: int) -> None:
        environment = dict(self.services[name].get("environment", {}))
        if "CATALOG_URI" in environment:
            environment["CATALOG_URI"] = f"jdbc:sqlite:{self.directory}/catalog.sqlite"
        service = Supplied(name, self.directory / name, self.network, command, environment, port)
        self._stack.enter_context(service)

    def _oxia_server(self, name: str) -> list[str]:
        [program, *arguments] = self.services[name]["command"]
        assert program == "oxia"
        return [str(require_oxia()), *(self._placed(name, argument) for argument in arguments)]

    def _oxia_coordinator(self) -> list[str]:
        """On the file's own description of the cluster. Versions differ in how that is configured."""
        program, home = require_oxia(), self.directory / "oxia-coordinator"
        home.mkdir(parents=True)
        shutil.copy(DIRECTORY / "oxia" / "cluster.yaml", home / "cluster.yaml")
        if "sconfig" in flags(program, "coordinator"):
            text = (DIRECTORY / "oxia" / "coordinator.yaml").read_text()
            (home / "coordinator.yaml").write_text(text.replace("/data", str(home)))
            return [str(program), "coordinator", f"--sconfig={home}/coordinator.yaml"]
        return [
            str(program),
            "coordinator",
            f"--conf={home}/cluster.yaml",
            f"--file-clusters-status-path={home}/status.json",
            "--internal-addr=0.0.0.0:6649",
            "--metrics-addr=0.0.0.0:8080",
        ]

    def _s3(self) -> list[str]:
        command = [argument.replace("/objects", f"{self.directory}/objects") for argument in self._told("s3")]
        if not keeps_attributes(self.directory / "objects"):
            (self.directory / "attributes").mkdir()
            command[-1:] = ["--sidecar", f"{self.directory}/attributes", command[-1]]
        return [str(require_s3()), *command]

    def _catalog(self) -> list[str]:
        return [
            "java",
            "-Xmx256m",
            "-cp",
            f"{require_rest_jars_for_s3()}/*",
            "org.apache.iceberg.rest.RESTCatalogServer",
        ]

    def _told(self, name: str) -> list[str]:
        return list(self.services[name]["command"])

    def _placed(self, name: str, argument: str) -> str:
        return argument.replace("/data", str(self.directory / name))


def require_namespaces() -> None:
    lacking = [name for name in _TOOLS if shutil.which(name) is None]
    if lacking:
        missing(f"needs {' and '.join(lacking)} for a network: apt-get install iproute2 util-linux")
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], check=False).returncode != 0:
        missing("needs root and network namespaces for the network of the compose file")


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout
