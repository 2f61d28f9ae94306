"""A setting has one default, the config's. Where a room keeps one for its own sake, it is the same."""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, Field, fields
from typing import Any

import pytest

from dray.api.shared import ApiSettings
from dray.compaction.settings import CompactionSettings
from dray.config import Settings
from dray.daemon import settings as translated
from dray.daemon import store_settings
from dray.groups.coordinator import GroupsSettings
from dray.log import LogSettings
from dray.server import ServerSettings
from dray.topics import TopicsOptions

WITHOUT_DEFAULTS = [
    ApiSettings,
    CompactionSettings,
    GroupsSettings,
    LogSettings,
    ServerSettings,
    TopicsOptions,
]
NO_SETTING = {"broker_configs", "bulk_kinds", "features", "log_path"}
"""Given by the daemon, and in no config."""

DEFAULTS = Settings()
GIVEN = {
    type(each).__name__: each
    for each in (
        translated.groups_settings(DEFAULTS).classic,
        translated.groups_settings(DEFAULTS).consumer,
        store_settings.catalog_settings(DEFAULTS),
        store_settings.oxia_settings(DEFAULTS.metadata.oxia),
        store_settings.etcd_settings(DEFAULTS.metadata.etcd),
        translated.spark_settings(DEFAULTS),
    )
}


def translated_names() -> dict[str, set[str]]:
    """What `daemon/settings.py` and `daemon/store_settings.py` give to each class, by name."""
    found: dict[str, set[str]] = {}
    trees = [ast.parse(inspect.getsource(each)) for each in (translated, store_settings)]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.keywords:
            names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            found.setdefault(node.func.id, set()).update(names)
    return found


def default_of(field: Field[Any]) -> object:
    return field.default_factory() if field.default_factory is not MISSING else field.default


@pytest.mark.parametrize("room", WITHOUT_DEFAULTS)
def test_what_is_in_the_config_has_no_default_in_its_room(room: type) -> None:
    given = translated_names()[room.__name__] - NO_SETTING
    assert given
    assert [
        each.name for each in fields(room) if each.name in given and default_of(each) is not MISSING
    ] == []


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
