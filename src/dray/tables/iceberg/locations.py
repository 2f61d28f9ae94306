"""Between paths of the object store and the locations that tables name.

The tables name the files of the log itself, so other programs find them only if a location means the same
to them as a path means to a broker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import UUID

from dray.tables.iceberg.settings import SettingsRefused

METADATA_PREFIX: Final = "iceberg/"
"""Below it lie the metadata files of all tables."""

STORE: Final = "dray.store"
"""The property that says to `cloud_files` how the object store is opened, and which locations are its."""
_ACCOUNT_NAMES: Final = ("account_name", "azure_storage_account_name")


@dataclass(frozen=True)
class Locations:
    """`root` ends with a slash; `properties` are what pyiceberg's file access needs. They may change while a
    process runs, with the credentials."""

    root: str
    read_properties: Callable[[], Mapping[str, str]] = field(default=dict, repr=False)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.read_properties()

    def location_of(self, path: str) -> str:
        return self.root + path

    def path_of(self, location: str) -> str | None:
        """None for a location outside of the object store."""
        plain = _plain_file(location)
        return plain.removeprefix(self.root) if plain.startswith(self.root) else None

    @property
    def is_local(self) -> bool:
        return self.root.startswith("file:")


def table_path(topic: str, topic_id: UUID) -> str:
    """The path of the metadata of a topic's table. The id keeps apart the files that two topics of one name
    leave there, as it does with the data files."""
    return f"{METADATA_PREFIX}topic={quote(topic, safe='')}/id={topic_id.hex}"


def locations(url: str, options: Mapping[str, str], secrets: Mapping[str, str]) -> Locations:
    """The locations of the object store with that URL. Raises `SettingsRefused` for a store that other
    programs cannot read."""
    scheme, _, rest = url.partition(":")
    if scheme == "file":
        return Locations(f"file://{Path(rest.removeprefix('//')).resolve()}/")
    root = url.rstrip("/") + "/"
    if scheme == "az":
        root = _on_azure(root, {**options, **dict(secrets.items())})
    elif scheme not in ("s3", "gs"):
        raise SettingsRefused(
            f"objects.url = {url}: tables need an object store that other programs can read; "
            "use another one, or set iceberg.enabled to false"
        )
    return Locations(root, partial(_store, root, url, options, secrets))


def _on_azure(root: str, given: Mapping[str, str]) -> str:
    """As Spark, Trino and pyiceberg name them. The address of the requests is the object store's matter."""
    account = next((given[name] for name in _ACCOUNT_NAMES if given.get(name)), None)
    if account is None:
        raise SettingsRefused("objects.options.account_name: the tables need it to name files on Azure")
    container, _, prefix = root.removeprefix("az://").partition("/")
    return f"abfss://{container}@{account}.dfs.core.windows.net/{prefix}"


def _store(root: str, url: str, options: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    opened = {"root": root, "url": url, "options": dict(options), "secrets": dict(secrets.items())}
    return {STORE: json.dumps(opened)}


def _plain_file(location: str) -> str:
    """Java writes `file:/a` where Python writes `file:///a`."""
    if location.startswith("file:/") and not location.startswith("file://"):
        return "file://" + location.removeprefix("file:")
    return location
