"""The settings of an Oxia store: where the service is, how to speak to it, and how long to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class OxiaTls:
    authority: Path | None = None
    """The certificates that servers are checked against; None: those of the system."""

    certificate: Path | None = None
    key: Path | None = None
    """Our own certificate and its key, where the servers ask for one."""

    server_name: str | None = None
    """The name in the servers' certificates, where it is not their address."""


@dataclass(frozen=True, slots=True)
class OxiaSettings:
    addresses: Sequence[str]
    """`host:port` of servers to begin with; the others are learnt from them."""

    namespace: str = "default"
    tls: OxiaTls | None = None
    token: str | None = field(default=None, repr=False)
    """Sent as a bearer token with every request."""

    request_timeout: float = 5.0
    """Seconds for one request; a write that is not answered by then is `Ambiguous`."""

    patience: float = 15.0
    """Seconds that a call waits for a leader, through any number of elections, before it is `Unavailable`."""

    first_answer: float = 2.0
    """Seconds for a server to begin to answer, before another one is asked."""
