"""The certificates of a listener, and what it asks of those of its clients; re-read when the files change.

Connections keep what they were made with; the next handshake gets what is new. Every handshake chooses its
context in a callback, so a new certificate only swaps one reference. That is done only after each new pair
has passed a handshake in memory: half-written files change nothing.

The demands on clients (`verify_mode`, `verify_flags`) are those of the listener's context, whatever the
callback chooses; whose certificates are trusted is that of the chosen one (measured, OpenSSL 3.0).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dray.broker.server.tls.encryption import Encryption

_STEPS: Final = 20  # of a handshake in memory; four are enough
_REVOCATIONS: Final = "-----BEGIN X509 CRL-----"
_LARGEST_FILE: Final = 16 << 20
_LONGEST_NAME: Final = 200
WARNED_DAYS: Final = 14
_DAY_MS: Final = 24 * 3600 * 1000

CLIENT_AUTH: Final[Mapping[str, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
"""Kafka's `ssl.client.auth`."""


class CertificateUnusable(Exception):
    """One line: which file, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class CertificatePair:
    certificate_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The contexts of all pairs: by the names of their certificates, and the first for all other names."""

    first: ssl.SSLContext
    by_name: Mapping[str, ssl.SSLContext]
    checks_revocation: bool
    ends_ms: int
    """When the first of the certificates is over."""
    ends_first: Path

    def of(self, name: str | None) -> ssl.SSLContext:
        if name is None or not self.by_name:
            return self.first
        name = name.lower().rstrip(".")
        any_host = "*." + name.partition(".")[2]
        return self.by_name.get(name) or self.by_name.get(any_host) or self.first


