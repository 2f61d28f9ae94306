"""Kafka's primitive types on the wire: what the generated messages are made of.

Every reader is bounded. A length or a count is compared with the bytes that remain *before* anything is
allocated for it, so a small frame can never ask for large memory. Fixed-size values are unpacked by the
messages themselves; an `unpack_from` or an index past the end raises there, and `Message.decode` turns that
into a `DecodeError`.

`limit` is the position just past the last byte that belongs to what is being read.

Elements are counted too, of all arrays and sections of tagged fields together: a frame that is small may be
made of many, and each costs more than its bytes say.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, pack, unpack_from
from threading import local
from typing import Final, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview
Records: TypeAlias = Buffer | Sequence[Buffer]
"""Record batches: one buffer, or several that follow each other on the wire."""

Cuts: TypeAlias = list[tuple[int, Records]]
"""The places in the encoded bytes for records that are sent from where they lie, without a copy."""

ZERO_UUID = UUID(int=0)
"""Kafka's way to say "no id"."""

LONGEST_STRING = 0x7FFF
LARGEST_INT32 = 0x7FFFFFFF

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class ProtocolError(ValueError):
    """Bytes or values that Kafka's protocol cannot express."""


class DecodeError(ProtocolError):
    """The bytes are not a well-formed message."""


class TooManyElements(DecodeError):
    """The message has more elements than its reader takes."""


class EncodeError(ProtocolError):
    """The message holds a value that this version cannot carry."""


# Numbers and ids


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21):
        position += 1
        byte = buffer[position]
        if byte < 0x80:
            return value | byte << shift, position + 1
        value |= (byte & 0x7F) << shift
    position += 1
    byte = buffer[position]
    if byte > 0x0F:
        raise DecodeError("a variable-length number exceeds 32 bits")
    return value | byte << 28, position + 1


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@lru_cache(maxsize=4096)
def make_uuid(raw: bytes) -> UUID:
    """Cached, since a broker meets the same topic ids all day and building a `UUID` is slow."""
    return UUID(bytes=raw)


# Strings


def _text(buffer: memoryview, start: int, length: int, limit: int) -> tuple[str, int]:
    end = start + length
    if length > LONGEST_STRING or end > limit:
        raise DecodeError(f"a string of {length} bytes does not fit")
    return str(buffer[start:end], "utf-8"), end


def read_compact_string(buffer: memoryview, position: int, limit: int) -> tuple[str, int]:
    length = buffer[position] - 1
    if 0 <= length < 0x7F:
        position += 1
        end = position + length
        if end > limit:
            raise DecodeError(f"a string of {length} bytes does not fit")
        return str(buffer[position:end], "utf-8"), end
    size, position = read_uvarint(buffer, position)
    if not size:
        raise DecodeError("a string is null that must not be")
    return _text(buffer, position, size - 1, limit)


def read_compact_nullable_string(buffer: memoryview, position: int, limit: int) -> tuple[str | None, int]:
    if not buffer[position]:
        return None, position + 1
    return read_compact_string(buffer, position, limit)


