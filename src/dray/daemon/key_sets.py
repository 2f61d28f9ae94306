"""The keys that sign tokens: from a file, or from an address."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

from dray.config import Settings
from dray.config.listeners import TOKEN_MECHANISM
from dray.runtime import Runtime
from dray.security.https import parse_address
from dray.security.jwks import LARGEST_KEY_SET, InvalidKeySet, KeySet
from dray.security.key_set_address import KeySetAddress, fetch_from


class KeySetUnusable(Exception):
    """One line: which file or address, and what is wrong with it."""


class KeySource(Protocol):
    """Where tokens are verified with the keys as they are now."""

    @property
    def current(self) -> KeySet | None: ...

    def want_newer(self) -> None:
        """A token named a key that is not known."""


class KeySetFile:
    """Re-read when it changes; a broken file leaves the keys that were read. Raises `KeySetUnusable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.current = self._read()

    def refresh(self) -> bool:
        """True if there are new keys, and they are in use."""
        if self._state() == self._seen:
            return False
        self.current = self._read()
        return True

    def want_newer(self) -> None:
        """The file is looked at all the time."""

    def _state(self) -> tuple[int, int, int]:
        try:
            state = self._path.stat()
        except OSError as error:
            raise KeySetUnusable(f"cannot read {self._path}: {error.strerror}") from error
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _read(self) -> KeySet:
        seen = self._state()
        try:
            with self._path.open("rb") as opened:
                found = KeySet(opened.read(LARGEST_KEY_SET + 1))
        except (OSError, InvalidKeySet) as error:
            raise KeySetUnusable(f"the key set {self._path} cannot be used: {error}") from error
        self._seen = seen
        return found


def key_source(settings: Settings, runtime: Runtime) -> KeySetFile | KeySetAddress | None:
    """None where no listener takes tokens. Raises `KeySetUnusable`."""
    oauth = settings.oauth
    if not any(TOKEN_MECHANISM in place.mechanisms for place in settings.broker.listeners.values()):
        return None
    if oauth.key_set_file is not None:
        try:
            return KeySetFile(Path(oauth.key_set_file))
        except KeySetUnusable as error:
            raise KeySetUnusable(f"oauth.key_set_file: {error}") from error
    if oauth.key_set_url is None:
        return None
    try:
        address = parse_address(oauth.key_set_url)
    except ValueError as error:
        raise KeySetUnusable(f"oauth.key_set_url: {error}") from error
    try:
        context = ssl.create_default_context(cafile=oauth.key_set_ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds no certificates in PEM"
        raise KeySetUnusable(f"oauth.key_set_ca_file: {oauth.key_set_ca_file}: {reason}") from error
    return KeySetAddress(fetch_from(address, context), runtime, oauth.key_set_refresh)
