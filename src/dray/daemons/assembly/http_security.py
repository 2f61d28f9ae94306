"""From the config to who may read health and metrics of brokers and compactors, and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from dray.base.config.kinds import Address
from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.server import HttpSettings
from dray.broker.server.http.requests import LARGEST_FILE, BearerTokens, InvalidTokens, tokens_in
from dray.broker.server.tls.listener import CertificateUnusable, ServerCertificate
from dray.daemons.assembly.watched_files import FileUnusable, WatchedFile, refresh_files
from dray.daemons.config import Settings

_log = structlog.get_logger(__name__)

TOKEN_FILE: Final = "http.token_file"


def http_settings(address: Address) -> HttpSettings:
    """All may read everything there, in clear."""
    return HttpSettings(address.host, address.port)


class TokensUnusable(FileUnusable):
    """Of the file of tokens."""


class HttpTokenFile(WatchedFile[tuple[bytes, ...]]):
    def _parsed(self, path: Path) -> tuple[bytes, ...]:
        with path.open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
        try:
            return tokens_in(data)
        except InvalidTokens as error:
            raise self._unusable(f"{path} cannot be used: {error}") from None

    def _unusable(self, reason: str) -> TokensUnusable:
        return TokensUnusable(f"{TOKEN_FILE}: {reason}")


class HttpSecurity:
    """The tokens and certificates of a process' own HTTP server. Raises `TokensUnusable` and
    `CertificateUnusable` where the files of the config cannot be used."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        given = settings.http
        self._runtime = runtime
        self._refreshing: KeptTask | None = None
        self.certificate: ServerCertificate | None = None
        self._authorizes = settings.security.authorization != "none"
        self._client_certificates = given.client_ca_file is not None
        self._tokens = None if given.token_file is None else HttpTokenFile(Path(given.token_file))
        if given.certificate_file is not None and given.key_file is not None:
            try:
                self.certificate = ServerCertificate(
                    Path(given.certificate_file),
                    Path(given.key_file),
                    client_auth="none" if given.client_ca_file is None else "requested",
                    client_authorities=None if given.client_ca_file is None else Path(given.client_ca_file),
                    wall_ms=runtime.wall_ms,
                )
            except CertificateUnusable as error:
                raise CertificateUnusable(f"http.certificate_file: {error}") from error

    def settings_at(self, address: Address) -> HttpSettings:
        tokens = self._tokens
        if self._authorizes and tokens is None and not self._client_certificates and not address.is_loopback:
            _log.warning(
                "all that reach this address may read metrics, and with them the names of topics and groups "
                "that ACLs hide: set http.token_file or http.client_ca_file",
                address=str(address),
            )
        return replace(
            http_settings(address),
            encryption=None if self.certificate is None else self.certificate.encryption,
            tokens=None if tokens is None else BearerTokens(lambda: tokens.current),
            client_certificates=self._client_certificates,
        )

    def start(self) -> None:
        held = {TOKEN_FILE: self._tokens, "http.certificate_file": self.certificate}
        files = {name: file for name, file in held.items() if file is not None}
        if files:
            self._refreshing = keep_running(
                self._runtime,
                "re-read the token and certificate of HTTP",
                lambda: refresh_files(files, self._runtime),
            )

    async def stop(self) -> None:
        if self._refreshing is not None:
            await self._refreshing.stop()