def read_string(buffer: memoryview, position: int, limit: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(buffer, position)
    if length < 0:
        raise DecodeError(f"a string has the length {length}")
    return _text(buffer, position + 2, length, limit)


def read_nullable_string(buffer: memoryview, position: int, limit: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(buffer, position)
    if length == -1:
        return None, position + 2
    return read_string(buffer, position, limit)


def _utf8(value: str | None) -> bytes:
    if value is None:
        raise EncodeError("a string is null that must not be in this version")
    raw = value.encode()
    if len(raw) > LONGEST_STRING:
        raise EncodeError(f"a string of {len(raw)} bytes is too long")
    return raw


def write_compact_string(out: bytearray, value: str | None) -> None:
    raw = _utf8(value)
    length = len(raw) + 1
    if length < 0x80:
        out.append(length)
    else:
        write_uvarint(out, length)
    out += raw


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_string(out: bytearray, value: str | None) -> None:
    raw = _utf8(value)
    out += _INT16.pack(len(raw))
    out += raw


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


# Bytes and records


def _slice(buffer: memoryview, start: int, length: int, limit: int) -> tuple[memoryview, int]:
    end = start + length
    if length < 0 or end > limit:
        raise DecodeError(f"a byte field of {length} bytes does not fit")
    return buffer[start:end], end


def read_compact_records(buffer: memoryview, position: int, limit: int) -> tuple[memoryview, int]:
    size, position = read_uvarint(buffer, position)
    return _slice(buffer, position, size - 1, limit)


def read_compact_nullable_records(
    buffer: memoryview, position: int, limit: int
) -> tuple[memoryview | None, int]:
    size, position = read_uvarint(buffer, position)
    if not size:
        return None, position
    return _slice(buffer, position, size - 1, limit)


def read_records(buffer: memoryview, position: int, limit: int) -> tuple[memoryview, int]:
    (length,) = _INT32.unpack_from(buffer, position)
    return _slice(buffer, position + 4, length, limit)


def read_nullable_records(buffer: memoryview, position: int, limit: int) -> tuple[memoryview | None, int]:
    (length,) = _INT32.unpack_from(buffer, position)
    if length == -1:
        return None, position + 4
    return _slice(buffer, position + 4, length, limit)


def read_compact_bytes(buffer: memoryview, position: int, limit: int) -> tuple[bytes, int]:
    view, position = read_compact_records(buffer, position, limit)
    return bytes(view), position


def read_compact_nullable_bytes(buffer: memoryview, position: int, limit: int) -> tuple[bytes | None, int]:
    view, position = read_compact_nullable_records(buffer, position, limit)
    return (None if view is None else bytes(view)), position


def read_bytes(buffer: memoryview, position: int, limit: int) -> tuple[bytes, int]:
    view, position = read_records(buffer, position, limit)
    return bytes(view), position


def read_nullable_bytes(buffer: memoryview, position: int, limit: int) -> tuple[bytes | None, int]:
    view, position = read_nullable_records(buffer, position, limit)
    return (None if view is None else bytes(view)), position


def write_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        raise EncodeError("a byte field is null that must not be in this version")
    write_uvarint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        raise EncodeError("a byte field is null that must not be in this version")
    out += _INT32.pack(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def _records_size(records: Records) -> int:
    if isinstance(records, (list, tuple)):
        return sum(map(len, records))
    return len(records)


def write_compact_records(out: bytearray, records: Records | None, cuts: Cuts) -> None:
    if records is None:
        raise EncodeError("records are null that must not be in this version")
    size = _records_size(records)
    write_uvarint(out, size + 1)
    if size:
        cuts.append((len(out), records))


def write_compact_nullable_records(out: bytearray, records: Records | None, cuts: Cuts) -> None:
    if records is None:
        out.append(0)
    else:
        write_compact_records(out, records, cuts)


def write_records(out: bytearray, records: Records | None, cuts: Cuts) -> None:
    if records is None:
        raise EncodeError("records are null that must not be in this version")
    size = _records_size(records)
    out += _INT32.pack(size)
    if size:
        cuts.append((len(out), records))


def write_nullable_records(out: bytearray, records: Records | None, cuts: Cuts) -> None:
    if records is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_records(out, records, cuts)


# Arrays: a count that the remaining bytes can hold, given the least size of one element


ENDLESS: Final = 1 << 62

MOST_HEADER_TAGS: Final = 100
"""Tagged fields of a header. Kafka has defined none so far."""


class Elements(local):
    """How many elements the message that this thread reads may still have. Between messages there is no
    bound: what is stored, such as a group, is read in the same thread."""

    left: int = ENDLESS
    used: int = 0


elements: Final = Elements()


def elements_used() -> int:
    """Of the message that this thread read last."""
    return elements.used


def _fits(count: int, position: int, limit: int, least: int) -> tuple[int, int]:
    if count * least > limit - position:
        raise DecodeError(f"an array of {count} elements does not fit in {limit - position} bytes")
    if count > elements.left:
        raise TooManyElements(f"an array of {count} elements is more than is left")
    elements.left -= count
    return count, position


def read_compact_count(buffer: memoryview, position: int, limit: int, least: int) -> tuple[int, int]:
    size, position = read_uvarint(buffer, position)
    if not size:
        raise DecodeError("an array is null that must not be")
    return _fits(size - 1, position, limit, least)


def read_compact_nullable_count(buffer: memoryview, position: int, limit: int, least: int) -> tuple[int, int]:
    """The count, or -1 for a null array."""
    if not buffer[position]:
        return -1, position + 1
    return read_compact_count(buffer, position, limit, least)


def read_count(buffer: memoryview, position: int, limit: int, least: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(buffer, position)
    if count < 0:
        raise DecodeError(f"an array has the length {count}")
    return _fits(count, position + 4, limit, least)


def read_nullable_count(buffer: memoryview, position: int, limit: int, least: int) -> tuple[int, int]:
    """The count, or -1 for a null array."""
    (count,) = _INT32.unpack_from(buffer, position)
    if count == -1:
        return -1, position + 4
    return read_count(buffer, position, limit, least)


def write_compact_count(out: bytearray, count: int) -> None:
    if count < 0x7F:
        out.append(count + 1)
    else:
        write_uvarint(out, count + 1)


def write_count(out: bytearray, count: int) -> None:
    out += _INT32.pack(count)


def read_numbers(
    buffer: memoryview, position: int, code: str, size: int, count: int
) -> tuple[list[int], int]:
    """`count` integers of one `struct` code and size, after the count was found to fit."""
    return list(unpack_from(f">{count}{code}", buffer, position)), position + count * size


def write_numbers(out: bytearray, code: str, values: Sequence[int]) -> None:
    out += pack(f">{len(values)}{code}", *values)


def read_uuids(buffer: memoryview, position: int, count: int) -> tuple[list[UUID], int]:
    end = position + 16 * count
    return [make_uuid(bytes(buffer[start : start + 16])) for start in range(position, end, 16)], end


def write_uuids(out: bytearray, values: Sequence[UUID]) -> None:
    for value in values:
        out += value.bytes


# Tagged fields


def read_tag_count(buffer: memoryview, position: int, limit: int) -> tuple[int, int]:
    count, position = read_uvarint(buffer, position)
    return _fits(count, position, limit, 2)


def read_tag(buffer: memoryview, position: int, limit: int, previous: int) -> tuple[int, int, int]:
    """One tagged field: its tag, which is above the previous one, and where its value starts and ends."""
    tag, position = read_uvarint(buffer, position)
    if tag <= previous:
        raise DecodeError(f"tagged field {tag} stands behind {previous}")
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > limit:
        raise DecodeError(f"a tagged field of {size} bytes does not fit")
    return tag, position, end


def skip_tags(buffer: memoryview, position: int, limit: int) -> int:
    count, position = read_tag_count(buffer, position, limit)
    tag = -1
    for _ in range(count):
        tag, _, position = read_tag(buffer, position, limit, tag)
    return position


def skip_header_tags(buffer: memoryview, position: int, limit: int) -> int:
    if not buffer[position]:
        return position + 1
    elements.left = MOST_HEADER_TAGS
    try:
        return skip_tags(buffer, position, limit)
    finally:
        elements.left = ENDLESS


def write_tags(out: bytearray, fields: Sequence[tuple[int, bytearray]]) -> None:
    """`fields` in ascending order of their tags, as Kafka wants them."""
    write_uvarint(out, len(fields))
    for tag, value in fields:
        write_uvarint(out, tag)
        write_uvarint(out, len(value))
        out += value
