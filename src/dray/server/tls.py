"""The certificates of a listener, and what it asks of those of its clients; re-read when the files change.

Connections keep what they were made with; the next handshake gets what is new. Every handshake chooses its
context in a callback, so a new certificate only swaps one reference. That is done only after each new pair
has passed a handshake in memory: half-written files change nothing.

What a context asks of clients (`verify_mode`, `verify_flags`) is that of the listener's context, whatever the
callback chooses; whose certificates are trusted is that of the chosen one (measured, OpenSSL 3.0).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from dray.server.encryption import Encryption, SystemEncryption

if TYPE_CHECKING:
    from dray.server.bundled_tls import BundledContext

_STEPS: Final = 20  # of a handshake in memory; four are enough
_REVOCATIONS: Final = "-----BEGIN X509 CRL-----"
_LARGEST_FILE: Final = 16 << 20

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
    bundled: BundledContext | None
    """Of the first pair too, and knows the others."""

    def of(self, name: str | None) -> ssl.SSLContext:
        if name is None or not self.by_name:
            return self.first
        return context_named(self.by_name, name) or self.first


Context = TypeVar("Context")


def context_named(by_name: Mapping[str, Context], name: str) -> Context | None:
    """What stands there for a host name: under the name itself, or with `*` for its first label."""
    name = name.lower().rstrip(".")
    return by_name.get(name) or by_name.get("*." + name.partition(".")[2])


def why_not_bundled() -> str | None:
    """What keeps the OpenSSL of `cryptography` from being used here; None if nothing does. Its binding is not
    part of what that package promises: a version may come without it, or without a function of it."""
    try:
        import dray.server.bundled_tls  # noqa: F401
    except (ImportError, AttributeError) as error:
        return str(error).partition("\n")[0]
    return None


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
        bundled: bool = False,
    ) -> None:
        self._bundled = bundled
        self._asked = client_auth
        self._pairs = (CertificatePair(certificate_file, key_file), *further)
        self._client_auth = CLIENT_AUTH[client_auth]
        self._authorities = client_authorities
        self._seen = self._state_of_files()
        self._current = self._read()
        self.context = self._new_context()
        """For the listener: it never changes."""
        self._follow_revocations()
        self.context.sni_callback = self._choose

    def encryption(self) -> Encryption:
        """For a new connection."""
        bundled = self._current.bundled
        if bundled is None:
            return SystemEncryption(self.context)
        from dray.server.bundled_tls import BundledEncryption

        return BundledEncryption(bundled)

    def refresh(self) -> bool:
        """True if a file has changed, and what is new is in use."""
        seen = self._state_of_files()
        if seen == self._seen:
            return False
        self._current = self._read()
        self._follow_revocations()
        self._seen = seen
        return True

    def _choose(self, handshake: ssl.SSLObject, name: str | None, _outer: ssl.SSLContext) -> None:
        """Called for every handshake, with or without a name."""
        handshake.context = self._current.of(name)

    def _follow_revocations(self) -> None:
        if self._current.checks_revocation:
            self.context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        else:
            self.context.verify_flags &= ~ssl.VERIFY_CRL_CHECK_LEAF

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
        bundled = self._read_bundled(by_name, checks_revocation) if self._bundled else None
        named = {name: contexts[number] for name, number in by_name.items()}
        return _Chosen(contexts[0], named, checks_revocation, bundled)

    def _read_bundled(self, by_name: Mapping[str, int], checks_revocation: bool) -> BundledContext:
        from dray.server.bundled_tls import BundledContext, Unusable

        made = []
        for pair in self._pairs:
            try:
                made.append(
                    BundledContext(
                        pair.certificate_file,
                        pair.key_file,
                        client_auth=self._asked,
                        client_authorities=self._authorities,
                        checks_revocation=checks_revocation,
                    )
                )
            except Unusable as error:
                raise CertificateUnusable(
                    f"the certificate {pair.certificate_file} with the key {pair.key_file} cannot be used: "
                    f"{error}"
                ) from error
        if by_name:
            made[0].choose_by_name({name: made[number] for name, number in by_name.items()})
        return made[0]

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
        return context

    def _ask_clients(self, context: ssl.SSLContext) -> None:
        context.verify_mode = self._client_auth
        if self._client_auth != ssl.CERT_NONE:
            # A ticket would let a client in whose certificate is not looked at again.
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


def _names_of(path: Path) -> list[str]:
    """The host names of the first certificate in a file. The library is large: it is loaded where a listener
    has several certificates."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    except x509.ExtensionNotFound:
        raise CertificateUnusable(f"the certificate {path} has no names to choose it by (SNI)") from None
    except (OSError, ValueError) as error:
        raise CertificateUnusable(f"the certificate {path} cannot be used: {_reason(error)}") from error


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
