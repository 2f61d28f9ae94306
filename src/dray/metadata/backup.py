"""A backup of a metadata store, of any engine: all its keys, in one file or object.

It is read while brokers run. A scan is one snapshot of a domain, and a large domain takes many of them, so
what belongs together is read together: a stream with its job, read until neither has moved in between. All
else of a domain may be some moments newer than its streams, as after a crash that came a little later. The
cluster's own domain comes first, so that the streams of every topic in it are there.

Keys of sessions are left out: they say who lived then. Big-endian:

    header     DRAYBAK, format (u8), length (u32), JSON of `BackupHeader`
    record     domain (u32), version (i64), lengths of key (u16) and value (u32), key, value
    trailer    0xffffffff (u32), number of records (u64), CRC-32 of all before it (u32)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from dray.metadata import keys
from dray.metadata.contract import MetadataStore, StoredValue, Unavailable
from dray.metadata.values import FormatTooNew, JsonCodec, ValueCorrupt

BACKUP_FORMAT: Final = 1

_MAGIC: Final = b"DRAYBAK"
_OPENING: Final = Struct(">7sBI")
_RECORD: Final = Struct(">IqHI")
_TRAILER: Final = Struct(">IQI")
_END: Final = 0xFFFFFFFF
_LARGEST_HEADER: Final = 1 << 16
_LARGEST_VALUE: Final = 64 << 20
_PAGE: Final = 1000
_TRIES: Final = 64
_WHAT: Final = "the backup"

OF_SESSIONS: Final = (keys.BROKERS, keys.CLOCKS, keys.GROUP_LEASES, keys.MIGRATION_LEASES)


@dataclass(frozen=True, slots=True)
class BackupHeader:
    cluster_id: str
    domains: int
    created_ms: int  # before the first key was read
    build: str


class BackedUp(NamedTuple):
    domain: int
    key: str
    value: bytes
    version: int


_CODEC: Final = JsonCodec(BackupHeader, BACKUP_FORMAT)


async def read_all(store: MetadataStore, domains: int) -> AsyncIterator[list[BackedUp]]:
    """All that a backup holds, some at a time. Raises the store's errors."""
    for domain in range(domains):
        await store.barrier(domain)
        async for page in _read_domain(store, domain):
            kept = [
                BackedUp(domain, each.key, each.value, each.version)
                for each in page
                if not each.key.startswith(OF_SESSIONS)
            ]
            if kept:
                yield kept


async def _read_domain(store: MetadataStore, domain: int) -> AsyncIterator[list[StoredValue]]:
    async for page in _pages(store, domain, keys.ROOT, keys.JOBS):
        yield page
    async for page in _pages(store, domain, keys.prefix_end(keys.JOBS), keys.STREAMS):
        yield page
    async for page in _streams(store, domain):
        yield page
    async for page in _pages(store, domain, keys.prefix_end(keys.STREAMS), keys.prefix_end(keys.ROOT)):
        yield page


async def _pages(store: MetadataStore, domain: int, start: str, end: str) -> AsyncIterator[list[StoredValue]]:
    while page := await store.scan(domain, start, end, _PAGE):
        yield page
        if len(page) < _PAGE:
            return
        start = page[-1].key + "\0"


async def _streams(store: MetadataStore, domain: int) -> AsyncIterator[list[StoredValue]]:
    """Every stream with its job, and then the jobs of streams that are gone."""
    start, end = keys.STREAMS, keys.prefix_end(keys.STREAMS)
    found = await store.ceiling(domain, start, keys.STREAMS)
    seen: set[int] = set()
    while found is not None:
        stream = keys.part_of_stream(found.key)[0]
        if stream < 0:
            raise ValueCorrupt(f"the key {found.key}", "it is no stream's")
        seen.add(stream)
        yield await _stream(store, domain, stream)
        start = keys.prefix_end(keys.stream(stream))
        found = await store.ceiling(domain, start, keys.STREAMS) if start < end else None
    async for page in _pages(store, domain, keys.JOBS, keys.prefix_end(keys.JOBS)):
        yield [each for each in page if keys.stream_of_job(each.key) not in seen]


