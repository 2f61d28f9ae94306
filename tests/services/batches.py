"""Record batches built byte by byte, true or with any lie a test wants to tell.

Written apart from `dray.kafka.records` on purpose: the code under test must not vouch for itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from crc32c import crc32c

TIMESTAMP = 1_700_000_000_000

Header = tuple[bytes, bytes | None]
Record = tuple[bytes | None, bytes | None, Sequence[Header]]

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32


def varint(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(entry: Record, offset_delta: int, timestamp_delta: int = 0, size: int | None = None) -> bytes:
    key, value, headers = entry
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers)) + b"".join(varint(len(name)) + name + sized(held) for name, held in headers)
    return varint(len(body) if size is None else size) + body


def plain(*values: bytes) -> list[Record]:
    return [(b"key", value, ()) for value in values]


def batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    timestamp: int = TIMESTAMP,
    max_timestamp: int | None = None,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    count: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    compress: Callable[[bytes], bytes] | None = None,
    body: bytes | None = None,
) -> bytes:
    """What is not given is what the batch really holds."""
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    if body is None:
        body = b"".join(record(entry, delta) for entry, delta in zip(records, deltas, strict=True))
    if compress is not None:
        body = compress(body)
    signed = struct.pack(
        ">hiqqqhii",
        attributes,
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        timestamp,
        timestamp if max_timestamp is None else max_timestamp,
        producer,
        epoch,
        sequence,
        len(records) if count is None else count,
    )
    checksum = crc32c(signed + body) if crc is None else crc
    tail = struct.pack(">ibI", leader_epoch, magic, checksum) + signed + body
    return struct.pack(">qi", base_offset, len(tail) if length is None else length) + tail


def old_message(magic: int) -> bytes:
    """A message of the formats before batches."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", TIMESTAMP) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 5) + b"value"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def summarise(data: bytes) -> list[dict[str, object]]:
    """What a fetch returned, batch by batch, leaving out what differs from run to run."""
    summaries: list[dict[str, object]] = []
    position = 0
    while position + 61 <= len(data):
        base_offset, length, leader_epoch, _, checksum = struct.unpack_from(">qiibI", data, position)
        end = position + 12 + length
        if end > len(data):
            summaries.append({"cut short": True})
            break
        attributes, last_delta, _, _, producer, epoch, sequence, count = struct.unpack_from(
            ">hiqqqhii", data, position + 21
        )
        summaries.append(
            {
                "base_offset": base_offset,
                "last_offset_delta": last_delta,
                "leader_epoch": leader_epoch,
                "crc holds": crc32c(data[position + 21 : end]) == checksum,
                "attributes": attributes,
                "producer": [producer, epoch, sequence],
                "count": count,
            }
        )
        position = end
    return summaries


def joined(records: Any) -> bytes:
    """Of an answer, which holds records in one piece or in several."""
    if isinstance(records, (bytes, bytearray, memoryview)):
        return bytes(records)
    return b"".join(bytes(part) for part in records)
