"""The compiled core said again in plain Python: a hundred times slower, and easy to read.

It is the description of what the core must do, and the tests hold the two together on good batches and
on damaged ones. It shares the decompression and the error type with the core, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NoReturn

from dray.kafka.records._core import Batch
from dray.kafka.records.columns import Record
from dray.kafka.records.compression import Codec, compress, decompress
from dray.kafka.records.faults import RecordError, RecordFault
from dray.kafka.records.header import (
    CODEC_BITS,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER,
    OPENING,
    PREFIX,
    REST,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    read_header,
)

_FORBIDDEN = {
    CONTROL: "it is a control batch",
    TRANSACTIONAL: "it is transactional",
    DELETE_HORIZON: "it carries a delete horizon",
}

_INT64 = range(-(2**63), 2**63)


def _make_crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


_CRC_TABLE = _make_crc_table()


def crc32c(buffer: Buffer, initial: int = 0) -> int:
    register = initial ^ 0xFFFFFFFF
    for byte in memoryview(buffer):
        register = register >> 8 ^ _CRC_TABLE[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def validate(buffer: Buffer, *, max_batch_bytes: int, max_decompressed_bytes: int) -> list[Batch]:
    view = memoryview(buffer)
    batches = []
    position = 0
    while position < len(view):
        where = f"batch at byte {position}"
        header = _read_header(view[position:], max_batch_bytes, where)
        section = _read_section(view[position:], header, max_decompressed_bytes, where)
        records = _read_records(section, header, where)
        timestamps = [record.timestamp for record in records]
        batches.append(
            Batch(
                position=position,
                length=header.size,
                record_count=header.record_count,
                attributes=header.attributes,
                min_timestamp=min(timestamps),
                max_timestamp=max(timestamps),
                max_timestamp_delta=timestamps.index(max(timestamps)),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                unfolded=len(section),
            )
        )
        position += header.size
    return batches


def decode(
    buffer: Buffer, *, max_decompressed_bytes: int = 2**31 - 1, sparse: bool = False
) -> list[tuple[BatchHeader, list[Record]]]:
    """The records of every batch, each batch with its header."""
    view = memoryview(buffer)
    batches = []
    while view:
        header = _read_header(view, 2**31 - 1, "batch", sparse)
        section = _read_section(view, header, max_decompressed_bytes, "batch")
        batches.append((header, _read_records(section, header, "batch")))
        view = view[header.size :]
    return batches


def find_timestamp(batch: Buffer, timestamp: int) -> tuple[int, int] | None:
    [(header, records)] = decode(batch)
    for record in records:
        if record.timestamp >= timestamp:
            return record.offset - header.base_offset, record.timestamp
    return None


def unfolds_to(buffer: Buffer) -> int:
    view = memoryview(buffer)
    total = 0
    while len(view) >= HEADER_SIZE:
        header = read_header(view)
        size = header.size
        if not HEADER_SIZE <= size <= len(view):
            break
        codec = header.attributes & CODEC_BITS
        if codec:
            total += max(1, named_by(codec, bytes(view[HEADER_SIZE:size])))
        view = view[size:]
    return min(total, MUCH)


def records_said(buffer: Buffer) -> int:
    view = memoryview(buffer)
    if len(view) < HEADER_SIZE or (header := read_header(view)).size != len(view):
        return -1
    return max(header.record_count, -1)


def restore(buffer: bytearray | memoryview, places: list[tuple[int, int, int]], leader_epoch: int) -> int:
    """`places`: position, length and base offset of each batch."""
    view = memoryview(buffer)
    for place, (position, length, base_offset) in enumerate(places):
        batch = view[position : position + length]
        _, size, _, magic, crc = OPENING.unpack_from(batch)
        if size != length - PREFIX.size or magic != MAGIC or crc32c(batch[OPENING.size :]) != crc:
            return place
        OPENING.pack_into(batch, 0, base_offset, size, leader_epoch, magic, crc)
    return -1


def encode(
    records: Iterable[Record],
    *,
    codec: int = 0,
    attributes: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """One batch of records that follow each other."""
    records = list(records)
    first = records[0]
    section = b"".join(
        _encode_record(record, record.timestamp - first.timestamp, record.offset - first.offset)
        for record in records
    )
    rest = REST.pack(
        attributes | codec,
        records[-1].offset - first.offset,
        first.timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + bytes(compress(codec, section))
    length = OPENING.size + len(rest) - PREFIX.size
    return bytearray(OPENING.pack(first.offset, length, leader_epoch, MAGIC, crc32c(rest)) + rest)


def encode_varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else ~(number << 1)
    output = bytearray()
    while raw >= 0x80:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
    return bytes(output)


def _encode_bytes(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    body = b"".join(
        (
            b"\x00",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _encode_bytes(record.key),
            _encode_bytes(record.value),
            encode_varint(len(record.headers)),
            *(_encode_bytes(key.encode()) + _encode_bytes(value) for key, value in record.headers),
        )
    )
    return encode_varint(len(body)) + body


def _refuse(fault: RecordFault, message: str) -> NoReturn:
    raise RecordError(fault, message)


def _read_header(view: memoryview, max_batch_bytes: int, where: str, sparse: bool = False) -> BatchHeader:
    if len(view) <= MAGIC_AT:
        _refuse(RecordFault.INVALID_RECORD, f"{where}: it is cut off in its header")
    if view[MAGIC_AT] in (0, 1):
        _refuse(RecordFault.UNSUPPORTED_FORMAT, f"{where}: its format is that of magic 0 or 1")
    if view[MAGIC_AT] != MAGIC:
        _refuse(RecordFault.CORRUPT, f"{where}: its magic is unknown")
    size = PREFIX.size + PREFIX.unpack_from(view)[1]
    if size < HEADER_SIZE:
        _refuse(RecordFault.CORRUPT, f"{where}: its length is less than that of a header")
    if size > len(view):
        _refuse(RecordFault.INVALID_RECORD, f"{where}: its length reaches past the end")
    if size > max_batch_bytes:
        _refuse(RecordFault.TOO_LARGE, f"{where}: it is larger than allowed")
    header = read_header(view)
    if header.checksum != crc32c(view[OPENING.size : size]):
        _refuse(RecordFault.CORRUPT, f"{where}: its checksum is wrong")
    if header.attributes & CODEC_BITS > 4:
        _refuse(RecordFault.UNSUPPORTED_COMPRESSION, f"{where}: its codec is unknown")
    if sparse:  # of a log that was written elsewhere: it says nothing of the records themselves
        header = header._replace(attributes=header.attributes & ~(TRANSACTIONAL | DELETE_HORIZON))
    for bit, what in _FORBIDDEN.items():
        if header.attributes & bit:
            _refuse(RecordFault.INVALID_RECORD, f"{where}: {what}")
    count = header.record_count
    holes = header.last_offset_delta - (count - 1)
    if count < (not sparse) or header.last_offset_delta < 0 or holes < 0 or (holes and not sparse):
        _refuse(RecordFault.INVALID_RECORD, f"{where}: its counts of records are wrong")
    producer = header.producer_id
    if producer < NO_PRODUCER or (producer >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0)):
        _refuse(RecordFault.INVALID_RECORD, f"{where}: its producer fields do not go together")
    return header


class _RecordReader:
    """Takes a section apart from its start. Whatever does not fit is an invalid record."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.where = where

    def refuse(self, what: str) -> NoReturn:
        _refuse(RecordFault.INVALID_RECORD, f"{self.where}: {what}")

    def take(self, length: int) -> memoryview:
        if not 0 <= length <= len(self.data):
            self.refuse("a length does not fit")
        taken, self.data = self.data[:length], self.data[length:]
        return taken

    def varint(self, bits: int) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if raw >> bits or (byte >= 0x80 and shift >= bits):
                self.refuse("a number is too large")
            if byte < 0x80:
                return raw >> 1 ^ -(raw & 1)

    def bytes_or_null(self) -> bytes | None:
        length = self.varint(32)
        return None if length == -1 else bytes(self.take(length))

    def header(self) -> tuple[str, bytes | None]:
        key = self.bytes_or_null()
        if key is None:
            self.refuse("a header has no key")
        try:
            return key.decode(), self.bytes_or_null()
        except UnicodeDecodeError:
            self.refuse("a header key is not UTF-8")

    def finish(self) -> None:
        if self.data:
            self.refuse("bytes are left over")


