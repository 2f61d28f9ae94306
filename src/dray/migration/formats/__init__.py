"""Logs that others wrote, as bytes: Kafka's segments with their indexes and snapshots, the layouts of tiered
storage, KafScale's segments, DriftQ's log.

Nothing here does I/O or knows where bytes come from. Whatever does not fit is refused (`ForeignFault`), with
the byte where it does not: a log that was read wrongly once is wrong for ever. Sizes and counts that a file
states are held against the bytes that are there before anything is allocated for them.
"""

from dray.migration.formats.batches import (
    ForeignDamage,
    ForeignFault,
    ForeignUnsupported,
    SegmentBatch,
    cut_torn_tail,
    walk_batches,
)

__all__ = [
    "ForeignDamage",
    "ForeignFault",
    "ForeignUnsupported",
    "SegmentBatch",
    "cut_torn_tail",
    "walk_batches",
]
