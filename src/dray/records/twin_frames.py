"""What the frames of the codecs say they unfold to: `unfold.c` in plain Python, as `twin` is for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .compression import Codec

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
