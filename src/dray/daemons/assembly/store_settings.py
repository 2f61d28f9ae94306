"""From the config to the stores: what every process needs, whatever else it does.

A console reads stores and serves no client: it is not to load the rooms that the broker's settings name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dray.base.config.kinds import Secret
from dray.broker.topics.live import TableNames
from dray.daemons.config import Settings
from dray.objects.remote.credentials import SecretFiles


def object_secrets(settings: Settings) -> Mapping[str, str]:
    """The credentials of the object store. If they come from files, each use reads them anew."""
    given = revealed(settings.objects.secrets)
    directory = settings.objects.secrets_directory
    return given if directory is None else SecretFiles(Path(directory).absolute(), given)


def revealed(secrets: Mapping[str, Secret]) -> dict[str, str]:
    return {name: secret.text for name, secret in secrets.items()}


def table_names(settings: Settings) -> TableNames:
    """Which topics become tables: for compactors, and for commands that say why one does not."""
    return TableNames(settings.iceberg.exclude_topics)
