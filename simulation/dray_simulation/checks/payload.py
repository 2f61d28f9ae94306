"""The records of simulated producers. They say who they are, down to key, headers and timestamp.

Everything about a record follows from its identity, so a reader can tell whether a single byte of it
has changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from dray.kafka.records import Record, twin
from dray_simulation.checks.log_truth import IDENTITY, Identity, identity_of_record, time_of


def value_of(producer: str, number: int, place: int) -> bytes:
    return b"%s:%d:%d" % (producer.encode(), number, place)


def values_of(producer: str, number: int, count: int) -> list[bytes]:
    return [value_of(producer, number, place) for place in range(count)]


KEYED = "plain-keyed"
"""The beginning of the names of producers that write to the topic that is compacted by key."""

_QUIET_AFTER = 12  # batches, in which a few keys are written often; then they are left as they are


def record_of(identity: Identity, offset: int) -> Record:
    """The record as it was sent, at the offset that it was given."""
    producer, number, place = identity
    if producer.startswith(KEYED):
        return _keyed(identity, offset)
    key = None if number % 3 == 0 else b"key %d" % (number % 7)
    headers: Sequence[tuple[str, bytes | None]] = ()
    if place % 2:
        headers = (("sender", producer.encode()), ("nothing", None))
    return Record(offset, time_of(identity), key, value_of(producer, number, place), headers)


def _keyed(identity: Identity, offset: int) -> Record:
    """One of a few keys, which is empty now and then, and every third a tombstone. A header says who it is,
    since a tombstone has no value."""
    name = value_of(*identity)
    chance = crc32(name)
    value = None if chance % 3 == 0 else name
    key = b"" if chance % 11 == 0 else b"%d %d" % (identity[1] // _QUIET_AFTER, chance // 11 % 4)
    return Record(offset, time_of(identity), key, value, ((IDENTITY, name),))


def batch_of(
    producer: str, number: int, count: int, producer_id: int = -1, epoch: int = -1, sequence: int = -1
) -> bytearray:
    records = [record_of((producer, number, place), place) for place in range(count)]
    return twin.encode(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def is_as_sent(record: Record) -> bool:
    return same(record, record_of(identity_of_record(record), record.offset))


def same(one: Record, other: Record) -> bool:
    return one[:4] == other[:4] and list(one.headers) == list(other.headers)
