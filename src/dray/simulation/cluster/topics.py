"""The topics of a simulated cluster."""

from __future__ import annotations

from typing import Final

Place = tuple[str, int]
"""A partition, by the name of its topic."""

MAIN: Final = "main"
"""There from the start and never deleted: groups and idempotent producers rest on it."""

SPARE: Final = "spare"
"""Deleted and made anew, under everybody's feet."""

SPARE_PARTITIONS: Final = 2

COMPACTED: Final = "compacted"
"""Compacted by key, for most of the time: its policy is switched to and fro."""

COMPACTED_PLACE: Final[Place] = (COMPACTED, 0)
"""Its one partition."""

TOMBSTONES_STAY_MS: Final = 300
COMPACTED_CONFIG: Final = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(TOMBSTONES_STAY_MS),
    "min.cleanable.dirty.ratio": "0.1",
}
