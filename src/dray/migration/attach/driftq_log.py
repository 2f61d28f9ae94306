"""DriftQ's write-ahead log as Kafka's segments: one for each partition, with the offsets that its messages
have.

The fields of a message beside its key and value become headers, named `driftq.` and the field, with the value
as JSON. DriftQ keeps no time: the records have that of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from dray.kafka.records import Record, twin
from dray.migration.attach.found import FoundSegment, thinned
from dray.migration.formats.driftq import DriftqLog, DriftqMessage

_RECORDS_AT_ONCE: Final = 500
_LARGEST_SPAN: Final = 1 << 30
"""Offsets of a batch lie within 31 bits."""


class ConvertedPartition(NamedTuple):
    partition: int
    found: FoundSegment
    data: bytes


def convert(log: DriftqLog, topic: str, path: str, modified_ms: int) -> list[ConvertedPartition]:
    found: list[ConvertedPartition] = []
    for partition, messages in sorted(log.messages.get(topic, {}).items()):
        parts: list[bytes] = []
        rows: list[tuple[int, int]] = []
        size = 0
        for records in _batches(messages, modified_ms):
            batch = bytes(twin.encode(records))
            rows.append((records[0].offset, size))
            parts.append(batch)
            size += len(batch)
        start = 0  # a partition's log begins with its topic's, though its first offset may be another's
        segment = FoundSegment(
            segment_id=uuid5(NAMESPACE_URL, f"driftq {path} {topic}-{partition} {modified_ms}"),
            path=f"{path}, {topic}-{partition}",
            object_size=size,
            segment_size=size,
            start=start,
            end=messages[-1].offset + 1,
            min_timestamp=modified_ms,
            max_timestamp=modified_ms,
            rows=thinned(rows),
        )
        found.append(ConvertedPartition(partition, segment, b"".join(parts)))
    return found


def _batches(messages: list[DriftqMessage], time_ms: int) -> Iterator[list[Record]]:
    waiting = iter(messages)
    taken: list[DriftqMessage] = []
    while taken or (taken := list(islice(waiting, _RECORDS_AT_ONCE))):
        first = taken[0].offset
        near = [each for each in taken if each.offset - first < _LARGEST_SPAN]
        yield [Record(each.offset, time_ms, each.key, each.value, _headers(each)) for each in near]
        taken = taken[len(near) :]


def _headers(message: DriftqMessage) -> list[tuple[str, bytes]]:
    return [
        (f"driftq.{name}", json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
        for name, value in message.metadata.items()
    ]
