"""From a listener of the config to its certificates, and to who a client with a certificate is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from dray.config import Settings
from dray.config.listeners import ListenerAddress
from dray.security.acls.authorization import host_of
from dray.security.audit import AUTHENTICATE, LISTENER, AuditedAct, AuditLog
from dray.security.distinguished_names import UnreadableCertificate, distinguished_name
from dray.security.principals import InvalidRule, MappingRules, NoRuleApplies, user
from dray.server.handshakes import PeerRefused
from dray.server.tls import CertificatePair, CertificateUnusable, ServerCertificate, why_not_bundled

_log = structlog.get_logger(__name__)

_BY_CERTIFICATE: Final = "certificate"

Identify = Callable[[bytes | None, str], str | None]


def read_certificates(settings: Settings) -> dict[str, ServerCertificate]:
    """By the name of a listener that encrypts. Raises `CertificateUnusable`."""
    encrypting = {name: place for name, place in settings.broker.listeners.items() if place.encrypts}
    bundled = bool(encrypting) and _uses_bundled(settings)
    found = {}
    for name, listener in encrypting.items():
        try:
            found[name] = _certificates_of(listener, bundled)
        except CertificateUnusable as error:
            raise CertificateUnusable(f"broker.listeners.{name}: {error}") from error
    return found


def _uses_bundled(settings: Settings) -> bool:
    """A broker whose `cryptography` cannot be used for this is slower. It is not one that does not start."""
    if settings.security.tls_library != "bundled":
        return False
    reason = why_not_bundled()
    if reason is not None:
        _log.warning(
            "the OpenSSL of the package cryptography cannot be loaded: TLS uses the slower one of Python",
            setting="security.tls_library",
            reason=reason,
        )
    return reason is None


def _certificates_of(listener: ListenerAddress, bundled: bool) -> ServerCertificate:
    return ServerCertificate(
        Path(listener.certificate_file),
        Path(listener.key_file),
        further=tuple(
            CertificatePair(Path(pair.certificate_file), Path(pair.key_file))
            for pair in listener.further_certificates
        ),
        client_auth=listener.client_auth,
        client_authorities=Path(listener.client_ca_file) if listener.client_ca_file else None,
        bundled=bundled,
    )


def identifications(settings: Settings, audit: AuditLog | None = None) -> Mapping[str, Identify]:
    """By the name of a listener where the certificate says who a client is. Raises `CertificateUnusable`."""
    found = {}
    for name, listener in settings.broker.listeners.items():
        if listener.identifies:
            try:
                found[name] = identification(MappingRules(listener.mapping_rules), audit, name)
            except InvalidRule as error:
                raise CertificateUnusable(f"broker.listeners.{name}: mapping_rules: {error}") from error
    return found


def identification(rules: MappingRules, audit: AuditLog | None = None, listener: str = "") -> Identify:
    def principal_of(certificate: bytes | None, peer: str) -> str | None:
        """None: no certificate, where it is only asked for."""
        if certificate is None:
            return None
        name = ""
        try:
            name = distinguished_name(certificate)
            principal = rules.principal(name)
        except NoRuleApplies as error:
            note(user(name), peer, "no mapping rule applies")
            raise PeerRefused("no mapping rule applies", str(error)) from None
        except UnreadableCertificate as error:
            note("", peer, "unreadable certificate")
            raise PeerRefused("unreadable certificate", str(error)) from None
        note(principal, peer)
        return principal

    def note(principal: str, peer: str, failure: str | None = None) -> None:
        if audit is not None:
            about = _BY_CERTIFICATE if failure is None else f"{_BY_CERTIFICATE}: {failure}"
            audit.note(
                AuditedAct(failure is None, principal, host_of(peer), AUTHENTICATE, LISTENER, listener, about)
            )

    return principal_of