async def _stream(store: MetadataStore, domain: int, stream: int) -> list[StoredValue]:
    job = await store.get(domain, keys.job(stream))
    for _ in range(_TRIES):
        prefix = keys.stream(stream)
        records = await store.scan(domain, prefix, keys.prefix_end(prefix))
        after = await store.get(domain, keys.job(stream))
        if _version(job) == _version(after):
            return records if after is None else [*records, after]
        job = after
    raise Unavailable(f"the job of stream {stream} moves faster than it can be read")


def _version(found: StoredValue | None) -> int:
    return 0 if found is None else found.version


# --- as bytes


async def encode(header: BackupHeader, pages: AsyncIterator[list[BackedUp]]) -> AsyncIterator[bytes]:
    body = _CODEC.encode(header)
    count, piece = 0, _OPENING.pack(_MAGIC, BACKUP_FORMAT, len(body)) + body
    checksum = crc32(piece)
    yield piece
    async for page in pages:
        piece = b"".join(
            _RECORD.pack(each.domain, each.version, len(each.key), len(each.value))
            + each.key.encode("ascii")
            + each.value
            for each in page
        )
        count, checksum = count + len(page), crc32(piece, checksum)
        yield piece
    yield _TRAILER.pack(_END, count, checksum)


class BackupDecoder:
    """`feed` it with the bytes as they come; it is whole once `finish` returns."""

    def __init__(self) -> None:
        self.header: BackupHeader | None = None
        self._rest = b""
        self._count = 0
        self._checksum = 0
        self._is_over = False

    def feed(self, data: bytes) -> Iterator[BackedUp]:
        """Raises `UnreadableValue`."""
        buffer, place = self._rest + data, 0
        while (size := self._next(buffer, place)) is not None:
            piece = buffer[place : place + size]
            place += size
            if (record := self._take(piece)) is not None:
                yield record
        self._rest = buffer[place:]

    def finish(self) -> BackupHeader:
        if self._rest or not self._is_over or self.header is None:
            raise ValueCorrupt(_WHAT, "it is not whole")
        return self.header

    def _next(self, buffer: bytes, place: int) -> int | None:
        """The length of the next piece, None while it is not all there."""
        left = len(buffer) - place
        if self._is_over:
            if left:
                raise ValueCorrupt(_WHAT, "something is behind its end")
            return None
        if self.header is None:
            return self._header_size(buffer, left)
        if left >= 4 and int.from_bytes(buffer[place : place + 4], "big") == _END:
            return _TRAILER.size if left >= _TRAILER.size else None
        if left < _RECORD.size:
            return None
        _, _, key, value = _RECORD.unpack_from(buffer, place)
        if value > _LARGEST_VALUE:
            raise ValueCorrupt(_WHAT, f"a value of {value} bytes")
        return _RECORD.size + key + value if left >= _RECORD.size + key + value else None

    @staticmethod
    def _header_size(buffer: bytes, left: int) -> int | None:
        if left < _OPENING.size:
            return None
        magic, version, length = _OPENING.unpack_from(buffer)
        if magic != _MAGIC or length > _LARGEST_HEADER:
            raise ValueCorrupt(_WHAT, "it is none")
        if version > BACKUP_FORMAT:
            raise FormatTooNew(_WHAT, version, BACKUP_FORMAT)
        return _OPENING.size + length if left >= _OPENING.size + length else None

    def _take(self, piece: bytes) -> BackedUp | None:
        if self.header is None:
            self.header = _CODEC.decode(_WHAT, piece[_OPENING.size :])
        elif piece[:4] == _END.to_bytes(4, "big"):
            if _TRAILER.unpack(piece)[1:] != (self._count, self._checksum):
                raise ValueCorrupt(_WHAT, "its checksum does not fit")
            self._is_over = True
        else:
            self._checksum = crc32(piece, self._checksum)
            return self._record(piece)
        self._checksum = crc32(piece, self._checksum)
        return None

    def _record(self, piece: bytes) -> BackedUp:
        domain, version, key, _ = _RECORD.unpack_from(piece)
        self._count += 1
        try:
            name = piece[_RECORD.size : _RECORD.size + key].decode("ascii")
        except UnicodeDecodeError as error:
            raise ValueCorrupt(_WHAT, "a key that is none") from error
        assert self.header is not None
        if domain >= self.header.domains or not name.startswith(keys.ROOT):
            raise ValueCorrupt(_WHAT, f"a key {name!r} of domain {domain}")
        return BackedUp(domain, name, piece[_RECORD.size + key :], version)
