"""The settings of an etcd store: where the servers are, how to speak to them, and how long to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

KIB = 1024


@dataclass(frozen=True, slots=True)
class EtcdTls:
    authority: Path | None = None
    """The certificates that servers are checked against; None: those of the system."""

    certificate: Path | None = None
    key: Path | None = None
    """Our own certificate and its key, where the servers ask for one."""

    server_name: str | None = None
    """The name in the servers' certificates, where it is not their address."""


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    endpoints: Sequence[str]
    """`host:port` of the servers. One that fails is left for the next."""

    prefix: str = "dray/"
    """What the keys of this cluster begin with; several clusters may share an etcd."""

    tls: EtcdTls | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Sent with every request as it is, instead of one got for a user and a password."""

    request_timeout: float = 5.0
    """Seconds for one request; a write that is not answered by then is `Ambiguous`."""

    patience: float = 15.0
    """Seconds that a call waits for a server with a leader, before it is `Unavailable`."""

    connect_timeout: float = 2.0
    serializable_reads: bool = False
    """Reads from what the asked server knows, without asking the others: cheaper, and perhaps old until a
    barrier was waited for."""

    max_transaction_operations: int = 128
    """The servers' `--max-txn-ops`."""

    max_request_bytes: int = 1536 * KIB
    """The servers' `--max-request-bytes`."""
