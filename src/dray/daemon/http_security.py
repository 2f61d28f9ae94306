"""From the config to who may read health and metrics of brokers and compactors, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from dray.config import Settings
from dray.config.kinds import Address
from dray.daemon.settings import http_settings
from dray.runtime import KeptTask, Runtime, keep_running
from dray.server import HttpSettings
from dray.server.http_access import LARGEST_FILE, BearerTokens, InvalidTokens, tokens_in
from dray.server.tls import CertificateUnusable, ServerCertificate

_log = structlog.get_logger(__name__)

TOKEN_FILE: Final = "http.token_file"
REFRESH_SECONDS: Final = 10.0
"""How often the files are looked at."""


class TokensUnusable(Exception):
    """One line: which file, and what is wrong with it. It never shows what is in it."""


class HttpTokenFile:
    """Tokens, re-read when their file changes; a broken file leaves those that were read. Raises
    `TokensUnusable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.current = self._read()

    def refresh(self) -> bool:
        """True if there are new tokens, and they are in use."""
        if self._state() == self._seen:
            return False
        self.current = self._read()
        return True

    def _state(self) -> tuple[int, int, int]:
        try:
            state = self._path.stat()
        except OSError as error:
            raise TokensUnusable(f"{TOKEN_FILE}: cannot read {self._path}: {error.strerror}") from error
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _read(self) -> tuple[bytes, ...]:
        seen = self._state()
        try:
            with self._path.open("rb") as opened:
                found = tokens_in(opened.read(LARGEST_FILE + 1))
        except OSError as error:
            raise TokensUnusable(f"{TOKEN_FILE}: cannot read {self._path}: {error.strerror}") from error
        except InvalidTokens as error:
            raise TokensUnusable(f"{TOKEN_FILE}: {self._path} cannot be used: {error}") from None
        self._seen = seen
        return found


async def refresh_files(files: Mapping[str, HttpTokenFile | ServerCertificate], runtime: Runtime) -> None:
    """Runs for ever. A file that cannot be used is logged each time, and what was read before stays."""
    while True:
        await runtime.sleep(REFRESH_SECONDS)
        for name, file in files.items():
            try:
                if await runtime.in_thread(file.refresh):
                    _log.info("a changed file is in use", what=name)
            except (CertificateUnusable, TokensUnusable) as error:
                _log.error(
                    "a changed file is not used: what was read before stays", what=name, error=str(error)
                )


class HttpSecurity:
    """The token and the certificate of a process' own HTTP server. Raises `TokensUnusable` and
    `CertificateUnusable` where the files of the config cannot be used."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        given = settings.http
        self._runtime = runtime
        self._refreshing: KeptTask | None = None
        self._tokens = None if given.token_file is None else HttpTokenFile(Path(given.token_file))
        self._certificate: ServerCertificate | None = None
        if given.certificate_file is not None and given.key_file is not None:
            try:
                self._certificate = ServerCertificate(Path(given.certificate_file), Path(given.key_file))
            except CertificateUnusable as error:
                raise CertificateUnusable(f"http.certificate_file: {error}") from error

    def settings_at(self, address: Address) -> HttpSettings:
        tokens = self._tokens
        return replace(
            http_settings(address),
            tls=None if self._certificate is None else self._certificate.context,
            tokens=None if tokens is None else BearerTokens(lambda: tokens.current),
        )

    def start(self) -> None:
        held = {TOKEN_FILE: self._tokens, "http.certificate_file": self._certificate}
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
