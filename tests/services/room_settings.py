"""What rooms take, for tests: what the config gives them by default, with what a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dray.broker.api.shared import ApiSettings
from dray.broker.server import ServerSettings
from dray.broker.settings import GroupsSettings, TopicsOptions
from dray.daemons.assembly import settings as translated
from dray.daemons.config import FlagValue, load
from dray.log import LogSettings
from dray.log.append.carry import CarryLimits
from dray.metadata import contract
from dray.metadata.etcd import settings as etcd
from dray.metadata.oxia import settings as oxia
from dray.tables.compaction.settings import CompactionSettings

# What the config leaves to the machine is the same on every machine here.
CONFIG: Final = load(
    None,
    {},
    [
        FlagValue("test", "objects.url", "memory:"),
        FlagValue("test", "log.tail_cache_bytes", "128MiB"),
    ],
).settings

EMBEDDED: Final = CarryLimits.of(contract.EMBEDDED)
ETCD: Final = CarryLimits.of(etcd.INLINE)
BY_ENGINE: Final = {"sqlite": EMBEDDED, "oxia": CarryLimits.of(oxia.INLINE), "etcd": ETCD}
"""Small appends of the engines."""


def log(**changes: Any) -> LogSettings:
    return replace(translated.log_settings(CONFIG), **{"audit_every_rounds": 60, **changes})


def topics(**changes: Any) -> TopicsOptions:
    return replace(CONFIG.topics, **changes)


def groups(**changes: Any) -> GroupsSettings:
    return replace(translated.groups_settings(CONFIG), **changes)


def api(**changes: Any) -> ApiSettings:
    return replace(translated.api_settings(CONFIG), **{"broker_configs": {}, "features": (), **changes})


def server(**changes: Any) -> ServerSettings:
    return replace(translated.server_settings(CONFIG), **changes)


def compaction(**changes: Any) -> CompactionSettings:
    return replace(translated.compaction_settings(CONFIG), **changes)
