"""AWS's catalogs: Glue, and REST catalogs that want every request signed.

Both need boto3, which is an optional package: nothing else needs it. boto3 finds the credentials (in the
properties `client.*` and `glue.*`, the environment, a profile, the machine's role). This module checks that
there are any, since pyiceberg does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dray.tables.contract import TablesUnavailable
from dray.tables.iceberg.settings import CATALOG_NAME, CatalogSettings, SettingsRefused

if TYPE_CHECKING:
    from pyiceberg.catalog.glue import GlueCatalog

INSTALL: Final = "pip install 'dray[aws]' (make setup-pipeline in a checkout)"
_MAX_RETRIES: Final = "glue.max-retries"


def require_boto3(settings: CatalogSettings) -> None:
    """Raises `SettingsRefused`."""
    if settings.kind != "glue" and settings.sigv4_region is None:
        return
    if find_spec("boto3") is None:
        what = "iceberg.catalog = glue" if settings.kind == "glue" else "iceberg.sigv4_region"
        raise SettingsRefused(f"{what}: it needs the Python package boto3; install it with: {INSTALL}")


def aws_properties(settings: CatalogSettings) -> dict[str, str]:
    properties = {}
    if settings.kind == "glue":
        properties[_MAX_RETRIES] = "0"
    if settings.sigv4_region is not None:
        properties["rest.sigv4-enabled"] = "true"
        properties["rest.signing-region"] = settings.sigv4_region
        properties["rest.signing-name"] = settings.sigv4_service
        properties["rest.sigv4.max-retries"] = "0"
    return properties


def require_credentials(properties: Mapping[str, str]) -> None:
    """Raises `TablesUnavailable`: a machine's role may be there a minute later."""
    import boto3

    session = boto3.Session(
        profile_name=properties.get("client.profile-name"),
        aws_access_key_id=properties.get("client.access-key-id"),
        aws_secret_access_key=properties.get("client.secret-access-key"),
        aws_session_token=properties.get("client.session-token"),
    )
    if session.get_credentials() is None:
        raise TablesUnavailable(
            "requests to the catalog cannot be signed without AWS credentials: set client.access-key-id and "
            "client.secret-access-key in iceberg.secrets, or give the machine a profile or a role"
        )


def open_glue(properties: Mapping[str, str], timeout_seconds: float) -> GlueCatalog:
    """pyiceberg hands the number of retries on as it is, and botocore wants a number; and it knows no
    property for timeouts, so they come as defaults of the botocore session."""
    import botocore.session
    from botocore.config import Config
    from pyiceberg.catalog.glue import GlueCatalog

    retries = properties[_MAX_RETRIES]
    if not retries.isdecimal():
        raise SettingsRefused(f"iceberg.options.{_MAX_RETRIES} = {retries!r}: it is a number of retries")
    session = botocore.session.get_session()
    session.set_default_client_config(Config(connect_timeout=timeout_seconds, read_timeout=timeout_seconds))
    given = {**properties, _MAX_RETRIES: int(retries), "botocore_session": session}
    return GlueCatalog(CATALOG_NAME, **given)
