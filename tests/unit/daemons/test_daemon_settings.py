"""A setting has one default, the config's. Where a room keeps one for its own sake, it is the same."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dray.daemons.assembly import settings as translated
from dray.daemons.assembly import store_settings
from dray.daemons.assembly.store_settings import object_secrets
from dray.daemons.assembly.stores import warn_of_unread_profiles
from dray.daemons.compactor import catalogs
from dray.daemons.compactor.catalogs import locations_of
from dray.daemons.config import Settings, load
from dray.tables.compaction.spark.worker import StoreAddress
from dray.tables.iceberg.locations import STORE

NO_SETTING = {"broker_configs", "bulk_kinds", "features", "log_path"}
"""Given by the daemon, and in no config."""

DEFAULTS = Settings()
GIVEN = {
    type(each).__name__: each
    for each in (
        catalogs.catalog_settings(DEFAULTS),
        translated.spark_settings(DEFAULTS),
    )
}


def translated_names() -> dict[str, set[str]]:
    """What the modules that translate settings give to each class, by name."""
    found: dict[str, set[str]] = {}
    trees = [ast.parse(inspect.getsource(each)) for each in (translated, store_settings, catalogs)]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.keywords:
            names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            found.setdefault(node.func.id, set()).update(names)
    return found


def default_of(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_a_default_that_a_room_keeps_is_the_configs(name: str) -> None:
    room, given = GIVEN[name], translated_names()[name]
    kept = {each.name: default_of(each) for each in fields(room) if each.name in given - NO_SETTING}
    differing = {
        key: (default, getattr(room, key))
        for key, default in kept.items()
        if default is not MISSING and default != getattr(room, key)
    }
    assert differing == {}


def test_rows_of_others_are_held_or_taken_out() -> None:
    assert not translated.compaction_settings(Settings()).revert_foreign_rows
    revert = load(None, {"DRAY_ICEBERG__FOREIGN_ROWS": "revert"}).settings
    assert translated.compaction_settings(revert).revert_foreign_rows


def test_stores_and_tables_read_credentials_from_files(tmp_path: Path) -> None:
    """Each time anew: they change while processes run. Workers of Spark get what is there at that moment."""
    file = tmp_path / "access_key_id"
    file.write_text("first")
    environment = {
        "DRAY_OBJECTS__URL": "s3://bucket",
        "DRAY_OBJECTS__SECRETS_DIRECTORY": str(tmp_path),
        "DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY": "given",
    }
    settings = load(None, environment).settings
    secrets, tables = object_secrets(settings), locations_of(settings)
    for key in ("first", "second"):
        file.write_text(key)
        assert dict(secrets) == {"access_key_id": key, "secret_access_key": "given"}
        assert json.loads(tables.properties[STORE])["secrets"]["access_key_id"] == key
        assert pickle.loads(pickle.dumps(StoreAddress("s3://b", {}, secrets))).secrets == dict(secrets)


def test_a_profile_that_is_not_read_is_told() -> None:
    settings = load(None, {"DRAY_OBJECTS__URL": "s3://bucket"}).settings
    given = load(None, {"DRAY_OBJECTS__URL": "s3://b", "DRAY_OBJECTS__SECRETS__ACCESS_KEY_ID": "x"}).settings
    with capture_logs() as lines:
        warn_of_unread_profiles(settings, {"AWS_PROFILE": "production"})
        warn_of_unread_profiles(settings, {"AWS_PROFILE": "production", "AWS_ACCESS_KEY_ID": "x"})
        warn_of_unread_profiles(given, {"AWS_PROFILE": "production"})
        warn_of_unread_profiles(settings, {})
    assert [line["event"] for line in lines] == [
        "AWS_PROFILE is not read: give the credentials in objects.secrets or objects.secrets_directory"
    ]
