"""The settings of the tables room: which catalog, where the files lie, under which names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

CatalogKind = Literal["sql", "rest", "glue"]

CATALOG_NAME = "dray"
"""The catalog's name in a SQL catalog's rows: other programs that read those rows have to use it too."""


_OF_CLIENTS: Final = ("s3.", "gcs.", "adls.")
"""pyiceberg's own clients for clouds, which are not used."""


class SettingsRefused(ValueError):
    """The settings of the tables do not fit together. The message is one line for the operator."""


@dataclass(frozen=True)
class CatalogSettings:
    kind: CatalogKind
    uri: str | None
    namespace: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of pyiceberg, as they are."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str | None = None
    sigv4_region: str | None = None
    sigv4_service: str = "glue"
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.kind != "glue" and not self.uri:
            raise SettingsRefused(f"iceberg.uri: a catalog of type {self.kind} needs one")
        if self.kind == "rest" and not str(self.uri).startswith(("http://", "https://")):
            raise SettingsRefused(
                "iceberg.uri: a REST catalog has an address that starts with http:// or https://, not "
                + str(self.uri).partition(":")[0]
            )
        if self.kind == "sql" and "://" not in str(self.uri):
            raise SettingsRefused(
                "iceberg.uri: a SQL catalog has a database address, such as sqlite:////srv/c.sqlite"
            )
        if self.sigv4_region is not None and self.kind != "rest":
            raise SettingsRefused(
                f"iceberg.sigv4_region: only a REST catalog is asked with signed requests, not {self.kind}"
            )
        for bearer in ("token", "credential"):
            if self.sigv4_region is not None and bearer in self.secrets:
                raise SettingsRefused(
                    f"iceberg.sigv4_region and iceberg.secrets.{bearer}: requests carry one of the two"
                )
        if self.kind == "glue" and "." in self.namespace:
            raise SettingsRefused(
                f"iceberg.namespace = {self.namespace}: Glue has databases, and no namespaces within them"
            )
        for name in (*self.options, *self.secrets):
            if name.startswith(_OF_CLIENTS):
                raise SettingsRefused(
                    f"iceberg.options.{name}: files of tables are read and written as the log's are: "
                    "it belongs into objects.options or objects.secrets, by the name that it has there"
                )
        for name in set(self.options) & set(self.secrets):
            raise SettingsRefused(f"iceberg.options.{name}: it is in iceberg.secrets as well")

    @property
    def namespace_parts(self) -> tuple[str, ...]:
        return tuple(self.namespace.split("."))

    def identifier(self, topic: str) -> tuple[str, ...]:
        """A topic's name is one part of the identifier, dots and all."""
        return (*self.namespace_parts, topic)
