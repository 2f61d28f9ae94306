"""The keys of a WAL object: its staging mark, its object key, and a reference per stream.

The staging mark says that a broker is at work on the object. The object key says that there may be an object
to delete one day. A reference says that a stream's entry may point into the object. They are keys, not
counters, so that a step done twice counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple
from uuid import UUID

from dray.metadata import keys
from dray.metadata.contract import Delete, Operation, Put
from dray.metadata.values import ValueCorrupt, unseal

FORMAT: Final = 1
# Of marks of packs: a collector that does not know them would seal streams for them, which fences nothing.
PACK_FORMAT: Final = 2
# Of marks of outside objects: their references have the ends of entries.
OUTSIDE_STAGING_FORMAT: Final = 3
# Of object keys of outside objects that are ours: they name a store, and several paths.
OWNED_FORMAT: Final = 2

_STAGED = Struct(">BH")
_STREAMS = Struct(">I")
_STREAM = Struct(">Q")
_STREAM_AND_END = Struct(">Qq")
_PATH = Struct(">H")
_REFERENCE: Final = bytes([FORMAT])


class StagingKind(IntEnum):
    """The kind of write that brings the object into the log, and so what a collector has to fence."""

    APPEND = 0  # the high watermarks
    PACK = 1  # the jobs
    OUTSIDE = 2  # the high watermarks; it becomes entries of its streams, and these have the references


@dataclass(frozen=True, slots=True)
class Staging:
    """The streams that an object was made for, and where it lies or will lie."""

    path: str
    streams: tuple[int, ...]
    kind: StagingKind = StagingKind.APPEND
    ends: tuple[int, ...] = ()  # of an outside object: where the entry of each stream ends

    def reference(self, wal_id: UUID, stream: int) -> str:
        """The key by which a stream holds the object."""
        if self.kind is StagingKind.OUTSIDE:
            return keys.entry_reference(wal_id, stream, self.ends[self.streams.index(stream)])
        return keys.reference(wal_id, stream)

    def encode(self) -> bytes:
        path = self.path.encode()
        if self.kind is StagingKind.OUTSIDE:
            rows = [_STREAM_AND_END.pack(*row) for row in zip(self.streams, self.ends, strict=True)]
            opening = _STAGED.pack(OUTSIDE_STAGING_FORMAT, len(path)) + path
            return opening + _STREAMS.pack(len(rows)) + b"".join(rows)
        streams = b"".join([_STREAM.pack(stream) for stream in self.streams])
        number = PACK_FORMAT if self.kind is StagingKind.PACK else FORMAT
        kind = bytes([self.kind]) if number == PACK_FORMAT else b""
        return _STAGED.pack(number, len(path)) + path + _STREAMS.pack(len(self.streams)) + streams + kind

    @classmethod
    def decode(cls, value: bytes) -> Staging:
        number, _ = unseal("a WAL staging mark", value, OUTSIDE_STAGING_FORMAT)
        kind = StagingKind.APPEND
        if number == PACK_FORMAT:
            if value[-1] != StagingKind.PACK:
                raise ValueCorrupt("a WAL staging mark", f"kind {value[-1]}")
            kind, value = StagingKind.PACK, value[:-1]
        try:
            _, path_size = _STAGED.unpack_from(value)
            streams_at = _STAGED.size + path_size
            (count,) = _STREAMS.unpack_from(value, streams_at)
        except error as damage:
            raise ValueCorrupt("a WAL staging mark", f"{len(value)} bytes") from damage
        table = value[streams_at + _STREAMS.size :]
        row = _STREAM_AND_END if number == OUTSIDE_STAGING_FORMAT else _STREAM
        if len(table) != count * row.size:
            raise ValueCorrupt("a WAL staging mark", f"{len(value)} bytes")
        path = _decode_path("a WAL staging mark", value[_STAGED.size : streams_at])
        if number == OUTSIDE_STAGING_FORMAT:
            rows = list(_STREAM_AND_END.iter_unpack(table))
            return cls(
                path, tuple([row[0] for row in rows]), StagingKind.OUTSIDE, tuple([row[1] for row in rows])
            )
        return cls(path, tuple(stream for (stream,) in _STREAM.iter_unpack(table)), kind)


class OwnedObject(NamedTuple):
    """The files that an object key stands for: the object, or all that there is of an outside one."""

    paths: tuple[str, ...]
    store: str = ""  # its name in the config; empty for our own
    is_outside: bool = False


def encode_object(path: str) -> bytes:
    return bytes([FORMAT]) + path.encode()


def encode_owned(store: str, paths: Sequence[str]) -> bytes:
    """An outside object that is ours by now: copied into our store, or adopted where it lies."""
    texts = [text.encode() for text in (store, *paths)]
    return bytes([OWNED_FORMAT]) + b"".join([_PATH.pack(len(text)) + text for text in texts])


def decode_object(value: bytes) -> str:
    """The path of a WAL object."""
    unseal("a WAL object key", value, FORMAT)
    return _decode_path("a WAL object key", value[1:])


def decode_owned(value: bytes) -> OwnedObject:
    what = "a WAL object key"
    version, _ = unseal(what, value, OWNED_FORMAT)
    body = value[1:]
    if version == FORMAT:
        return OwnedObject((decode_object(value),))
    texts: list[str] = []
    position = 0
    while position < len(body):
        if len(body) - position < _PATH.size:
            raise ValueCorrupt(what, f"{len(value)} bytes")
        [size] = _PATH.unpack_from(body, position)
        position += _PATH.size
        if len(body) - position < size:
            raise ValueCorrupt(what, f"{len(value)} bytes")
        texts.append(_decode_path(what, body[position : position + size]))
        position += size
    if len(texts) < 2:
        raise ValueCorrupt(what, "a foreign segment without a path")
    return OwnedObject(tuple(texts[1:]), texts[0], is_outside=True)


def _decode_path(what: str, path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError as damage:
        raise ValueCorrupt(what, str(damage)) from damage


def stage(wal_id: UUID, staging: Staging) -> list[Operation]:
    """The staging write. Unconditional, so that a late copy of it changes the mark's version."""
    operations: list[Operation] = [
        Put(keys.staging(wal_id), staging.encode()),
        Put(keys.wal_object(wal_id), encode_object(staging.path)),
    ]
    operations.extend(Put(staging.reference(wal_id, stream), _REFERENCE) for stream in staging.streams)
    return operations


def refer_to_entry(object_id: UUID, stream: int, end: int) -> Put:
    """The reference of an index entry to an outside object that is ours, or is to be."""
    return Put(keys.entry_reference(object_id, stream, end), _REFERENCE)


def settle(
    wal_id: UUID, staging_version: int, failed: Sequence[int], staging: Staging | None = None
) -> list[Operation]:
    """No write of the object is under way any more: delete the references of the streams that failed, and the
    mark. `staging`: the mark, where its references are not those of an append."""
    refer = keys.reference if staging is None else staging.reference
    operations: list[Operation] = [Delete(refer(wal_id, stream)) for stream in failed]
    operations.append(Delete(keys.staging(wal_id), staging_version))
    return operations
