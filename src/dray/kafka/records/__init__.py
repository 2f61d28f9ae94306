"""Kafka record batches (magic 2) as bytes: check them, give them their offsets, look into them, turn them
into columns and back.

Everything that runs per record is compiled (`_core`); `twin` says the same in plain Python, and the tests
hold the two together. Nothing here does I/O or knows where batches come from.
"""

from dray.kafka.records._core import (
    Batch,
    KeyOffsets,
    crc32c,
    decode,
    decode_keys,
    decode_stored,
    encode,
    find_timestamp,
    patch,
    patch_all,
    recompress,
    records_said,
    restore,
    sound_headers,
    stamp_append_time,
    unfolds_at_once,
    unfolds_to,
    uninitialised,
    validate,
)
from dray.kafka.records.columns import BytesColumn, Columns, Kept, Record
from dray.kafka.records.compression import Codec
from dray.kafka.records.faults import RecordError, RecordFault
from dray.kafka.records.filler import filler
from dray.kafka.records.header import HEADER_SIZE, LEADER_EPOCH, NO_PRODUCER, BatchHeader, Buffer, read_header

__all__ = [
    "HEADER_SIZE",
    "LEADER_EPOCH",
    "NO_PRODUCER",
    "Batch",
    "BatchHeader",
    "Buffer",
    "BytesColumn",
    "Codec",
    "Columns",
    "Kept",
    "KeyOffsets",
    "Record",
    "RecordError",
    "RecordFault",
    "crc32c",
    "decode",
    "decode_keys",
    "decode_stored",
    "encode",
    "filler",
    "find_timestamp",
    "patch",
    "patch_all",
    "read_header",
    "recompress",
    "records_said",
    "restore",
    "sound_headers",
    "stamp_append_time",
    "unfolds_at_once",
    "unfolds_to",
    "uninitialised",
    "validate",
]
