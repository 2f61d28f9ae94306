"""From the config to what each listener asks of its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from dray.config import Settings
from dray.config.kinds import ListenerAddress
from dray.runtime import Runtime
from dray.security.sasl import plain
from dray.security.sasl.plain import PlainExchange
from dray.security.sasl.scram import ScramExchange, random_nonce
from dray.security.sasl.session import SaslSession
from dray.security.sasl.steps import SaslExchange
from dray.security.scram_credentials import Credentials, ScramMechanism, mechanism_of
from dray.server.tls import CertificateUnusable, ServerCertificate

_log = structlog.get_logger(__name__)

REFRESH_SECONDS: Final = 10.0
"""How often the files of certificates are looked at."""


def read_certificates(settings: Settings) -> dict[str, ServerCertificate]:
    """By the name of a listener that encrypts. Raises `CertificateUnusable`."""
    found = {}
    for name, listener in settings.broker.listeners.items():
        if listener.encrypts:
            try:
                found[name] = ServerCertificate(Path(listener.certificate_file), Path(listener.key_file))
            except CertificateUnusable as error:
                raise CertificateUnusable(f"broker.listeners.{name}: {error}") from error
    return found


async def refresh_certificates(certificates: Mapping[str, ServerCertificate], runtime: Runtime) -> None:
    """Without end. A pair that cannot be used is told each time, and the old one stays."""
    while True:
        await runtime.sleep(REFRESH_SECONDS)
        for name, certificate in certificates.items():
            try:
                if await runtime.in_thread(certificate.refresh):
                    _log.info("a new certificate is in use", listener=name)
            except CertificateUnusable as error:
                _log.error(
                    "the new certificate is not used, the old one stays", listener=name, error=str(error)
                )


def sasl_sessions(
    settings: Settings, users: Credentials, runtime: Runtime
) -> dict[str, Callable[[], SaslSession]]:
    """By the name of a listener that asks who its clients are: what makes the session of a new connection."""
    longest = settings.broker.longest_session
    longest_ms = 0 if longest is None else round(longest * 1000)

    def maker(listener: ListenerAddress) -> Callable[[], SaslSession]:
        mechanisms = _mechanisms(listener, users, runtime)
        return lambda: SaslSession(mechanisms, longest_session_ms=longest_ms)

    return {name: maker(listener) for name, listener in settings.broker.listeners.items() if listener.asks}


def _mechanisms(
    listener: ListenerAddress, users: Credentials, runtime: Runtime
) -> Mapping[str, Callable[[], SaslExchange]]:
    def scram(mechanism: ScramMechanism) -> Callable[[], SaslExchange]:
        return lambda: ScramExchange(mechanism, users, lambda: random_nonce(runtime.random))

    found: dict[str, Callable[[], SaslExchange]] = {}
    for name in listener.mechanisms:
        mechanism = mechanism_of(name)
        if mechanism is not None:
            found[name] = scram(mechanism)
        else:
            assert name == plain.NAME
            found[name] = lambda: PlainExchange(users)
    return found
