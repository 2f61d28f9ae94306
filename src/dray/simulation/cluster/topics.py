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
