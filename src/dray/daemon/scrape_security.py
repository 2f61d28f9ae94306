"""From the config to how the console reads the numbers of brokers and compactors."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from dray.config import Settings
from dray.daemon.http_security import TOKEN_FILE, HttpTokenFile
from dray.inspection.scrape import ScrapeAccess
from dray.server.tls import CertificateUnusable


def scrape_access(settings: Settings) -> tuple[ScrapeAccess, Mapping[str, HttpTokenFile]]:
    """How they are asked, and the file that has to be looked at again and again. Raises `TokensUnusable` and
    `CertificateUnusable`."""
    given = settings.http
    tls = None
    if given.ca_file is not None:
        try:
            tls = ssl.create_default_context(cafile=given.ca_file)
        except (OSError, ValueError) as error:
            raise CertificateUnusable(f"http.ca_file: {given.ca_file} {_unusable(error)}") from error
        if given.client_ca_file is not None and given.certificate_file is not None:
            try:
                tls.load_cert_chain(given.certificate_file, given.key_file, password=b"-")
            except (OSError, ValueError) as error:
                raise CertificateUnusable(
                    f"http.certificate_file: {given.certificate_file} {_unusable(error)}"
                ) from error
    if given.token_file is None:
        return ScrapeAccess(tls), {}
    tokens = HttpTokenFile(Path(given.token_file))
    return ScrapeAccess(tls, lambda: tokens.current[0].decode("ascii")), {TOKEN_FILE: tokens}


def _unusable(error: Exception) -> str:
    what = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return f"cannot be used: {what}"