def _read_section(view: memoryview, header: BatchHeader, limit: int, where: str) -> memoryview:
    codec = header.attributes & CODEC_BITS
    section: Buffer = view[HEADER_SIZE : header.size]
    if codec:
        try:
            section = decompress(codec, section, limit)
        except RecordError as error:
            raise RecordError(error.fault, f"{where}: {error}") from error
    return memoryview(section)


def _read_records(section: memoryview, header: BatchHeader, where: str) -> list[Record]:
    reader = _RecordReader(section, where)
    records: list[Record] = []
    following, holes = 0, header.last_offset_delta - (header.record_count - 1)
    for index in range(header.record_count):
        body = _RecordReader(reader.take(reader.varint(32)), f"{where}, record {index}")
        body.take(1)  # attributes, of which Kafka defines none
        timestamp = header.base_timestamp + body.varint(64)
        if timestamp not in _INT64:
            body.refuse("its timestamp does not fit 64 bits")
        delta = body.varint(32)
        if delta < following or delta - index > holes:
            body.refuse("its offset delta is out of order")
        following = delta + 1
        if header.attributes & LOG_APPEND_TIME:
            timestamp = header.max_timestamp
        key, value = body.bytes_or_null(), body.bytes_or_null()
        count = body.varint(32)
        if count < 0:
            body.refuse("its header count is negative")
        headers = [body.header() for _ in range(count)]
        body.finish()
        records.append(Record(header.base_offset + delta, timestamp, key, value, headers))
    reader.finish()
    return records


