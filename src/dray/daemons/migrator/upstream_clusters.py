"""From the section `upstream` of the config to the Kafka clusters whose topics are linked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dray.base.runtime import Runtime
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.config import Settings
from dray.kafka.client.cluster import Address, Cluster
from dray.kafka.client.connection import Dialer
from dray.kafka.client.properties import ClientSecurity, PropertiesRefused, read_security

CLIENT_ID: Final = "drayd-migrator"
SILENCE_SECONDS: Final = 10.0
"""After so long without a byte of an answer that is due, a broker of the source counts as gone, and who leads
is asked for anew. Kafka itself names another leader after nine seconds."""


class UnknownUpstream(Exception):
    """This process's config does not name the cluster. The text is one line that says what to add."""


class UpstreamClusters:
    """The clusters that the config names. Raises `Failure` where the properties of one cannot be used: that
    is found out at the start, not when a topic needs it. `for_brokers`: such a one is left out, and
    connections are for what clients produce, by a user of their own where the config has one."""

    def __init__(self, settings: Settings, runtime: Runtime, *, for_brokers: bool = False) -> None:
        self._clusters = dict(settings.upstream.clusters)
        self._runtime = runtime
        self._files: dict[str, _File] = {}
        self._forward_files: dict[str, _File] = {}
        self.left_out: dict[str, str] = {}
        """Clusters that cannot be used, and why."""
        for name, address in settings.upstream.clusters.items():
            try:
                own = _File.read(name, "forward_config", address.forward_config)
                if own is not None and not for_brokers:
                    self._forward_files[name] = own
                if own is None or not for_brokers:
                    own = _File.read(name, "command_config", address.command_config)
                self._files[name] = own or _File(name)
                self.dialer(name, CLIENT_ID)
            except Failure as failure:
                if not for_brokers:
                    raise
                self.left_out[name] = str(failure)
                del self._clusters[name]

    @property
    def names(self) -> list[str]:
        return sorted(self._clusters)

    def bootstrap(self, name: str) -> list[Address]:
        """Raises `UnknownUpstream`."""
        self._check(name)
        return [(each.host, each.port) for each in self._clusters[name].bootstrap]

    def dialer(self, name: str, client_id: str) -> Dialer:
        """How a broker of that cluster is connected to. Raises `UnknownUpstream`."""
        self._check(name)
        return self._files[name].dialer(client_id, self._runtime)

    def open(self, name: str, client_id: str = CLIENT_ID) -> Cluster:
        """Not connected yet. Raises `UnknownUpstream`."""
        return self._opened(name, self.dialer(name, client_id))

    def open_as_brokers(self, name: str) -> Cluster | None:
        """By the user of brokers. None where they have none of their own."""
        file = self._forward_files.get(name)
        return None if file is None else self._opened(name, file.dialer(CLIENT_ID, self._runtime))

    def _opened(self, name: str, dialer: Dialer) -> Cluster:
        dialer = replace(dialer, silence_seconds=SILENCE_SECONDS)
        return Cluster(self.bootstrap(name), dialer, self._runtime)

    def _check(self, name: str) -> None:
        if name not in self._clusters:
            known = f" (there are: {', '.join(self.names)})" if self._clusters else ""
            raise UnknownUpstream(
                f"the config names no upstream {name!r}{known}: add it to upstream.clusters, such as "
                f"{{{name}: {{bootstrap: 'HOST:9092', command_config: FILE}}}}"
            )


@dataclass(frozen=True, slots=True)
class _File:
    """The properties of a cluster: `key` of its config names the file."""

    upstream: str
    key: str = ""
    path: str | None = None
    security: ClientSecurity = field(default_factory=ClientSecurity)

    @classmethod
    def read(cls, upstream: str, key: str, path: str | None) -> _File | None:
        if path is None:
            return None
        try:
            return cls(upstream, key, path, read_security(Path(path)))
        except PropertiesRefused as error:
            raise cls(upstream, key, path)._refused(error) from error

    def dialer(self, client_id: str, runtime: Runtime) -> Dialer:
        try:
            return self.security.dialer(client_id, runtime)
        except PropertiesRefused as error:
            raise self._refused(error) from error

    def _refused(self, error: PropertiesRefused) -> Failure:
        return Failure(f"upstream.clusters {self.upstream}: {self.key} = {self.path!r}: {error}", USAGE)
