"""Segments as Aiven's tiered-storage plugin stores them, version 1: a manifest, and the segment in chunks,
each of which may be compressed (zstd) and then encrypted (AES-256-GCM).

The manifest says of each chunk where it lies, so any part of a segment can be read by itself. Data keys are
wrapped with an RSA key that the operator has; unwrapped ones stay in memory.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import b64decode
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from dray.kafka.records import Buffer, Codec, RecordError
from dray.kafka.records.compression import decompress
from dray.migration.formats.batches import ForeignDamage, ForeignUnsupported
from dray.migration.formats.remote_segments import kafka_uuid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers

LARGEST_MANIFEST: Final = 16 << 20
_LARGEST_SEGMENT: Final = 2**31 - 1
_LARGEST_CHUNK: Final = 1 << 30
_IV_SIZE: Final = 12
_TAG_SIZE: Final = 16
_KEY_SIZE: Final = 32
_CHUNKS_HEAD: Final = Struct(">IIB")
_ONE: Final = Struct(">I")


class SegmentChunk(NamedTuple):
    """Bytes `original` to `original + original_size` of the segment, at `position` of the object."""

    original: int
    original_size: int
    position: int
    size: int


class IndexPart(NamedTuple):
    position: int
    size: int


class AivenManifest(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    segment_id: UUID
    start_offset: int
    end_offset: int
    max_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    segment_size: int
    chunks: tuple[SegmentChunk, ...]
    indexes: dict[str, IndexPart]
    compressed: bool
    key_id: str | None
    """None where nothing is encrypted."""
    wrapped_key: bytes
    associated: bytes

    @property
    def chunk_bytes(self) -> int:
        """Of every chunk but the last, before it was compressed."""
        return self.chunks[0].original_size

    @property
    def object_size(self) -> int:
        return self.chunks[-1].position + self.chunks[-1].size if self.chunks else 0


def read_manifest(data: Buffer) -> AivenManifest:
    if len(data) > LARGEST_MANIFEST:
        raise ForeignDamage(f"a manifest of {len(data)} bytes")
    try:
        tree = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise ForeignDamage(f"the manifest is no JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ForeignDamage("the manifest is no JSON object")
    if tree.get("version") != "1":
        raise ForeignUnsupported(f"version {tree.get('version')!r} of a manifest")
    try:
        return _manifest(tree)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise ForeignDamage(f"the manifest lacks something, or says it otherwise: {error!r}") from None


def _manifest(tree: dict[str, Any]) -> AivenManifest:
    metadata = tree["remoteLogSegmentMetadata"]
    segment = metadata["remoteLogSegmentId"]
    place = segment["topicIdPartition"]
    encryption = tree.get("encryption")
    compressed = tree["compression"]
    if not isinstance(compressed, bool):
        raise ForeignUnsupported(f"compression {compressed!r}")
    key_id, wrapped, associated = _encryption(encryption)
    size, chunks = _chunks(tree["chunkIndex"], compressed=compressed, encrypted=key_id is not None)
    start, end = _number(metadata["startOffset"], 2**63), _number(metadata["endOffset"], 2**63)
    if end < start:
        raise ForeignDamage(f"a segment from offset {start} to {end}")
    return AivenManifest(
        topic=_text(place["topicPartition"]["topic"]),
        topic_id=kafka_uuid(place["topicId"]),
        partition=_number(place["topicPartition"]["partition"], 2**31),
        segment_id=kafka_uuid(segment["id"]),
        start_offset=start,
        end_offset=end,
        max_timestamp=int(metadata["maxTimestampMs"]),
        epochs=tuple(sorted((int(epoch), int(at)) for epoch, at in metadata["segmentLeaderEpochs"].items())),
        segment_size=size,
        chunks=chunks,
        indexes={
            name: IndexPart(_number(part["position"], 2**31), _number(part["size"], 2**31))
            for name, part in tree["segmentIndexes"].items()
            if part is not None
        },
        compressed=compressed,
        key_id=key_id,
        wrapped_key=wrapped,
        associated=associated,
    )


def _encryption(encryption: Any) -> tuple[str | None, bytes, bytes]:
    if encryption is None:
        return None, b"", b""
    key_id, _, wrapped = encryption["dataKey"].rpartition(":")
    if not key_id:
        raise ForeignDamage("a data key without the name of the key that wraps it")
    return key_id, b64decode(wrapped, validate=True), b64decode(encryption["aad"], validate=True)


def _chunks(
    index: dict[str, Any], *, compressed: bool, encrypted: bool
) -> tuple[int, tuple[SegmentChunk, ...]]:
    size = _number(index["originalFileSize"], _LARGEST_SEGMENT + 1)
    step = _number(index["originalChunkSize"], _LARGEST_CHUNK)
    if step < 1 or size < 1:
        raise ForeignDamage(f"a segment of {size} bytes in chunks of {step}")
    count = -(-size // step)
    kind = index["type"]
    if kind == "fixed":
        each = _number(index["transformedChunkSize"], _LARGEST_CHUNK)
        sizes = [each] * (count - 1) + [_number(index["finalTransformedChunkSize"], _LARGEST_CHUNK)]
    elif kind == "variable":
        sizes = _variable_sizes(b64decode(index["transformedChunks"], validate=True), count)
    else:
        raise ForeignUnsupported(f"a chunk index of type {kind!r}")
    around = _IV_SIZE + _TAG_SIZE if encrypted else 0
    chunks: list[SegmentChunk] = []
    position = 0
    for number, stored in enumerate(sizes):
        original = number * step
        length = min(step, size - original)
        if stored <= around or stored > _LARGEST_CHUNK or (not compressed and stored != length + around):
            raise ForeignDamage(f"chunk {number} of {length} bytes takes {stored}")
        chunks.append(SegmentChunk(original, length, position, stored))
        position += stored
    return size, tuple(chunks)


def _variable_sizes(packed: bytes, count: int) -> list[int]:
    """Sizes as differences to the smallest, each in as few bytes as the largest takes; the last chunk, which
    is shorter, has its own."""
    try:
        data = bytes(decompress(Codec.ZSTD, packed, 16 + 4 * count))
    except RecordError as error:
        raise ForeignDamage(f"the chunk index: {error}") from None
    if len(data) < _ONE.size or _ONE.unpack_from(data)[0] != count:
        raise ForeignDamage(f"the chunk index is not of {count} chunks")
    if count == 1:
        if len(data) != 2 * _ONE.size:
            raise ForeignDamage(f"a chunk index of {len(data)} bytes for one chunk")
        return [_ONE.unpack_from(data, _ONE.size)[0]]
    _, base, width = _CHUNKS_HEAD.unpack_from(data) if len(data) >= _CHUNKS_HEAD.size else (0, 0, 0)
    if not 1 <= width <= 4 or len(data) != _CHUNKS_HEAD.size + (count - 1) * width + _ONE.size:
        raise ForeignDamage(f"a chunk index of {len(data)} bytes for {count} chunks")
    sizes = [
        base + int.from_bytes(data[at : at + width], "big")
        for at in range(_CHUNKS_HEAD.size, len(data) - _ONE.size, width)
    ]
    return [*sizes, _ONE.unpack_from(data, len(data) - _ONE.size)[0]]


def read_chunk(manifest: AivenManifest, chunk: SegmentChunk, stored: Buffer, key: bytes | None) -> Buffer:
    """The chunk as it was in the segment. `key` is the data key, where there is encryption."""
    if len(stored) != chunk.size:
        raise ForeignDamage(f"{len(stored)} bytes instead of {chunk.size}", chunk.position)
    data: Buffer = stored
    if manifest.key_id is not None:
        data = _decrypted(data, key, manifest.associated, chunk.position)
    if manifest.compressed:
        return _unpacked(data, chunk)
    if len(data) != chunk.original_size:
        raise ForeignDamage(
            f"a chunk of {len(data)} bytes, the manifest says {chunk.original_size}", chunk.position
        )
    return data


def _unpacked(data: Buffer, chunk: SegmentChunk) -> Buffer:
    """By the library that unpacks a chunk in one go, into exactly what the manifest says: it takes a seventh
    less time than one that works as a stream, with a window to copy from. A chunk that unfolds to more or to
    less is refused."""
    # Few brokers read such segments: the library is loaded with the first.
    import pyarrow as pa

    try:
        # Bytes, so that their memory is that of all other buffers, which a broker keeps.
        found: bytes = pa.Codec("zstd").decompress(data, chunk.original_size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise ForeignDamage(
            f"a chunk does not decompress to the {chunk.original_size} bytes that the manifest says: {error}",
            chunk.position,
        ) from None
    return found


def read_index_part(manifest: AivenManifest, name: str, indexes: Buffer, key: bytes | None) -> Buffer | None:
    """One of the indexes, out of the object that holds them all: encrypted like chunks, never compressed.
    None where the segment has none of this kind."""
    part = manifest.indexes.get(name)
    if part is None or not part.size:
        return None if part is None else b""
    view = memoryview(indexes)
    if part.position + part.size > len(view):
        raise ForeignDamage(f"the index {name} ends behind the {len(view)} bytes of all", part.position)
    data: Buffer = view[part.position : part.position + part.size]
    return data if manifest.key_id is None else _decrypted(data, key, manifest.associated, part.position)


def _decrypted(data: Buffer, key: bytes | None, associated: bytes, position: int) -> bytes:
    # Few brokers read such segments: the library is loaded with the first.
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if key is None or len(key) != _KEY_SIZE:
        raise ForeignDamage("it is encrypted, and its data key is not known", position)
    if len(data) < _IV_SIZE + _TAG_SIZE:
        raise ForeignDamage(f"{len(data)} bytes are too few for what is encrypted", position)
    view = memoryview(data)
    try:
        return AESGCM(key).decrypt(view[:_IV_SIZE], view[_IV_SIZE:], associated)
    except InvalidTag:
        raise ForeignDamage("it does not decrypt: other bytes, or another key", position) from None


@lru_cache(maxsize=16)
def _private_numbers(private_key: bytes) -> RSAPrivateNumbers:
    """Kept, since the library looks closely at a key when it loads it, which takes longer than to use it."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    load = load_pem_private_key if private_key.lstrip().startswith(b"-----") else load_der_private_key
    try:
        key = load(private_key, None)
    except (TypeError, ValueError):
        raise ForeignDamage("the private key is not readable: PKCS 8 is, in PEM or DER") from None
    if not isinstance(key, RSAPrivateKey):
        raise ForeignDamage("the private key is not an RSA key")
    return key.private_numbers()


