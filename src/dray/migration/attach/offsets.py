"""Offsets that groups committed at the source: from a broker's own topic, from a file, or from DriftQ's log.

A file is what `etcdctl get --prefix /kafscale/consumers/` printed, as text or as JSON, or lines of
`group,topic,partition,offset`.
"""

from __future__ import annotations

import binascii
import csv
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.kafka.records import Buffer, RecordError, decode
from dray.migration.attach.found import MigrationRefused, naming
from dray.migration.entries.pieces import as_data
from dray.migration.formats import SegmentBatch, walk_batches
from dray.migration.formats.batches import COMMIT, marker_of
from dray.migration.formats.kafka_files import OffsetPlace, StoredOffset, read_offset_record

_KAFSCALE: Final = re.compile(
    r"/kafscale/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/(?P<partition>[0-9]+)"
)
_LARGEST: Final = 2**63
_MOST_UNFOLDED: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`offset` is where the group goes on. `wanted` is what it had committed: more, where the source's last
    records are gone."""

    group: str
    partition: int
    offset: int
    wanted: int
    metadata: str
    commit_ms: int


class StoredOffsetsLog:
    """A partition of `__consumer_offsets`, folded as its coordinator does. An offset that is committed in a
    transaction counts once the marker says so, with the place of the commit, not of the marker: a plain
    commit in between is newer. Offsets without a marker yet are left out."""

    def __init__(self) -> None:
        self._found: dict[OffsetPlace, _Committed] = {}
        self._pending: dict[int, dict[OffsetPlace, _Committed]] = {}  # by producer

    @property
    def found(self) -> dict[OffsetPlace, StoredOffset]:
        return {place: each.stored for place, each in self._found.items()}

    @property
    def undecided(self) -> set[OffsetPlace]:
        """Committed in transactions that never ended."""
        return {place for each in self._pending.values() for place in each}

    def take(self, segment: Buffer, path: str) -> None:
        """The next segment: later records win."""
        view = memoryview(segment)
        with naming(path):
            for batch in walk_batches(view):
                if batch.is_control:
                    self._end(batch, marker_of(view, batch))
                else:
                    self._take(batch, view[batch.position : batch.end], path)

    def _end(self, batch: SegmentBatch, marker: int | None) -> None:
        if marker is None:
            return
        for place, each in self._pending.pop(batch.header.producer_id, {}).items():
            known = self._found.get(place)
            if marker == COMMIT and (known is None or known.at < each.at):
                self._found[place] = each

    def _take(self, batch: SegmentBatch, data: memoryview, path: str) -> None:
        try:
            plain = as_data(data) if batch.is_transactional else data
            columns = decode(plain, max_decompressed_bytes=_MOST_UNFOLDED, sparse=True)
        except RecordError as error:
            raise MigrationRefused(f"{path}, byte {batch.position}: {error}") from None
        for record in columns.records():
            read = None if record.key is None else read_offset_record(record.key, record.value)
            if read is not None:
                self._fold(batch, record.offset, *read)

    def _fold(self, batch: SegmentBatch, at: int, place: OffsetPlace, stored: StoredOffset | None) -> None:
        if stored is None:
            for each in (self._found, *self._pending.values()):
                each.pop(place, None)
        elif batch.is_transactional:
            self._pending.setdefault(batch.header.producer_id, {})[place] = _Committed(at, stored)
        else:
            self._found[place] = _Committed(at, stored)


class _Committed(NamedTuple):
    at: int
    """The offset of the record that says so."""
    stored: StoredOffset


def read_offsets_file(path: str, text: str) -> dict[OffsetPlace, StoredOffset]:
    if text.lstrip().startswith("{"):
        return dict(_of_json(path, text))
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("/kafscale/"):
        return dict(_of_pairs(path, lines))
    return dict(_of_table(path, lines))


def _of_json(path: str, text: str) -> Iterable[tuple[OffsetPlace, StoredOffset]]:
    try:
        pairs = [
            (b64decode(row["key"]).decode(), b64decode(row["value"]).decode())
            for row in json.loads(text)["kvs"]
        ]
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise MigrationRefused(f"{path}: it is no answer of etcdctl get -w json") from None
    for key, value in pairs:
        if (found := _kafscale(path, key, value)) is not None:
            yield found


def _of_pairs(path: str, lines: list[str]) -> Iterable[tuple[OffsetPlace, StoredOffset]]:
    for key, value in zip(lines[::2], lines[1::2], strict=False):
        if (found := _kafscale(path, key, value)) is not None:
            yield found


def _kafscale(path: str, key: str, value: str) -> tuple[OffsetPlace, StoredOffset] | None:
    name = _KAFSCALE.fullmatch(key.strip())
    if name is None:
        return None
    try:
        stored = json.loads(value)
    except ValueError:
        raise MigrationRefused(f"{path}: the value of {key} is no JSON") from None
    offset = stored.get("offset") if isinstance(stored, dict) else stored
    metadata = stored.get("metadata", "") if isinstance(stored, dict) else ""
    place = OffsetPlace(name["group"], name["topic"], int(name["partition"]))
    return place, _checked(path, place, offset, str(metadata))


def _of_table(path: str, lines: list[str]) -> Iterable[tuple[OffsetPlace, StoredOffset]]:
    for number, row in enumerate(csv.reader(lines), 1):
        match row:
            case [group, topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
                place = OffsetPlace(group, topic, int(partition))
                yield place, _checked(path, place, int(offset), "")
            case _ if number == 1 and row and not row[-1].strip().isdecimal():
                continue  # a heading
            case _:
                raise MigrationRefused(f"{path}, line {number}: it must be group,topic,partition,offset")


def _checked(path: str, place: OffsetPlace, offset: object, metadata: str) -> StoredOffset:
    if type(offset) is not int or not 0 <= offset < _LARGEST:
        raise MigrationRefused(f"{path}: group {place.group} has the offset {str(offset)[:40]}")
    return StoredOffset(offset, -1, metadata, -1)


def offsets_of(
    topic: str, stored: Mapping[OffsetPlace, StoredOffset], ends: Mapping[int, tuple[int, int]], now_ms: int
) -> list[GroupOffset]:
    """The stored offsets of this topic, as they can be committed: within the log that is there. A group that
    had read what is gone goes on at the end; one that has yet to read what expired begins at the start."""
    found: list[GroupOffset] = []
    for place, each in sorted(stored.items()):
        if place.topic != topic or place.partition not in ends:
            continue
        start, end = ends[place.partition]
        offset = min(max(each.offset, start), end)
        time = each.commit_ms if each.commit_ms >= 0 else now_ms
        found.append(GroupOffset(place.group, place.partition, offset, each.offset, each.metadata, time))
    return found
