"""A table's snapshots with their ends, and which of them the table was at a given time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dray.tables.snapshots import TableSnapshot

SHOWN: Final = 100


class SnapshotSource(Protocol):
    """Where snapshots are read: `IcebergTables`, which is not loaded before it is needed."""

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        """Newest first; None where there is no table."""

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        """None where there is no such snapshot any more."""


@dataclass(frozen=True)
class TableHistory:
    topic: str
    snapshots: Sequence[TableSnapshot]
    """Newest first."""
    total: int
    """How many there are; more than are listed, perhaps."""


@dataclass(frozen=True)
class TableAsOf:
    """The table at a time."""

    snapshot_id: int
    made_ms: int
    ends: Mapping[int, int]


async def table_history(source: SnapshotSource, topic: str, most: int = SHOWN) -> TableHistory | None:
    """None where the topic has no table."""
    found = await source.snapshots(topic)
    return None if found is None else TableHistory(topic, found[:most], len(found))


async def table_as_of(source: SnapshotSource, topic: str, at_ms: int) -> TableAsOf | None:
    """The newest snapshot that was made by then, with its ends; None where no snapshot is that old, or the
    one that is has expired meanwhile."""
    for snapshot in await source.snapshots(topic) or ():
        if snapshot.made_ms <= at_ms:
            ends = snapshot.ends
            if ends is None:
                ends = await source.ends_of(topic, snapshot.snapshot_id)
            return None if ends is None else TableAsOf(snapshot.snapshot_id, snapshot.made_ms, ends)
    return None
