"""The certificate of a listener, re-read when its files change.

Connections keep what they were made with; the next handshake gets the new pair. Every handshake chooses its
context in a callback, so a new pair only swaps one reference. That is done only after the new pair has passed
a handshake in memory: half-written files change nothing.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

_STEPS: Final = 20  # of a handshake in memory; four are enough


class CertificateUnusable(Exception):
    """One line: which file, and what is wrong with it."""


class ServerCertificate:
    """Reads files: on the event loop only when a process starts, else in a thread. Raises
    `CertificateUnusable`."""

    def __init__(self, certificate_file: Path, key_file: Path) -> None:
        self._files = (certificate_file, key_file)
        self._seen = self._state_of_files()
        self._current = self._read()
        self.context = _new_context()
        """For the listener: it never changes."""
        self.context.sni_callback = self._choose

    def refresh(self) -> bool:
        """True if the pair has changed, and the new one is in use."""
        seen = self._state_of_files()
        if seen == self._seen:
            return False
        self._current = self._read()
        self._seen = seen
        return True

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext) -> None:
        """Called for every handshake, with or without a name."""
        handshake.context = self._current

    def _state_of_files(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in self._files:
            try:
                state = path.stat()
            except OSError as error:
                raise CertificateUnusable(f"cannot read {path}: {error.strerror}") from error
            found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(found)

    def _read(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = _new_context()
        try:
            # A password is asked for on the terminal, unless one is given: keys here have none.
            context.load_cert_chain(certificate, key, password=b"-")
            _try(context)
        except (OSError, ValueError) as error:
            what = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            raise CertificateUnusable(
                f"the certificate {certificate} with the key {key} cannot be used: {what}"
            ) from error
        return context


def _new_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
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
