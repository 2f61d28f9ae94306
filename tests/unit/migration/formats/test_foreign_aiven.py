"""Aiven's tiered storage: what its plugin wrote (zstd, AES-256-GCM) is read back whole, and nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from tests.unit.migration.formats.fixture_files import AIVEN, aiven_partition, segments_of

from dray.kafka.records import Codec
from dray.kafka.records.compression import compress
from dray.migration.formats import ForeignDamage, ForeignUnsupported, walk_batches
from dray.migration.formats.aiven import (
    AivenManifest,
    read_chunk,
    read_index_part,
    read_manifest,
    unwrap_key,
)
from dray.migration.formats.kafka_files import (
    read_epochs,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from dray.migration.formats.remote_segments import parse_aiven

PRIVATE_KEY = (AIVEN / "throwaway-key.der").read_bytes()


def manifests() -> list[tuple[Any, AivenManifest]]:
    return [
        (path, read_manifest(path.read_bytes()))
        for number in (0, 1)
        for path in segments_of(aiven_partition(number), "rsm-manifest")
    ]


def test_all_segments_are_read_back_whole() -> None:
    found = manifests()
    assert len(found) == 8
    records = {0: 0, 1: 0}
    for path, manifest in found:
        key = unwrap_key(manifest.wrapped_key, PRIVATE_KEY)
        stored = path.with_suffix(".log").read_bytes()
        assert len(stored) == manifest.object_size
        segment = b"".join(
            bytes(read_chunk(manifest, one, stored[one.position : one.position + one.size], key))
            for one in manifest.chunks
        )
        assert len(segment) == manifest.segment_size
        batches = list(walk_batches(segment, from_offset=manifest.start_offset))
        assert batches[-1].last_offset == manifest.end_offset
        assert max(one.header.max_timestamp for one in batches) == manifest.max_timestamp
        records[manifest.partition] += sum(one.header.record_count for one in batches)
        name = parse_aiven(str(path))
        assert name is not None
        assert (name.topic_id, name.segment_id) == (manifest.topic_id, manifest.segment_id)
        assert (name.topic, name.base_offset) == (manifest.topic, manifest.start_offset)
    assert records[1] >= 20_000
    assert records[0] >= 20_153


def test_the_indexes_are_encrypted_and_not_compressed() -> None:
    for path, manifest in manifests():
        key = unwrap_key(manifest.wrapped_key, PRIVATE_KEY)
        indexes = path.with_suffix(".indexes").read_bytes()

        def part(name: str, *, of: AivenManifest = manifest, data: bytes = indexes, by: bytes = key) -> Any:
            return read_index_part(of, name, data, by)

        assert read_time_index(part("timestamp"), manifest.start_offset)
        read_producer_snapshot(part("producerSnapshot"))
        assert read_epochs(part("leaderEpoch"))[0].epoch == manifest.epochs[0][0]
        transactions = part("transaction")
        if transactions is not None:
            assert len(read_transaction_index(transactions)) == 1
        assert part("offset") is not None
        assert part("none of these") is None


def test_other_bytes_or_another_key_do_not_decrypt() -> None:
    path, manifest = manifests()[0]
    key = unwrap_key(manifest.wrapped_key, PRIVATE_KEY)
    chunk = manifest.chunks[0]
    stored = bytearray(path.with_suffix(".log").read_bytes()[: chunk.size])
    with pytest.raises(ForeignDamage, match="another key"):
        read_chunk(manifest, chunk, stored, bytes(32))
    with pytest.raises(ForeignDamage, match="not known"):
        read_chunk(manifest, chunk, stored, None)
    with pytest.raises(ForeignDamage, match="instead of"):
        read_chunk(manifest, chunk, stored[:-1], key)
    for position in (0, 12, 500, len(stored) - 1):
        damaged = bytearray(stored)
        damaged[position] ^= 1
        with pytest.raises(ForeignDamage, match="does not decrypt"):
            read_chunk(manifest, chunk, damaged, key)
    with pytest.raises(ForeignDamage, match="wrapped with another key"):
        unwrap_key(manifest.wrapped_key[:-1] + b"\0", PRIVATE_KEY)
    with pytest.raises(ForeignDamage, match="wrapped with another key"):
        unwrap_key(b"\1" * 7, PRIVATE_KEY)
    with pytest.raises(ForeignDamage, match="PKCS 8"):
        unwrap_key(manifest.wrapped_key, b"no key")


def tree() -> dict[str, Any]:
    path = segments_of(aiven_partition(0), "rsm-manifest")[0]
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def refused(changed: Any, kind: type[Exception] = ForeignDamage) -> str:
    with pytest.raises(kind) as caught:
        read_manifest(json.dumps(changed).encode())
    return str(caught.value)


def test_manifests_that_are_not_of_version_1() -> None:
    assert "'2'" in refused(tree() | {"version": "2"}, ForeignUnsupported)
    assert "None" in refused({}, ForeignUnsupported)
    assert "JSON" in refused([])
    with pytest.raises(ForeignDamage, match="JSON"):
        read_manifest(b"\xff{")
    with pytest.raises(ForeignDamage, match="JSON"):
        read_manifest(b"[" * 100_000)
    index = tree()
    index["chunkIndex"]["type"] = "iceberg"
    assert "iceberg" in refused(index, ForeignUnsupported)


@pytest.mark.parametrize("name", ["chunkIndex", "segmentIndexes", "compression", "remoteLogSegmentMetadata"])
def test_every_part_of_a_manifest_is_needed(name: str) -> None:
    without = tree()
    del without[name]
    assert name in refused(without)
    others: tuple[Any, ...] = (None, 7, "x", [])
    for other in others:
        with pytest.raises((ForeignDamage, ForeignUnsupported)):
            read_manifest(json.dumps(tree() | {name: other}).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("originalFileSize", -1),
        ("originalFileSize", 0),
        ("originalFileSize", 2**31),
        ("originalFileSize", 999_875 + 65_536),
        ("originalChunkSize", 0),
        ("originalChunkSize", 1),
        ("originalChunkSize", 2**40),
        ("transformedChunks", "not base64!"),
        ("transformedChunks", b64encode(b"no zstd").decode()),
    ],
)
def test_hostile_sizes_are_refused_before_anything_is_allocated(field: str, value: object) -> None:
    changed = tree()
    changed["chunkIndex"][field] = value
    refused(changed)


def test_a_chunk_index_that_unfolds_to_a_gigabyte_is_refused() -> None:
    changed = tree()
    bomb = bytes(compress(Codec.ZSTD, bytes(1 << 26)))
    changed["chunkIndex"]["transformedChunks"] = b64encode(bomb).decode()
    assert "chunk index" in refused(changed)


def test_a_chunk_that_unfolds_to_more_than_the_manifest_says_is_refused() -> None:
    plain = tree()
    del plain["encryption"]
    bomb = bytes(compress(Codec.ZSTD, bytes(1 << 26)))
    plain["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 1000,
        "originalFileSize": 1000,
        "transformedChunkSize": len(bomb),
        "finalTransformedChunkSize": len(bomb),
    }
    manifest = read_manifest(json.dumps(plain).encode())
    with pytest.raises(ForeignDamage, match="to the 1000 bytes that the manifest says"):
        read_chunk(manifest, manifest.chunks[0], bomb, None)
    short = bytes(compress(Codec.ZSTD, bytes(999)))
    plain["chunkIndex"]["finalTransformedChunkSize"] = len(short)
    manifest = read_manifest(json.dumps(plain).encode())
    with pytest.raises(ForeignDamage, match="to the 1000 bytes that the manifest says"):
        read_chunk(manifest, manifest.chunks[0], short, None)


def test_plain_chunks_of_a_fixed_size() -> None:
    plain = tree()
    del plain["encryption"]
    plain["compression"] = False
    plain["chunkIndex"] = {
        "type": "fixed",
        "originalChunkSize": 400,
        "originalFileSize": 1000,
        "transformedChunkSize": 400,
        "finalTransformedChunkSize": 200,
    }
    manifest = read_manifest(json.dumps(plain).encode())
    assert [(one.original, one.position, one.size) for one in manifest.chunks] == [
        (0, 0, 400),
        (400, 400, 400),
        (800, 800, 200),
    ]
    assert read_chunk(manifest, manifest.chunks[2], b"x" * 200, None) == b"x" * 200
    plain["chunkIndex"]["transformedChunkSize"] = 401
    assert "chunk 0" in refused(plain)
