"""The keys that sign tokens: from a file, or from an address."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

from dray.config import Settings
from dray.config.listeners import TOKEN_MECHANISM
from dray.daemon.watched_files import FileUnusable, WatchedFile
from dray.runtime import Runtime
from dray.security.https import parse_address
from dray.security.jwks import LARGEST_KEY_SET, InvalidKeySet, KeySet
from dray.security.key_set_address import KeySetAddress, fetch_from


class KeySetUnusable(FileUnusable):
    """One line: which file or address, and what is wrong with it."""


class KeySource(Protocol):
    """Where tokens are verified with the keys as they are now."""

    @property
    def current(self) -> KeySet | None: ...

    def want_newer(self) -> None:
        """A token named a key that is not known."""


class KeySetFile(WatchedFile[KeySet]):
    def want_newer(self) -> None:
        """The file is looked at all the time."""

    def _parsed(self, path: Path) -> KeySet:
        with path.open("rb") as opened:
            data = opened.read(LARGEST_KEY_SET + 1)
        try:
            return KeySet(data)
        except InvalidKeySet as error:
            raise self._unusable(f"the key set {path} cannot be used: {error}") from error

    def _unusable(self, reason: str) -> KeySetUnusable:
        return KeySetUnusable(reason)


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
