"""Catalogs of pyiceberg, made from our settings, with their own retries off.

A retry inside of the library would ask twice and hand back the second answer, which may be a conflict with
our own commit. Commits here look the outcome up instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import Endpoints, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.exceptions import OAuthError, RESTError
from pyiceberg.exceptions import ValidationError as MetadataInvalid
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID
from requests import Session, codes

from dray.tables.contract import TablesUnavailable, TableUnreadable
from dray.tables.iceberg import aws, cloud_files, local_files
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.manifests import FileDamaged
from dray.tables.iceberg.settings import CATALOG_NAME, CatalogSettings, SettingsRefused

_EMPTY: Final = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": None})
_SQLITE_FILE: Final = "sqlite:///"
_TRIES_TO_CREATE: Final = 3
# `requests` and file systems raise OSError. An answer that is not valid raises ValidationError.
_FAILURES: Final[tuple[type[Exception], ...]] = (
    OSError,
    RESTError,
    OAuthError,
    ValidationError,
)


def open_catalog(settings: CatalogSettings, locations: Locations) -> Catalog:
    """Raises `SettingsRefused` where a library is missing or an option makes no sense, and
    `TablesUnavailable` where the catalog does not answer."""
    properties = catalog_properties(settings, locations)
    with answering("the catalog cannot be opened"):
        try:
            if settings.kind == "sql":
                return _open_sql(properties)
            if settings.kind == "glue":
                return aws.open_glue(properties, settings.timeout_seconds)
            if settings.sigv4_region is not None:
                aws.require_credentials(properties)
            return _PromptRestCatalog(settings.timeout_seconds, properties)
        except ImportError as error:
            raise SettingsRefused(
                f"iceberg.catalog = {settings.kind}: it needs the Python package {error.name}; "
                f"install it with: {_package(settings)}"
            ) from error


def catalog_properties(settings: CatalogSettings, locations: Locations) -> dict[str, str]:
    properties = {**locations.properties, "warehouse": settings.warehouse or locations.root.rstrip("/")}
    properties["py-io-impl"] = (
        local_files.IMPLEMENTATION if locations.is_local else cloud_files.IMPLEMENTATION
    )
    if settings.kind == "rest" and settings.warehouse is None:
        # For a REST catalog this is the name of one of the server's warehouses, and not a location.
        del properties["warehouse"]
    if settings.uri is not None:
        properties["uri"] = _with_timeout(settings.uri, settings.timeout_seconds)
    return {**properties, **aws.aws_properties(settings), **settings.options, **settings.secrets}


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Whatever the catalog or the store under the tables raises when it does not do its work becomes one
    line. The outcome of what was asked is then unclear."""
    try:
        yield
    except (*_FAILURES, *_driver_errors()) as error:
        raise TablesUnavailable(f"{what}: {_first_line(error)}") from error


@contextmanager
def readable(what: str, remedy: str) -> Iterator[None]:
    """A part of a table that cannot be read, though its catalog and the store answer, becomes one line."""
    try:
        yield
    except (FileDamaged, FileNotFoundError, MetadataInvalid, ValidationError) as error:
        raise TableUnreadable(f"{what} cannot be read: {_reason(error)}; {remedy}") from error


def _reason(error: Exception) -> str:
    """The fault of metadata stands behind the line that counts the faults."""
    found = error.__cause__ if isinstance(error, MetadataInvalid) else error
    if not isinstance(found, ValidationError):
        return _first_line(error)
    first = found.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _open_sql(properties: dict[str, str]) -> Catalog:
    from sqlalchemy.exc import OperationalError

    from dray.tables.iceberg.sql_catalog import OnceReadingSqlCatalog

    uri = properties["uri"]
    if uri.startswith(_SQLITE_FILE):
        Path(uri.removeprefix(_SQLITE_FILE).partition("?")[0]).parent.mkdir(parents=True, exist_ok=True)
    for _ in range(_TRIES_TO_CREATE - 1):
        try:
            return OnceReadingSqlCatalog(properties)
        except OperationalError as error:
            # Two processes that start at once both find no tables, and one of them makes them first.
            if "already exists" not in str(error):
                raise
    return OnceReadingSqlCatalog(properties)


class _PromptRestCatalog(RestCatalog):
    """A REST catalog with timeouts. The library sets none: after one lost packet, a thread would wait for
    ever. It asks for a token while it still makes the session, so the timeout is set there."""

    def __init__(self, timeout_seconds: float, properties: dict[str, str]) -> None:
        self._timeout_seconds = timeout_seconds
        super().__init__(CATALOG_NAME, **properties)

    def set_columns(self, table: Table, columns: Schema) -> None:
        """As `commit_table`, but with the last id: the library leaves it out, and some servers insist."""
        added = json.loads(columns.model_dump_json()) | {"schema-id": len(table.schemas())}
        asserted = AssertTableUUID(uuid=table.metadata.table_uuid), _EMPTY
        body = {
            "requirements": [json.loads(each.model_dump_json()) for each in asserted],
            "updates": [
                {"action": "add-schema", "schema": added, "last-column-id": columns.highest_field_id},
                {"action": "set-current-schema", "schema-id": -1},
            ],
        }
        names = self._split_identifier_for_path(table.name())
        answer = self._session.post(self.url(Endpoints.update_table, **names), data=json.dumps(body))
        if answer.status_code != codes.ok:
            raise RESTError(
                f"the columns of the new table are not set: {answer.status_code} {answer.text[:300]}"
            )

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        session.request = partial(session.request, timeout=self._timeout_seconds)  # type: ignore[method-assign]
        return super()._create_legacy_oauth2_auth_manager(session)


def set_columns(catalog: Catalog, table: Table, columns: Schema) -> bool:
    """Give a table that has no snapshot yet these very columns: the files of the log have their ids, and some
    catalogs number the columns of a new table in another way. False for a catalog where that is not to be
    expected."""
    if not isinstance(catalog, _PromptRestCatalog):
        return False
    catalog.set_columns(table, columns)
    return True


def _with_timeout(uri: str, seconds: float) -> str:
    """Sets how long SQLite waits for the locks of other processes."""
    return f"{uri}?timeout={seconds:g}" if uri.startswith(_SQLITE_FILE) and "?" not in uri else uri


def _driver_errors() -> tuple[type[Exception], ...]:
    """The errors of the drivers that are installed, which depends on the catalog that is used."""
    found: list[type[Exception]] = []
    try:
        from sqlalchemy.exc import SQLAlchemyError

        found.append(SQLAlchemyError)
    except ImportError:
        pass
    try:
        from botocore.exceptions import BotoCoreError, ClientError

        found += [BotoCoreError, ClientError]
    except ImportError:
        pass
    return tuple(found)


def _package(settings: CatalogSettings) -> str:
    return "pip install 'pyiceberg[sql-sqlite]'" if settings.kind == "sql" else aws.INSTALL


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else type(error).__name__
