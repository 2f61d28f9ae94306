"""Who may read the numbers of brokers and compactors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dray.config.kinds import Either, Text
from dray.config.section import Section

_FILE = Text(r"(?s:.+)", "a path")


class HttpSection(Section):
    """Health and metrics over HTTP, of brokers and of compactors (`broker.http`, `compaction.http`)."""

    token_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="Holds the token that scrapers present (`Authorization: Bearer`), or several, a line "
        "each. Without it all may read everything; with it others only see whether a process is alive and "
        "ready. Re-read when it changes. The console presents the first.",
    )
    certificate_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The certificate with which health and metrics are served over HTTPS; with `key_file`. "
        "Both are re-read when they change.",
    )
    key_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The key of the certificate.",
    )
    client_ca_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The authorities of clients' certificates; with `certificate_file`. A client with such a "
        "certificate reads everything, as one with a token does, and one with neither sees only whether a "
        "process is alive and ready. Re-read when it changes. The console presents `certificate_file`.",
    )
    ca_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The authority that signed those certificates: with it, the console reads the numbers of "
        "brokers and compactors over HTTPS.",
    )