def unwrap_key(wrapped: bytes, private_key: bytes) -> bytes:
    """A data key, unwrapped with the operator's RSA key (PKCS 8, PEM or DER).

    OAEP with SHA3-512 for both its hashes, which the library refuses: so the padding is undone here. Padding
    that is wrong tells nobody anything, since the bytes come from the operator's own bucket."""
    numbers = _private_numbers(private_key)
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(wrapped, "big")
    if len(wrapped) != size or number >= modulus:
        raise ForeignDamage("the data key was wrapped with another key")
    # By its two primes, four times as fast: a broker does this once for every segment that it opens.
    first, second = pow(number, numbers.dmp1, numbers.p), pow(number, numbers.dmq1, numbers.q)
    block = second + numbers.q * (numbers.iqmp * (first - second) % numbers.p)
    found = _without_padding(block.to_bytes(size, "big"))
    if found is None or len(found) != _KEY_SIZE:
        raise ForeignDamage("the data key was wrapped with another key")
    return found


def _without_padding(block: bytes) -> bytes | None:
    """RFC 8017, 7.1.2, with an empty label."""
    label = hashlib.sha3_512(b"").digest()
    width = len(label)
    if len(block) < 2 * width + 2:
        return None
    seed = _xor(block[1 : 1 + width], _mask(block[1 + width :], width))
    data = _xor(block[1 + width :], _mask(seed, len(block) - 1 - width))
    end = data.find(b"\x01", width)
    if block[0] or data[:width] != label or end < 0 or any(data[width:end]):
        return None
    return data[end + 1 :]


def _mask(seed: bytes, size: int) -> bytes:
    blocks = -(-size // 64)
    return b"".join(hashlib.sha3_512(seed + _ONE.pack(count)).digest() for count in range(blocks))[:size]


def _xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")


def _number(value: Any, beyond: int) -> int:
    if type(value) is not int or not 0 <= value < beyond:
        raise ValueError(f"{value!r} instead of a number below {beyond}"[:80])
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 249:
        raise ValueError("a name that no topic has")
    return value
