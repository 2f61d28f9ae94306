"""A range of a topic's records, read from one end to the other: counted, or written to a file."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dray.inspection.plain import as_plain
from dray.inspection.records.matching import Match
from dray.inspection.records.reading import FetchedRecord, OffsetGone, TopicReader, Unreadable

Spans = Mapping[int, tuple[int, int]]
"""By partition: the first offset, and the one after the last."""

COUNT_SECONDS: Final = 3.0
COLUMNS: Final = (
    "partition",
    "offset",
    "timestamp",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
)
_PIECE: Final = 64 * 1024


@dataclass(frozen=True)
class RangeItem:
    partition: int
    following: int
    """The offset at which to go on after it."""
    record: FetchedRecord | Unreadable | None
    """None where a part of the range was looked at, and nothing in it is wanted."""


@dataclass(frozen=True)
class RangeCount:
    offsets: int
    """All of the range,"""
    looked_at: int
    """those that were looked at,"""
    matching: int
    """and the records among them that are wanted."""

    @property
    def complete(self) -> bool:
        return self.looked_at >= self.offsets


def spans_text(spans: Spans) -> str:
    return ",".join(f"{number}:{start}-{stop}" for number, (start, stop) in sorted(spans.items()))


def spans_in(text: str) -> dict[int, tuple[int, int]]:
    """Raises `ValueError`."""
    found = {}
    for part in text.split(","):
        number, _, span = part.partition(":")
        start, _, stop = span.partition("-")
        found[int(number)] = int(start), int(stop)
    if any(number < 0 or not 0 <= start <= stop < 2**63 for number, (start, stop) in found.items()):
        raise ValueError(f"{text!r} is no range")
    return found


def offsets_in(spans: Spans) -> int:
    return sum(stop - start for start, stop in spans.values())


async def items_in(reader: TopicReader, spans: Spans, match: Match | None = None) -> AsyncIterator[RangeItem]:
    """Partition by partition, in order. Records that expired meanwhile are passed over."""
    for partition, (start, stop) in sorted(spans.items()):
        at = start
        while at < stop:
            try:
                fetched = await reader.fetch_gently(partition, at, match)
            except OffsetGone as error:
                if error.start <= at:
                    break
                at = min(error.start, stop)
                yield RangeItem(partition, at, None)
                continue
            for item in fetched.items:
                offset = item.batch.base_offset if isinstance(item, Unreadable) else item.record.offset
                if offset >= stop:
                    break
                yield RangeItem(partition, offset + 1, item)
            if fetched.following <= at:
                break  # the end moved back
            at = min(fetched.following, stop)
            yield RangeItem(partition, at, None)


async def count(
    reader: TopicReader, spans: Spans, match: Match | None, seconds: float = COUNT_SECONDS
) -> RangeCount:
    """Without a search nothing is read: gaps count as offsets, too."""
    total = offsets_in(spans)
    if match is None:
        return RangeCount(total, total, total)
    deadline = reader.brokers.runtime.monotonic() + seconds
    at = {number: start for number, (start, _) in spans.items()}
    matching = 0
    async for item in items_in(reader, spans, match):
        at[item.partition] = item.following
        matching += item.record is not None
        if item.record is None and reader.brokers.runtime.monotonic() > deadline:
            return RangeCount(total, sum(at[number] - spans[number][0] for number in spans), matching)
    return RangeCount(total, total, matching)


async def json_lines(reader: TopicReader, spans: Spans, match: Match | None) -> AsyncIterator[str]:
    """A record a line. Bytes that are no text are in base64, under a name that says so."""
    pieces: list[str] = []
    size = 0
    async for item in items_in(reader, spans, match):
        if item.record is not None:
            pieces.append(
                json.dumps(as_plain(_object(item.partition, item.record)), ensure_ascii=False) + "\n"
            )
            size += len(pieces[-1])
        if size > _PIECE:
            yield "".join(pieces)
            pieces, size = [], 0
    yield "".join(pieces)


async def csv_lines(reader: TopicReader, spans: Spans, match: Match | None) -> AsyncIterator[str]:
    """Beside each key and value stands how it is written: text, base64 or null."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    async for item in items_in(reader, spans, match):
        if item.record is not None:
            writer.writerow(_row(item.partition, item.record))
        if text.tell() > _PIECE:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _object(partition: int, item: FetchedRecord | Unreadable) -> dict[str, Any]:
    if isinstance(item, Unreadable):
        batch = item.batch
        return {
            "partition": partition,
            "offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "trouble": f"the batch cannot be decoded: {item.reason}",
        }
    record = item.record
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [{"key": name, **_named("value", value)} for name, value in record.headers],
    }


def _row(partition: int, item: FetchedRecord | Unreadable) -> list[Any]:
    if isinstance(item, Unreadable):
        return [partition, item.batch.base_offset, "", "", "", "", f"cannot be decoded: {item.reason}", ""]
    record = item.record
    headers = [{"key": name, **_named("value", value)} for name, value in record.headers]
    return [
        partition,
        record.offset,
        record.timestamp,
        *_cells(record.key),
        *_cells(record.value),
        json.dumps(headers, ensure_ascii=False),
    ]


def _named(name: str, data: bytes | None) -> dict[str, str | None]:
    text, encoding = _encoded(data)
    if encoding == "null":
        return {name: None}
    return {f"{name}_base64" if encoding == "base64" else name: text}


def inert(text: str) -> str:
    """For a cell of CSV: programs of spreadsheets run what begins so as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _cells(data: bytes | None) -> tuple[str, str]:
    """Base64 has no letters for a formula, and is decoded again: it stays as it is."""
    text, encoding = _encoded(data)
    return (inert(text) if encoding == "text" else text), encoding


def _encoded(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", "null"
    try:
        return bytes(data).decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
