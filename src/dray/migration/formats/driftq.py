"""DriftQ's write-ahead log: a JSON object a line. Messages, and how far groups have acknowledged.

Offsets count per topic, over all its partitions: those of a partition have holes. For a group, the last
offset that it acknowledged is stored; Kafka commits the one after it.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dray.kafka.records import Buffer
from dray.migration.formats.batches import ForeignDamage, ForeignUnsupported

_MESSAGE: Final = 1
_OFFSET: Final = 2
_NOT_NEEDED: Final = frozenset({3, 4})
"""Topics, which messages name as well, and why a try of a message failed."""

_OWN_FIELDS: Final = frozenset({"type", "topic", "partition", "offset", "group", "key", "value"})
_MOST_PARTITIONS: Final = 100_000
_LARGEST_OFFSET: Final = 2**62


class DriftqMessage(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    metadata: Mapping[str, Any]
    """The other fields of the line: the envelope and the routing."""


@dataclass(slots=True)
class DriftqLog:
    """`messages` by topic and partition; `committed` by topic, group and partition, as Kafka counts;
    `end` is how much of the file was whole."""

    messages: dict[str, dict[int, list[DriftqMessage]]] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    end: int = 0


def read_wal(data: Buffer) -> DriftqLog:
    """A last line that is not whole is left out: its writer was killed while it wrote. Anywhere else such a
    line is damage."""
    text = bytes(data)
    log = DriftqLog()
    last: dict[str, int] = {}
    position = 0
    while position < len(text):
        newline = text.find(b"\n", position)
        end = len(text) if newline < 0 else newline + 1
        line = text[position:end].strip()
        if line:
            entry = _parse(line)
            if entry is None or newline < 0:
                if newline < 0 or not text[end:].strip():
                    return log
                raise ForeignDamage("a line is no JSON object", position)
            _take(log, entry, last, position)
        position = log.end = end
    return log


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _take(log: DriftqLog, entry: dict[str, Any], last: dict[str, int], position: int) -> None:
    kind = entry.get("type")
    if type(kind) is int and kind in _NOT_NEEDED:
        return
    if type(kind) is not int or kind not in (_MESSAGE, _OFFSET):
        raise ForeignUnsupported(f"a line of type {kind!r}", position)
    topic = entry.get("topic")
    partition = _number(entry, "partition", _MOST_PARTITIONS, position)
    offset = _number(entry, "offset", _LARGEST_OFFSET, position)
    if not isinstance(topic, str) or not topic:
        raise ForeignDamage("a line without a topic", position)
    if kind == _OFFSET:
        group = entry.get("group")
        if not isinstance(group, str) or not group:
            raise ForeignDamage("an acknowledgement without a group", position)
        place = topic, group, partition
        log.committed[place] = max(log.committed.get(place, 0), offset + 1)
        return
    if offset <= last.get(topic, -1):
        raise ForeignDamage(f"offset {offset} of {topic!r} comes after {last[topic]}", position)
    last[topic] = offset
    beside = {name: value for name, value in entry.items() if name not in _OWN_FIELDS}
    message = DriftqMessage(offset, _bytes(entry, "key", position), _bytes(entry, "value", position), beside)
    log.messages.setdefault(topic, {}).setdefault(partition, []).append(message)


def _number(entry: dict[str, Any], name: str, most: int, position: int) -> int:
    number = entry.get(name)
    if type(number) is not int or not 0 <= number < most:
        raise ForeignDamage(f"{name} {number!r}"[:80], position)
    return number


def _bytes(entry: dict[str, Any], name: str, position: int) -> bytes | None:
    text = entry.get(name)
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ForeignDamage(f"the {name} of a message is not in base64", position) from None
