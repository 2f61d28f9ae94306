"""What rooms take, for tests: what the config gives them by default, with what a test changes.

Rooms have no defaults of their own for what is in the config.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dray.api.shared import ApiSettings
from dray.compaction.settings import CompactionSettings
from dray.config import FlagValue, load
from dray.daemon import settings as translated
from dray.groups.coordinator import GroupsSettings
from dray.log import LogSettings
from dray.server import ServerSettings
from dray.topics import TopicsOptions

# What the config leaves to the machine is the same on every machine here.
CONFIG: Final = load(
    None,
    {},
    [
        FlagValue("test", "objects.url", "memory:"),
        FlagValue("test", "log.tail_cache_bytes", "128MiB"),
        FlagValue("test", "log.audit_interval", "1h"),
    ],
).settings


def log(**changes: Any) -> LogSettings:
    return replace(translated.log_settings(CONFIG), **changes)


def topics(**changes: Any) -> TopicsOptions:
    return replace(translated.topics_options(CONFIG), **changes)


def groups(**changes: Any) -> GroupsSettings:
    return replace(translated.groups_settings(CONFIG), **changes)


def api(**changes: Any) -> ApiSettings:
    return replace(translated.api_settings(CONFIG), **{"broker_configs": {}, "features": (), **changes})


def server(**changes: Any) -> ServerSettings:
    return replace(translated.server_settings(CONFIG), **changes)


def compaction(**changes: Any) -> CompactionSettings:
    return replace(translated.compaction_settings(CONFIG), **changes)
