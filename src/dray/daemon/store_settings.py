"""From the config to the stores and the tables: what every process needs, whatever else it does.

A console reads stores and serves no client: it is not to load the rooms that the broker's settings name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from dray.config import Settings
from dray.config.metadata import EtcdSection, OxiaSection
from dray.metadata.etcd import EtcdSettings, EtcdTls
from dray.metadata.oxia.settings import OxiaSettings, OxiaTls
from dray.tables.iceberg import CatalogSettings
from dray.topics.table_names import TableNames


def oxia_settings(section: OxiaSection) -> OxiaSettings:
    tls = OxiaTls(
        _path(section.ca_file), _path(section.certificate_file), _path(section.key_file), section.server_name
    )
    token = section.secrets.get("token")
    return OxiaSettings(
        addresses=section.addresses.split(","),
        namespace=section.namespace,
        tls=tls if section.tls else None,
        token=None if token is None else token.get_secret_value(),
        request_timeout=section.request_timeout,
        patience=section.patience,
    )


def etcd_settings(section: EtcdSection) -> EtcdSettings:
    def secret(name: str) -> str | None:
        found = section.secrets.get(name)
        return None if found is None else found.get_secret_value()

    tls = EtcdTls(
        _path(section.ca_file), _path(section.certificate_file), _path(section.key_file), section.server_name
    )
    return EtcdSettings(
        endpoints=section.endpoints.split(","),
        prefix=section.prefix,
        tls=tls if section.tls else None,
        user=section.user,
        password=secret("password"),
        token=secret("token"),
        request_timeout=section.request_timeout,
        patience=section.patience,
        serializable_reads=section.serializable_reads,
        max_transaction_operations=section.max_txn_ops,
        max_request_bytes=section.max_request_bytes,
    )


def revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def catalog_settings(settings: Settings) -> CatalogSettings:
    """Raises `SettingsRefused` where they do not fit together."""
    given = settings.iceberg
    return CatalogSettings(
        kind=given.catalog,  # type: ignore[arg-type]  # the config model has the same three choices
        uri=settings.catalog_uri,
        namespace=given.namespace,
        options=given.options,
        secrets=revealed(given.secrets),
        warehouse=given.warehouse,
        sigv4_region=given.sigv4_region,
        timeout_seconds=given.timeout,
    )


def table_names(settings: Settings) -> TableNames:
    """Which topics become tables: for compactors, and for commands that say why one does not."""
    return TableNames(settings.iceberg.exclude_topics)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
