"""From the section `foreign` of the config to the stores of other systems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.store_settings import revealed
from dray.daemons.config import Settings
from dray.migration.entries.segments import ForeignAddress

T = TypeVar("T")


def foreign_addresses(settings: Settings) -> dict[str, ForeignAddress]:
    """Raises `Failure` for a key that cannot be read, and for what is said of a store that is not there."""
    foreign = settings.foreign
    options = _by_store("options", foreign.options, foreign.stores)
    secrets = _by_store("secrets", revealed(foreign.secrets), foreign.stores)
    keys = _by_store("keys", foreign.keys, foreign.stores)
    return {
        name: ForeignAddress(
            _absolute(url),
            options[name],
            secrets[name],
            {key: _read_key(name, key, path) for key, path in keys[name].items()},
        )
        for name, url in foreign.stores.items()
    }


def _by_store(what: str, values: Mapping[str, T], stores: Mapping[str, str]) -> dict[str, dict[str, T]]:
    found: dict[str, dict[str, T]] = {name: {} for name in stores}
    for name, value in values.items():
        store, _, own = name.partition(".")
        if store not in found:
            raise Failure(f"foreign.{what} {name}: foreign.stores has no store {store!r}", USAGE)
        found[store][own] = value
    return found


def _read_key(store: str, key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Failure(f"foreign.keys {store}.{key}: cannot read {path}: {error.strerror}", USAGE) from error


def _absolute(url: str) -> str:
    """Workers may run in another directory."""
    scheme, _, rest = url.partition(":")
    return f"file:{Path(rest.removeprefix('//')).absolute()}" if scheme == "file" else url