class ServerCertificate:
    """`further` pairs are for clients that ask for one of the names that stand in them (SNI). Reads files: on
    the event loop only when a process starts, else in a thread. Raises `CertificateUnusable`."""

    def __init__(
        self,
        certificate_file: Path,
        key_file: Path,
        *,
        further: tuple[CertificatePair, ...] = (),
        client_auth: str = "none",
        client_authorities: Path | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`wall_ms`: a changed certificate that is over by it is refused. At a start there is no other to go
        on with, and it is taken."""
        self._wall_ms = wall_ms
        self._pairs = (CertificatePair(certificate_file, key_file), *further)
        self._client_auth = CLIENT_AUTH[client_auth]
        self._authorities = client_authorities
        self._seen = self._state_of_files()
        self._current = self._read()
        self.context = self._new_context()
        """For the listener: it never changes."""

    def encryption(self) -> Encryption:
        """For a new connection. A context remembers sessions of TLS 1.2 for five minutes, and Python cannot
        tell it not to: who was revoked could resume one, unverified. So where certificates are asked for each
        connection has a context of its own (0.14 ms, 13 KiB)."""
        asks = self._client_auth != ssl.CERT_NONE
        return Encryption(self._new_context() if asks else self.context)

    def refresh(self) -> bool:
        """True if a file has changed, and what is new is in use."""
        seen = self._state_of_files()
        if seen == self._seen:
            return False
        found = self._read()
        if found.ends_ms <= self._wall_ms():
            raise CertificateUnusable(
                f"the certificate {found.ends_first} is over since {_moment(found.ends_ms)}"
            )
        self._current = found
        self._verify(self.context)
        self._seen = seen
        return True

    @property
    def ends_ms(self) -> int:
        """When the first of the certificates in use is over, since 1970."""
        return self._current.ends_ms

    def fault(self) -> str | None:
        """How long the certificate lasts, where that is not long, or it is over."""
        left_ms = self._current.ends_ms - self._wall_ms()
        if left_ms > WARNED_DAYS * _DAY_MS:
            return None
        named, end = self._current.ends_first, _moment(self._current.ends_ms)
        if left_ms <= 0:
            return f"the certificate {named} is over since {end}: clients refuse it"
        return f"the certificate {named} is over in {left_ms // _DAY_MS} days, on {end}: renew it"

    def _choose(self, handshake: ssl.SSLObject, name: str | None, _outer: ssl.SSLContext) -> None:
        """Called for every handshake, with or without a name."""
        handshake.context = self._current.of(name)

    def _verify(self, context: ssl.SSLContext) -> None:
        """The whole chain: an authority between the root and a client may be revoked, too."""
        if self._current.checks_revocation:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        else:
            context.verify_flags &= ~ssl.VERIFY_CRL_CHECK_CHAIN

    def _state_of_files(self) -> tuple[tuple[int, int, int], ...]:
        paths = [path for pair in self._pairs for path in (pair.certificate_file, pair.key_file)]
        if self._authorities is not None:
            paths.append(self._authorities)
        found = []
        for path in paths:
            try:
                state = path.stat()
            except OSError as error:
                raise CertificateUnusable(f"cannot read {path}: {error.strerror}") from error
            found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(found)

    def _read(self) -> _Chosen:
        trusted = None if self._authorities is None else _text_of(self._authorities)
        contexts = [self._read_pair(pair, trusted) for pair in self._pairs]
        by_name: dict[str, int] = {}
        if len(contexts) > 1:
            for number, pair in enumerate(self._pairs):
                for name in _names_of(pair.certificate_file):
                    by_name.setdefault(name, number)
        checks_revocation = trusted is not None and _REVOCATIONS in trusted
        if checks_revocation and self._authorities is not None:
            _check_lists(self._authorities, trusted or "")
        named = {name: contexts[number] for name, number in by_name.items()}
        ends_ms, ends_first = min(
            (_end_of(pair.certificate_file), pair.certificate_file) for pair in self._pairs
        )
        return _Chosen(contexts[0], named, checks_revocation, ends_ms, ends_first)

    def _read_pair(self, pair: CertificatePair, trusted: str | None) -> ssl.SSLContext:
        context = _plain_context()
        try:
            # A password is asked for on the terminal, unless one is given: keys here have none.
            context.load_cert_chain(pair.certificate_file, pair.key_file, password=b"-")
            _try(context)
        except (OSError, ValueError) as error:
            raise CertificateUnusable(
                f"the certificate {pair.certificate_file} with the key {pair.key_file} cannot be used: "
                f"{_reason(error)}"
            ) from error
        self._ask_clients(context)
        if trusted is not None:
            try:
                context.load_verify_locations(cadata=None, cafile=str(self._authorities))
            except (OSError, ValueError) as error:
                raise CertificateUnusable(
                    f"the certificates of client authorities {self._authorities} cannot be used: "
                    f"{_reason(error)}"
                ) from error
        return context

    def _new_context(self) -> ssl.SSLContext:
        context = _plain_context()
        self._ask_clients(context)
        self._verify(context)
        context.sni_callback = self._choose
        return context

    def _ask_clients(self, context: ssl.SSLContext) -> None:
        context.verify_mode = self._client_auth
        if self._client_auth != ssl.CERT_NONE:
            # A ticket would let in a client whose certificate is not looked at again.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(_LARGEST_FILE).decode("latin-1")
    except OSError as error:
        raise CertificateUnusable(f"cannot read {path}: {error.strerror}") from error


def _end_of(path: Path) -> int:
    """When the first certificate in a file is over. The library is large: it is loaded where there is TLS."""
    from cryptography import x509

    try:
        ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise CertificateUnusable(f"the certificate {path} cannot be used: {_reason(error)}") from error
    return round(ends.timestamp() * 1000)


def _moment(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _names_of(path: Path) -> list[str]:
    """The host names of the first certificate in a file."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    except x509.ExtensionNotFound:
        raise CertificateUnusable(f"the certificate {path} has no names to choose it by (SNI)") from None
    except (OSError, ValueError) as error:
        raise CertificateUnusable(f"the certificate {path} cannot be used: {_reason(error)}") from error


def _check_lists(path: Path, text: str) -> None:
    """Each authority needs a list: OpenSSL refuses every client below one that has none."""
    from cryptography import x509

    lists = re.findall(f"{_REVOCATIONS}.*?-----END X509 CRL-----", text, re.DOTALL)
    try:
        listed = {x509.load_pem_x509_crl(each.encode("latin-1")).issuer for each in lists}
        authorities = x509.load_pem_x509_certificates(text.encode("latin-1"))
    except ValueError as error:
        raise CertificateUnusable(
            f"the certificates of client authorities {path} cannot be used: {_reason(error)}"
        ) from error
    for authority in authorities:
        if authority.subject not in listed:
            name = authority.subject.rfc4514_string()[:_LONGEST_NAME]
            raise CertificateUnusable(
                f"the certificates of client authorities {path} cannot be used: there are lists of revoked "
                f"certificates, but none of {name!r}: add one of each authority"
            )


def _plain_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    return context


def _try(context: ssl.SSLContext) -> None:
    """A handshake in memory. Raises `ssl.SSLError`."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        context.wrap_bio(to_server, to_client, server_side=True),
        trusting.wrap_bio(to_client, to_server),
    ]
    for _ in range(_STEPS):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue
        if not sides:
            return
    raise ssl.SSLError("the handshake does not end")
