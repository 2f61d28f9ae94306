"""The right to read the numbers of brokers and compactors."""

from __future__ import annotations

from dataclasses import dataclass

from dray.base.config.kinds import Either, Text
from dray.base.config.setting import setting

_FILE = Text(r"(?s:.+)", "a path")


@dataclass(frozen=True, kw_only=True)
class HttpSection:
    """Health and metrics over HTTP, of brokers and of compactors (`broker.http`, `compaction.http`)."""

    token_file: str | None = setting(
        None,
        Either("none", _FILE),
        "Holds the token that scrapers present (`Authorization: Bearer`), or several, a line "
        "each. Without it all may read everything; with it others only see whether a process is alive and "
        "ready. Re-read when it changes. The console presents the first.",
    )
    certificate_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The certificate with which health and metrics are served over HTTPS; with `key_file`. "
        "Both are re-read when they change.",
    )
    key_file: str | None = setting(None, Either("none", _FILE), "The key of the certificate.")
    client_ca_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The authorities of clients' certificates; with `certificate_file`. A client with such a "
        "certificate reads everything, as one with a token does, and one with neither sees only whether a "
        "process is alive and ready. Re-read when it changes. The console presents `certificate_file`.",
    )
    ca_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The authority that signed those certificates: with it, the console reads the numbers of "
        "brokers and compactors over HTTPS.",
    )
