"""Kafka record batches (magic 2) as bytes: check them, give them their offsets, look into them.

Everything that runs per record is compiled (`_core`); `twin` says the same in plain Python, and the tests
hold the two together. Nothing here does I/O or knows where batches come from.
"""

from ._core import (
    Batch,
    crc32c,
    find_timestamp,
    needs_thread,
    patch,
    patch_all,
    stamp_append_time,
    uninitialised,
    validate,
)
from .compression import Buffer, Codec
from .faults import RecordError, RecordFault

__all__ = [
    "Batch",
    "Buffer",
    "Codec",
    "RecordError",
    "RecordFault",
    "crc32c",
    "find_timestamp",
    "needs_thread",
    "patch",
    "patch_all",
    "stamp_append_time",
    "uninitialised",
    "validate",
]
