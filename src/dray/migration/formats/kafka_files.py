"""The files beside a Kafka segment: indexes, the producers' snapshot, the leaders' epochs. Big-endian.

Committed offsets are records of the topic `__consumer_offsets`. The key and the value each begin with a
version. Keys of other kinds, groups and their members, are passed over: members of a cluster that is gone are
gone.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from dray.kafka.protocol.messages.stored_offsets import OffsetCommitKey, OffsetCommitValue
from dray.kafka.protocol.wire import DecodeError
from dray.kafka.records import Buffer, crc32c
from dray.migration.formats.batches import ForeignDamage, ForeignUnsupported

_OFFSET_ROW: Final = Struct(">ii")
_TIME_ROW: Final = Struct(">qi")
_ABORTED_ROW: Final = Struct(">hqqqq")
_SNAPSHOT_VERSION: Final = Struct(">h")
_SNAPSHOT_HEAD: Final = Struct(">hIi")
_PRODUCER_ROW: Final = Struct(">qhiqiqiq")
_CHECKED_FROM: Final = 6
_LARGEST_EPOCHS: Final = 1_000_000


class OffsetRow(NamedTuple):
    """`offset` is the last one of the batch that begins at `position`."""

    offset: int
    position: int


class TimeRow(NamedTuple):
    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerRow(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int
    """-1 where no transaction is open."""


class EpochStart(NamedTuple):
    epoch: int
    offset: int


def read_offset_index(data: Buffer, base_offset: int) -> list[OffsetRow]:
    """A broker's own index of the segment that it still writes is not to be read: it is made of zeros to the
    size that it may grow to."""
    rows: list[OffsetRow] = []
    for at, (relative, position) in _rows(_OFFSET_ROW, data):
        last = rows[-1] if rows else None
        if relative < 0 or position < 0:
            raise ForeignDamage(f"row {relative}, {position} of an offset index", at)
        if last is not None and (base_offset + relative <= last.offset or position <= last.position):
            raise ForeignDamage("the rows of an offset index must grow", at)
        rows.append(OffsetRow(base_offset + relative, position))
    return rows


def read_time_index(data: Buffer, base_offset: int) -> list[TimeRow]:
    rows: list[TimeRow] = []
    for at, (timestamp, relative) in _rows(_TIME_ROW, data):
        last = rows[-1] if rows else None
        if relative < 0:
            raise ForeignDamage(f"row {timestamp}, {relative} of a time index", at)
        if last is not None and (timestamp < last.timestamp or base_offset + relative < last.offset):
            raise ForeignDamage("the rows of a time index must grow", at)
        rows.append(TimeRow(timestamp, base_offset + relative))
    return rows


def read_transaction_index(data: Buffer) -> list[AbortedTransaction]:
    rows: list[AbortedTransaction] = []
    for at, (version, producer_id, first, last, stable) in _rows(_ABORTED_ROW, data):
        if version != 0:
            raise ForeignUnsupported(f"version {version} of a transaction index", at)
        if producer_id < 0 or not 0 <= first <= last or stable < 0:
            raise ForeignDamage(f"an aborted transaction from offset {first} to {last}", at)
        rows.append(AbortedTransaction(producer_id, first, last, stable))
    return rows


def read_producer_snapshot(data: Buffer) -> list[ProducerRow]:
    """The producers as they were at the *end* of the segment beside it."""
    view = memoryview(data)
    if len(view) >= _SNAPSHOT_VERSION.size and (version := _SNAPSHOT_VERSION.unpack_from(view)[0]) != 1:
        raise ForeignUnsupported(f"version {version} of a producer snapshot")
    if len(view) < _SNAPSHOT_HEAD.size:
        raise ForeignDamage(f"a producer snapshot of {len(view)} bytes")
    _, checksum, count = _SNAPSHOT_HEAD.unpack_from(view)
    if count < 0 or len(view) != _SNAPSHOT_HEAD.size + count * _PRODUCER_ROW.size:
        raise ForeignDamage(f"a producer snapshot of {len(view)} bytes for {count} producers", _CHECKED_FROM)
    if crc32c(view[_CHECKED_FROM:]) != checksum:
        raise ForeignDamage("the checksum of the producer snapshot is wrong", _SNAPSHOT_VERSION.size)
    return [ProducerRow(*row) for row in _PRODUCER_ROW.iter_unpack(view[_SNAPSHOT_HEAD.size :])]


def read_epochs(data: Buffer) -> list[EpochStart]:
    """`leader-epoch-checkpoint`: a version, a count, and a line for each epoch with its first offset."""
    try:
        lines = bytes(data).decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise ForeignDamage("an epoch checkpoint is text", error.start) from None
    numbers = [[_whole(part) for part in line.split(" ")] for line in lines[: _LARGEST_EPOCHS + 2]]
    if not numbers or len(numbers[0]) != 1:
        raise ForeignDamage("an epoch checkpoint begins with its version")
    if numbers[0] != [0]:
        raise ForeignUnsupported(f"version {numbers[0][0]} of an epoch checkpoint")
    if len(numbers) < 2 or len(numbers[1]) != 1 or numbers[1][0] != len(lines) - 2:
        raise ForeignDamage(f"an epoch checkpoint of {len(lines) - 2} epochs, which states another count")
    starts: list[EpochStart] = []
    for row in numbers[2:]:
        if len(row) != 2:
            raise ForeignDamage("an epoch and its first offset make a line of an epoch checkpoint")
        start = EpochStart(*row)
        if starts and (start.epoch <= starts[-1].epoch or start.offset < starts[-1].offset):
            raise ForeignDamage(f"epoch {start.epoch} from offset {start.offset} is not above the one before")
        starts.append(start)
    return starts


def read_offset_checkpoint(data: Buffer) -> dict[tuple[str, int], int]:
    """A broker's checkpoint of one offset for each partition: of high watermarks, of starts, of cleaning."""
    try:
        lines = bytes(data).decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise ForeignDamage("an offset checkpoint is text", error.start) from None
    if not lines or lines[0] != "0":
        raise ForeignUnsupported(f"version {lines[0][:20] if lines else ''!r} of an offset checkpoint")
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(lines) - 2:
        raise ForeignDamage(f"an offset checkpoint of {len(lines) - 2} lines, which states another count")
    found: dict[tuple[str, int], int] = {}
    for line in lines[2:]:
        match line.split(" "):
            case [topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
                found[topic, int(partition)] = int(offset)
            case _:
                raise ForeignDamage("a topic, a partition and an offset make a line of an offset checkpoint")
    return found


def read_partition_metadata(data: Buffer) -> str:
    """The topic's id in `partition.metadata`, as Kafka writes ids."""
    fields = dict(line.partition(": ")[::2] for line in bytes(data).decode("ascii", "replace").splitlines())
    if fields.get("version") != "0":
        raise ForeignUnsupported(f"version {fields.get('version', '')[:20]!r} of partition.metadata")
    return fields.get("topic_id", "")


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise ForeignDamage(f"{text[:20]!r} in an epoch checkpoint is no number")
    return int(text)


def _rows(row: Struct, data: Buffer) -> list[tuple[int, tuple[int, ...]]]:
    view = memoryview(data)
    if len(view) % row.size:
        raise ForeignDamage(f"an index of rows of {row.size} bytes, with {len(view)} of them", len(view))
    return [(at * row.size, values) for at, values in enumerate(row.iter_unpack(view))]


# --- committed offsets

OFFSETS_TOPIC: Final = "__consumer_offsets"
_VERSION: Final = Struct(">h")


class OffsetPlace(NamedTuple):
    group: str
    topic: str
    partition: int


class StoredOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


def read_offset_record(key: Buffer, value: Buffer | None) -> tuple[OffsetPlace, StoredOffset | None] | None:
    """None for a record of another kind. A record without a value deletes the offset."""
    view = memoryview(key)
    if len(view) < _VERSION.size:
        raise ForeignDamage(f"a key of {len(view)} bytes in {OFFSETS_TOPIC}")
    (version,) = _VERSION.unpack_from(view)
    first, last = OffsetCommitKey.VERSIONS
    if not first <= version <= last:
        return None
    try:
        found, end = OffsetCommitKey.decode(view, _VERSION.size, version)
    except DecodeError as error:
        raise ForeignDamage(f"a key of {OFFSETS_TOPIC}: {error}") from None
    if end != len(view):
        raise ForeignDamage(f"{len(view) - end} bytes behind a key of {OFFSETS_TOPIC}", end)
    place = OffsetPlace(found.group, found.topic, found.partition)
    return place, None if value is None else _value(memoryview(value))


def _value(view: memoryview) -> StoredOffset:
    if len(view) < _VERSION.size:
        raise ForeignDamage(f"a value of {len(view)} bytes in {OFFSETS_TOPIC}")
    (version,) = _VERSION.unpack_from(view)
    first, last = OffsetCommitValue.VERSIONS
    if not first <= version <= last:
        raise ForeignUnsupported(f"version {version} of a committed offset")
    try:
        found, _ = OffsetCommitValue.decode(view, _VERSION.size, version)
    except DecodeError as error:
        raise ForeignDamage(f"a value of {OFFSETS_TOPIC}: {error}") from None
    return StoredOffset(found.offset, found.leader_epoch, found.metadata, found.commit_timestamp)
