"""A table's snapshots, each with its *ends*: per partition, the offset up to which the table held the log.

A commit writes the ends into its snapshot's properties, so that a reader learns them without a manifest: the
table "as of that time" is a snapshot, or a filter by its ends. Each commit writes all snapshots again, so the
text is bounded; a topic of more partitions has its ends read from the manifests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LARGEST_TEXT: Final = 4096
"""About 250 partitions."""
TOO_MANY: Final = "too many"


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    snapshot_id: int
    parent_id: int | None
    made_ms: int
    operation: str
    """In Iceberg's words: append, replace, delete, overwrite."""
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    rows: int
    files: int
    size: int
    """Rows, files and bytes of the table with this snapshot."""
    ends: Mapping[int, int] | None
    """None where the snapshot does not say: then its manifests do (`ends_of`)."""
    is_ours: bool
    """Made by a compactor of this cluster."""


def ends_text(ends: Mapping[int, int]) -> str:
    text = ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))
    return text if len(text) <= LARGEST_TEXT else TOO_MANY


def parse_ends(text: str | None) -> dict[int, int] | None:
    """None for a text that says nothing, or that this build cannot read."""
    if text is None or text == TOO_MANY:
        return None
    ends: dict[int, int] = {}
    for pair in text.split(",") if text else ():
        partition, colon, end = pair.partition(":")
        if not (colon and partition.isdecimal() and end.isdecimal()):
            return None
        ends[int(partition)] = int(end)
    return ends
