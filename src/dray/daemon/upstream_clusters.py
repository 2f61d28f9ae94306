"""From the section `upstream` of the config to the Kafka clusters whose topics are linked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from dray.client.cluster import Address, Cluster
from dray.client.connection import Dialer
from dray.client.properties import ClientSecurity, PropertiesRefused, read_security
from dray.config import Settings
from dray.daemon.failures import USAGE, Failure
from dray.runtime import Runtime

CLIENT_ID: Final = "drayd-migrator"
SILENCE_SECONDS: Final = 10.0
"""After so long without a byte of an answer that is due, a broker of the source counts as gone, and who leads
is asked for anew. Kafka itself names another leader after nine seconds."""


class UnknownUpstream(Exception):
    """This process's config does not name the cluster. The text is one line that says what to add."""


class UpstreamClusters:
    """The clusters that the config names. Raises `Failure` where the properties of one cannot be used: that
    is found out at the start, not when a topic needs it. With `leaves_out`, such a one is left out."""

    def __init__(self, settings: Settings, runtime: Runtime, *, leaves_out: bool = False) -> None:
        self._clusters = dict(settings.upstream.clusters)
        self._runtime = runtime
        self._security: dict[str, ClientSecurity] = {}
        self.left_out: dict[str, str] = {}
        """Clusters that cannot be used, and why."""
        for name, address in settings.upstream.clusters.items():
            try:
                self._security[name] = _security(name, address.command_config)
                self.dialer(name, CLIENT_ID)
            except Failure as failure:
                if not leaves_out:
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
        try:
            return self._security[name].dialer(client_id, self._runtime)
        except PropertiesRefused as error:
            raise _refused(name, self._clusters[name].command_config, error) from error

    def open(self, name: str, client_id: str = CLIENT_ID) -> Cluster:
        """Not connected yet. Raises `UnknownUpstream`."""
        dialer = replace(self.dialer(name, client_id), silence_seconds=SILENCE_SECONDS)
        return Cluster(self.bootstrap(name), dialer, self._runtime)

    def _check(self, name: str) -> None:
        if name not in self._clusters:
            known = f" (there are: {', '.join(self.names)})" if self._clusters else ""
            raise UnknownUpstream(
                f"the config names no upstream {name!r}{known}: add it to upstream.clusters, such as "
                f"{{{name}: {{bootstrap: 'HOST:9092', command_config: FILE}}}}"
            )


def _security(name: str, file: str | None) -> ClientSecurity:
    if file is None:
        return ClientSecurity()
    try:
        return read_security(Path(file))
    except PropertiesRefused as error:
        raise _refused(name, file, error) from error


def _refused(name: str, file: str | None, error: PropertiesRefused) -> Failure:
    return Failure(f"upstream.clusters {name}: command_config = {file!r}: {error}", USAGE)
