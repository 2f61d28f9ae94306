"""Segments as Aiven's plugin writes them, made up: many batches, several chunks. Each of those in the
fixtures is one batch."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from struct import pack
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.unit.migration.formats.fixture_files import aiven_partition
from tests.unit.migration.sources import aiven_key

from dray.kafka.records import Codec
from dray.kafka.records.compression import compress
from dray.migration.formats import walk_batches
from dray.migration.formats.aiven import read_manifest, unwrap_key


def aiven_segment(data: bytes, chunk_bytes: int, rows_from: int = 1) -> dict[str, bytes]:
    """The objects of one segment, compressed and encrypted with the key of the fixtures. Its offset index has
    a row for every batch but the first; its time index begins with batch `rows_from`."""
    original = min(aiven_partition(0).glob("*.rsm-manifest"))
    tree: dict[str, Any] = json.loads(original.read_text())
    known = read_manifest(original.read_bytes())
    cipher = AESGCM(unwrap_key(known.wrapped_key, aiven_key()))

    def encrypted(plain: bytes, number: int) -> bytes:
        iv = number.to_bytes(12, "big")
        return iv + cipher.encrypt(iv, plain, known.associated)

    batches = list(walk_batches(data))
    stored = [
        encrypted(bytes(compress(Codec.ZSTD, data[at : at + chunk_bytes])), at)
        for at in range(0, len(data), chunk_bytes)
    ]
    tree["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": chunk_bytes,
        "originalFileSize": len(data),
        "transformedChunks": b64encode(bytes(compress(Codec.ZSTD, _sizes(stored)))).decode(),
    }
    greatest = [max(each.header.max_timestamp for each in batches[: at + 1]) for at in range(len(batches))]
    parts = {
        "offset": b"".join([pack(">ii", each.last_offset, each.position) for each in batches[1:]]),
        "timestamp": b"".join(
            [
                pack(">qi", time, each.last_offset)
                for time, each in list(zip(greatest, batches, strict=True))[rows_from:]
            ]
        ),
        "leaderEpoch": b"0\n1\n0 0\n",
    }
    indexes = b""
    tree["segmentIndexes"] = {"producerSnapshot": {"position": 0, "size": 0}, "transaction": None}
    for number, (name, part) in enumerate(parts.items()):
        whole = encrypted(part, 1_000_000 + number)
        tree["segmentIndexes"][name] = {"position": len(indexes), "size": len(whole)}
        indexes += whole
    metadata = tree["remoteLogSegmentMetadata"]
    metadata["endOffset"] = batches[-1].last_offset
    metadata["maxTimestampMs"] = greatest[-1]
    home = f"pre/{aiven_partition(0).parent.name}/0/{original.stem}"
    return {
        f"{home}.log": b"".join(stored),
        f"{home}.indexes": indexes,
        f"{home}.rsm-manifest": json.dumps(tree).encode(),
    }


def _sizes(stored: Sequence[bytes]) -> bytes:
    if len(stored) == 1:
        return pack(">II", 1, len(stored[0]))
    sizes = [len(chunk) for chunk in stored]
    return pack(">IIB", len(sizes), 0, 4) + pack(f">{len(sizes)}I", *sizes)
