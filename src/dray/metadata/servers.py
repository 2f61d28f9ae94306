"""The settings that engines share whose servers are reached over gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dray.base.config.kinds import Either, Secret, Switch, Text
from dray.base.config.setting import setting
from dray.base.runtime import Runtime
from dray.metadata.contract import MetadataStore

if TYPE_CHECKING:
    import grpc

HOST_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"

_FILE = Text(r"(?s:.+)", "a path")
_SERVER_NAME = Text(r"[A-Za-z0-9._-]+", "a host name")


@dataclass(frozen=True, kw_only=True)
class ServersSettings:
    tls: bool = setting(False, Switch(), "Whether to speak TLS to the servers.")
    ca_file: str | None = setting(
        None, Either("system", _FILE), "The authority that the servers' certificates are checked against."
    )
    certificate_file: str | None = setting(
        None, Either("none", _FILE), "Our own certificate, where the servers ask for one; with `key_file`."
    )
    key_file: str | None = setting(None, Either("none", _FILE), "The key of our certificate.")
    server_name: str | None = setting(
        None,
        Either("auto", _SERVER_NAME),
        "The name in the servers' certificates, where it is not their address.",
    )

    # No config names the rest
    request_timeout: float = 5.0
    """Seconds for one request; a write that is not answered by then is `Ambiguous`."""
    patience: float = 15.0
    """Seconds that a call waits for a leader, through any number of elections, before it is `Unavailable`."""

    async def opened(self, runtime: Runtime) -> MetadataStore:
        """A store that is ready. Its module is loaded here: gRPC costs half a second."""
        raise NotImplementedError

    def credentials(self) -> grpc.ChannelCredentials:
        """An `OSError` names the file that cannot be read."""
        import grpc  # settings are read where nothing else needs it

        files = self.ca_file, self.key_file, self.certificate_file
        return grpc.ssl_channel_credentials(
            *(None if file is None else Path(file).read_bytes() for file in files)
        )

    def tls_options(self) -> list[tuple[str, str]]:
        """Those of a channel."""
        return [] if self.server_name is None else [("grpc.ssl_target_name_override", self.server_name)]


def revealed(secrets: Mapping[str, Secret], name: str) -> str | None:
    found = secrets.get(name)
    return None if found is None else found.text