# --- the unfolded sizes that the codecs' frames state
#
# `unfold.c` in plain Python.


MUCH = (2**63 - 1) // 4
"""As far as the core counts."""

_XERIAL = b"\x82SNAPPY\x00"
_ZSTD_BLOCK = 128 * 1024


def named_by(codec: int, section: bytes) -> int:
    match codec:
        case Codec.GZIP:
            return _little(section[-4:]) if len(section) >= 18 else 0
        case Codec.SNAPPY if section.startswith(_XERIAL):
            return sum(map(_raw_snappy, _xerial_blocks(section)))
        case Codec.SNAPPY:
            return _raw_snappy(section)
        case Codec.LZ4 if len(section) >= 7:
            return _lz4(section)
        case Codec.ZSTD:
            return sum(_zstd_frames(section))
    return 0


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _raw_snappy(block: bytes) -> int:
    value = 0
    for place, byte in enumerate(islice(block, 5)):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return min(value, 32 * len(block))
    return 0


def _xerial_blocks(section: bytes) -> Iterator[bytes]:
    rest = section[16:]
    while len(rest) >= 4:
        length = int.from_bytes(rest[:4], "big", signed=True)
        if not 0 < length <= len(rest) - 4:
            return
        yield rest[4 : 4 + length]
        rest = rest[4 + length :]


def _lz4(section: bytes) -> int:
    flags, most = section[4], 1 << 8 + 2 * (section[5] >> 4 & 7)
    has_size = bool(flags & 0x08)
    rest = section[15 if has_size else 7 :]
    total = 0
    while len(rest) >= 4:
        block = _little(rest[:4])
        length = block & 0x7FFF_FFFF
        if block == 0 or length > len(rest) - 4:
            break
        total += length if block >> 31 else min(most, 255 * length)
        rest = rest[4 + length + (4 if flags & 0x10 else 0) :]
    if has_size and len(section) >= 15:
        total = min(total, _little(section[6:14]))
    return total


def _zstd_frames(section: bytes) -> Iterator[int]:
    rest = section
    while len(rest) >= 6:
        magic = _little(rest[:4])
        if magic & 0xFFFF_FFF0 == 0x184D_2A50:
            if len(rest) < 8:
                return
            rest = rest[8 + _little(rest[4:8]) :]
            continue
        if magic != 0xFD2F_B528:
            return
        descriptor = rest[4]
        single = bool(descriptor & 0x20)
        named = MUCH
        most = _ZSTD_BLOCK
        at = 5
        if not single:
            log = 10 + (rest[5] >> 3)
            most = min(most, (1 << log) + (1 << log) // 8 * (rest[5] & 7))
            at += 1
        at += (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
        if at + size_bytes > len(rest):
            return
        if size_bytes:
            named = min(MUCH, _little(rest[at : at + size_bytes]) + (256 if size_bytes == 2 else 0))
        if single:
            most = min(most, named)
        rest = rest[at + size_bytes :]
        total, last = 0, False
        while not last and len(rest) >= 3:
            block = _little(rest[:3])
            last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            if kind == 3:
                return
            total += most if kind == 2 else length
            rest = rest[3 + (1 if kind == 1 else length) :]
        yield min(total, named)
        rest = rest[4 if descriptor & 4 else 0 :]
