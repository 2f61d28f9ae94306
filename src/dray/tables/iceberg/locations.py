"""Between paths of the object store and the locations that tables name.

The tables name the files of the log itself, so other programs find them only if a location means the same
to them as a path means to a broker. Credentials are the object store's, under the names that pyiceberg has
for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import UUID

from dray.tables.iceberg.settings import SettingsRefused

METADATA_PREFIX: Final = "iceberg/"
"""Below it lie the metadata files of all tables."""

_S3: Final = {
    "region": "s3.region",
    "endpoint": "s3.endpoint",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "ca_file": "dray.ca-file",
}
_GCS: Final = {"endpoint": "gcs.service.host", "token": "gcs.oauth2.token"}
_AZURE: Final = {
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_key": "adls.sas-token",
    "tenant_id": "adls.tenant-id",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
}


@dataclass(frozen=True)
class Locations:
    """`root` ends with a slash; `properties` are what pyiceberg's file access needs."""

    root: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

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
    """Where the metadata of a topic's table lies. The id keeps apart what two topics of one name leave
    there, as it does with the data files."""
    return f"{METADATA_PREFIX}topic={quote(topic, safe='')}/id={topic_id.hex}"


def locations(url: str, options: Mapping[str, str], secrets: Mapping[str, str]) -> Locations:
    """The locations of the object store with that URL. Raises `SettingsRefused` for a store that other
    programs cannot read."""
    scheme, _, rest = url.partition(":")
    given = {**options, **secrets}
    if scheme == "file":
        return Locations(f"file://{Path(rest.removeprefix('//')).resolve()}/")
    root = url.rstrip("/") + "/"
    if scheme == "s3":
        named = _named(_S3, given)
        # With an endpoint of its own, pyarrow puts the bucket's name into the path, unless virtual addressing
        # is forced.
        if given.get("path_style") == "false" or given.get("virtual_hosted_style_request") == "true":
            named["s3.force-virtual-addressing"] = "true"
        return Locations(root, named)
    if scheme == "gs":
        return Locations(root, _named(_GCS, given))
    if scheme == "az":
        account = given.get("account_name")
        if not account:
            raise SettingsRefused("objects.options.account_name: the tables need it to name files on Azure")
        container, _, prefix = root.removeprefix("az://").partition("/")
        return Locations(
            f"abfss://{container}@{account}.dfs.core.windows.net/{prefix}", _named(_AZURE, given)
        )
    raise SettingsRefused(
        f"objects.url = {url}: tables need an object store that other programs can read; "
        "use another one, or set iceberg.enabled to false"
    )


def _named(names: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {theirs: given[ours] for ours, theirs in names.items() if given.get(ours)}


def _plain_file(location: str) -> str:
    """Java writes `file:/a` where Python writes `file:///a`."""
    if location.startswith("file:/") and not location.startswith("file://"):
        return "file://" + location.removeprefix("file:")
    return location
