"""Records that reached the source after a partition had become Dray's.

A fence does not hold for everybody: `stopped` rests on an operator's word, and super users pass an ACL. What
such a writer is told is stored there is nowhere here: it is named, and can be produced again
(`migration/stragglers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .source import Source


class Straggling(NamedTuple):
    """What the source holds of a partition beyond the boundary: offsets from `start` up to before `end`."""

    start: int
    end: int
    decided: int
    """Up to here: behind it a transaction is open."""


async def find_stragglers(source: Source, boundaries: Mapping[int, int]) -> dict[int, Straggling]:
    """By partition, those that have any now. Raises `RequestFailed` where a partition has no leader: what
    cannot be seen is not nothing."""
    await source.learn()
    found: dict[int, Straggling] = {}
    for partition, boundary in sorted(boundaries.items()):
        measured = await source.measure(partition)
        end = measured.high_watermark
        if end > boundary:
            found[partition] = Straggling(boundary, end, max(boundary, min(measured.last_stable, end)))
    return found
