"""Catching up from segments that another system wrote, and from WAL objects beside it: the same records, the
same log.

python -m bench.foreign [--megabytes 256] [--size 1024] [--partitions 4] [--runs 3]

Read as in `bench.catch_up_parquet`: all partitions at once, a mebibyte of each, without sockets. The segments
lie in a directory, once as Kafka's LocalTieredStorage has them, and once as Aiven's plugin writes them: in
chunks of 4 MiB, zstd, AES-256-GCM. The records are text, and how far zstd packs them is printed: what is
unpacked costs by its size, so the figures hold for data that packs alike. Kafka serving the same tier is
`bench.foreign_kafka`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from base64 import b64encode
from pathlib import Path
from struct import pack
from typing import Any
from uuid import uuid4

import uvloop
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.services import room_settings

from bench.catch_up_parquet import DOMAINS, Counted, Reading, fill, read
from bench.payloads import text_batches
from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.process import tune_memory
from dray.kafka.records import Codec, uninitialised
from dray.kafka.records.compression import compress
from dray.log import Log
from dray.log.stream_store import StreamStore
from dray.metadata.sqlite import SqliteStore
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.lay_down import AttachedStream, ForeignSegment, entries_of, lay_down
from dray.migration.entries.segments import ForeignAddress, ForeignLayout, open_foreign_stores
from dray.migration.formats import walk_batches
from dray.migration.formats.aiven import read_manifest, unwrap_key

FIXTURE = Path("tests/fixtures/foreign/aiven-v1")
SEGMENT_BYTES = 128 << 20
CHUNK_BYTES = 4 << 20
INDEX_BYTES = 4096


def segments(megabytes: int, size: int) -> list[tuple[int, bytes]]:
    """Of one partition: base offset and bytes."""
    template = [bytes(batch) for batch in text_batches(8 << 20, size)]
    found: list[tuple[int, bytes]] = []
    offset = total = 0
    while total < megabytes * 1_000_000:
        base, data = offset, bytearray()
        while len(data) < SEGMENT_BYTES and total + len(data) < megabytes * 1_000_000:
            for batch in template:
                one = bytearray(batch)
                one[:8] = offset.to_bytes(8, "big")
                offset += int.from_bytes(one[57:61], "big")
                data += one
        found.append((base, bytes(data)))
        total += len(data)
    return found


def write_kafka(root: Path, name: str, data: bytes) -> tuple[str, str, int]:
    (root / name).write_bytes(data)
    return name, "", len(data)


def write_aiven(root: Path, name: str, data: bytes) -> tuple[str, str, int]:
    """As the plugin does, with the data key of the fixtures."""
    manifest_file = next((FIXTURE / "pre").rglob("*.rsm-manifest"))
    tree: dict[str, Any] = json.loads(manifest_file.read_text())
    known = read_manifest(manifest_file.read_bytes())
    cipher = AESGCM(unwrap_key(known.wrapped_key, (FIXTURE / "throwaway-key.der").read_bytes()))
    stored: list[bytes] = []
    for at in range(0, len(data), CHUNK_BYTES):
        packed = bytes(compress(Codec.ZSTD, data[at : at + CHUNK_BYTES], 3))
        iv = os.urandom(12)
        stored.append(iv + cipher.encrypt(iv, packed, known.associated))
    (root / name).write_bytes(b"".join(stored))
    sizes = [len(chunk) for chunk in stored]
    if len(sizes) == 1:
        index = pack(">II", 1, sizes[0])
    else:
        base = min(sizes[:-1])
        index = pack(">IIB", len(sizes), base, 4)
        index += b"".join(pack(">I", size - base) for size in sizes[:-1]) + pack(">I", sizes[-1])
    tree["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": CHUNK_BYTES,
        "originalFileSize": len(data),
        "transformedChunks": b64encode(bytes(compress(Codec.ZSTD, index, 3))).decode(),
    }
    manifest = name.replace(".log", ".rsm-manifest")
    (root / manifest).write_text(json.dumps(tree))
    return name, manifest, sum(sizes)


def attached(
    root: Path, partition: int, layout: ForeignLayout, of: list[tuple[int, bytes]]
) -> AttachedStream:
    found: list[ForeignSegment] = []
    for base, data in of:
        name = f"orders-{partition}-{base:020d}.log"
        write = write_aiven if layout is ForeignLayout.AIVEN else write_kafka
        path, manifest, size = write(root, name, data)
        rows, indexed, end = [(base, 0)], 0, base
        for batch in walk_batches(data):
            if batch.position - indexed > INDEX_BYTES:
                rows.append((batch.last_offset, batch.position))
                indexed = batch.position
            end = batch.last_offset + 1
        found.append(
            ForeignSegment(uuid4(), "tier", path, layout, base, end, 0, 0, rows, len(data), size, manifest)
        )
    entries = entries_of([(segment, []) for segment in found], [], 0)
    return AttachedStream(entries, 0, found[-1].end, 65_536)


async def run(megabytes: int, size: int, partitions: int, runs: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-", dir="."))
    runtime = SystemRuntime()
    store = SqliteStore(root / "metadata.sqlite", runtime)
    await store.open()
    objects = await Counted.open(root / "objects", runtime, allocate=uninitialised)
    assert isinstance(objects, Counted)
    settings = room_settings.log(tail_cache_bytes=0)
    streams = StreamStore(store, DOMAINS, settings.producer_expiry_ms)
    key = (FIXTURE / "throwaway-key.der").read_bytes()
    key_id = read_manifest(next((FIXTURE / "pre").rglob("*.rsm-manifest")).read_bytes()).key_id or ""
    try:
        log = Log(store, objects, runtime, DOMAINS, settings)
        await log.start()
        own = await log.create_streams(partitions)
        total = await fill(log, own, megabytes, size)
        ends = {"WAL objects": {stream: (await log.bounds(stream)).end for stream in own}}
        stores = {}
        for layout in (ForeignLayout.KAFKA, ForeignLayout.AIVEN):
            folder = root / layout.word
            folder.mkdir()
            taken = await log.take_stream_ids(partitions)
            ends[layout.word] = {}
            for partition, stream in enumerate(taken):
                laid = attached(folder, partition, layout, segments(megabytes // partitions, size))
                await lay_down(streams, stream, laid)
                ends[layout.word][stream] = laid.end
            address = ForeignAddress(f"file:{folder}", keys={key_id: key})
            stores[layout.word] = (await open_foreign_stores({"tier": address}, runtime))["tier"]
        await log.stop()
        packed = sum(path.stat().st_size for path in (root / ForeignLayout.AIVEN.word).glob("*.log"))
        plain = sum(path.stat().st_size for path in (root / ForeignLayout.KAFKA.word).glob("*.log"))
        what = f"{total / 1e6:.0f} MB of {size} B records in {partitions} partitions"
        print(f"{what}; aiven-1 takes {packed / plain:.2f} of it")
        readings: dict[str, list[Reading]] = {name: [] for name in ends}
        for _ in range(runs):  # in turns, so that what else the machine does meets all of them
            for name, wanted in ends.items():
                foreign = {"tier": stores[name]} if name in stores else {}
                entries = ForeignEntries(objects, runtime, foreign, room_settings.CONFIG.foreign.cache_bytes)
                reader = Log(store, objects, runtime, DOMAINS, settings, outside=entries)
                readings[name].append(await read(reader, wanted, objects))
        speeds = {
            name: statistics.median(reading.megabytes_per_second for reading in found)
            for name, found in readings.items()
        }
        for name, found in readings.items():
            cpu = statistics.median(reading.cpu_seconds_per_gigabyte for reading in found)
            ratio = speeds[name] / speeds["WAL objects"]
            print(f"  {name:12} {speeds[name]:7.0f} MB/s  {cpu:5.2f} CPU s/GB  {ratio:4.2f} of WAL")
        await objects.close()
        await store.close()
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    tune_memory()  # as every broker does
    uvloop.run(run(options.megabytes, options.size, options.partitions, options.runs))


if __name__ == "__main__":
    main()
