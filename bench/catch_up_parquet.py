"""Catching up from compacted files, and from WAL objects beside it: the same records, the same log.

python -m bench.catch_up_parquet [--megabytes 512] [--size 1024] [--partitions 4]

The log is read as a broker reads it for a fetch session: all partitions at once, a mebibyte of each. Without
sockets, so that what is measured is the reading. Prints MB/s of Kafka batches, CPU seconds per GB, how many
requests the object store got, and what the first fetch of a cold offset takes.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import uvloop
from tests.services import room_settings

from bench.payloads import text_batches
from dray.base.runtime import SystemRuntime
from dray.kafka.records import uninitialised, validate
from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.jobs.values import WrittenFile
from dray.log.stream_store import StreamStore
from dray.log.types import ReadRequest
from dray.metadata import keys
from dray.metadata.contract import Delete, Put
from dray.metadata.sqlite import SqliteStore
from dray.objects.contract import OwnBuffer
from dray.objects.local.store import LocalStore
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import unit_prefix
from dray.tables.compaction.writing.executor import LocalUnitWriter

T = TypeVar("T")

DOMAINS = 4
TOPIC_ID = UUID(int=1)


class Counted(LocalStore):
    """Counts the requests that would go to a remote store."""

    requests = 0

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        self.requests += 1
        return await super().with_ranges(path, ranges, work)


@dataclass
class Reading:
    megabytes_per_second: float
    cpu_seconds_per_gigabyte: float
    requests: int

    def __str__(self) -> str:
        return (
            f"{self.megabytes_per_second:7.0f} MB/s  {self.cpu_seconds_per_gigabyte:5.2f} CPU s/GB  "
            f"{self.requests:5} requests"
        )


async def fill(log: Log, streams: list[int], megabytes: int, size: int) -> int:
    template = [bytes(batch) for batch in text_batches(8 << 20, size)]
    total = 0
    while total < megabytes * 1_000_000:
        appends = []
        for stream in streams:
            for data in template:
                own = bytearray(data)
                [batch] = validate(own, max_batch_bytes=1 << 30, max_decompressed_bytes=1 << 30)
                appends.append(log.append(stream, batch, memoryview(own)))
                total += len(data)
        await asyncio.gather(*appends)
    return total


async def compact(store: SqliteStore, objects: LocalStore, runtime: SystemRuntime, stream: int) -> int:
    """All of a stream but its head, in files of about 128 MB; without the care that a compactor takes."""
    view = await StreamStore(store, DOMAINS, 0).view(stream)
    assert view is not None
    inputs: list[IndexEntry] = []
    size = 0
    for entry in [versioned.value for versioned in view.split()[0]]:
        inputs.append(entry)
        size += sum(reference.length for _, reference in entry.batches())
        if size > 128_000_000:
            await _swap(store, objects, runtime, stream, inputs)
            inputs, size = [], 0
    if inputs:
        await _swap(store, objects, runtime, stream, inputs)
    head = view.high_watermark.value.head
    return head.start if head is not None else view.high_watermark.value.end


async def _swap(
    store: SqliteStore, objects: LocalStore, runtime: SystemRuntime, stream: int, inputs: list[IndexEntry]
) -> None:
    unit = Unit(
        "bench",
        TOPIC_ID,
        0,
        stream,
        1,
        tuple(entry.encode() for entry in inputs),
        inputs[0].start,
        inputs[-1].end,
        unit_prefix("bench", TOPIC_ID, 0, stream),
    )
    [written] = await LocalUnitWriter(objects, runtime).write([unit])
    assert isinstance(written, WrittenFile), written
    entry = IndexEntry.parquet(
        inputs, written.parquet_id, written.path, written.file_size, written.footer_length, written.row_groups
    )
    await store.write(
        stream % DOMAINS,
        [
            Put(keys.index_entry(stream, entry.end, entry.cumulative_size), entry.encode()),
            *[Delete(keys.index_entry(stream, one.end, one.cumulative_size)) for one in inputs[:-1]],
        ],
    )


async def read(log: Log, ends: dict[int, int], objects: Counted) -> Reading:
    offsets = dict.fromkeys(ends, 0)
    total = 0
    objects.requests = 0
    began, cpu = time.monotonic(), time.process_time()
    while any(offsets[stream] < end for stream, end in ends.items()):
        requests = [
            ReadRequest(stream, offset, 1 << 20)
            for stream, offset in offsets.items()
            if offset < ends[stream]
        ]
        results = await log.fetch(requests, min_bytes=1, max_bytes=50 << 20, max_wait_ms=500)
        for request, result in zip(requests, results, strict=True):
            if result.error is not None:
                raise result.error
            total += result.size
            for buffer in result.buffers:
                offsets[request.stream] = _end_of(memoryview(buffer))
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    return Reading(total / seconds / 1e6, cpu / total * 1e9, objects.requests)


def _end_of(buffer: memoryview) -> int:
    """One past the last offset of the batches in it."""
    at = end = 0
    while at < len(buffer):
        base = int.from_bytes(buffer[at : at + 8], "big")
        end = base + int.from_bytes(buffer[at + 57 : at + 61], "big")
        at += 12 + int.from_bytes(buffer[at + 8 : at + 12], "big")
    return end


async def cold(log: Log, stream: int, offset: int, objects: Counted) -> None:
    objects.requests = 0
    began = time.monotonic()
    [result] = await log.fetch(
        [ReadRequest(stream, offset, 1 << 20)], min_bytes=1, max_bytes=1 << 20, max_wait_ms=500
    )
    took = time.monotonic() - began
    assert result.error is None
    assert result.size
    print(f"  first fetch of a cold offset: {took * 1e3:.1f} ms, {objects.requests} object requests")


async def run(megabytes: int, size: int, partitions: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-", dir="."))
    runtime = SystemRuntime()
    store = SqliteStore(root / "metadata.sqlite", runtime)
    await store.open()
    objects = await Counted.open(root / "objects", runtime, allocate=uninitialised)
    assert isinstance(objects, Counted)
    settings = room_settings.log(tail_cache_bytes=0)
    try:
        log = Log(store, objects, runtime, DOMAINS, settings)
        await log.start()
        streams = await log.create_streams(partitions)
        total = await fill(log, streams, megabytes, size)
        await log.stop()
        print(f"{total / 1e6:.0f} MB of {size} B records in {partitions} partitions")
        ends = {stream: (await log.bounds(stream)).end for stream in streams}
        by_wal = await read(Log(store, objects, runtime, DOMAINS, settings), ends, objects)
        print(f"  WAL objects:     {by_wal}")
        compacted = {stream: await compact(store, objects, runtime, stream) for stream in streams}
        await cold(
            Log(
                store,
                objects,
                runtime,
                DOMAINS,
                room_settings.log(tail_cache_bytes=0, parquet_groups_ahead=0),
            ),
            streams[0],
            compacted[streams[0]] // 2,
            objects,
        )
        by_files = await read(Log(store, objects, runtime, DOMAINS, settings), compacted, objects)
        print(f"  compacted files: {by_files}")
        ratio = by_files.megabytes_per_second / by_wal.megabytes_per_second
        print(f"  compacted / WAL: {ratio:.2f} of the speed")
        print(f"  peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
        await objects.close()
        await store.close()
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    arguments = parser.parse_args()
    uvloop.run(run(arguments.megabytes, arguments.size, arguments.partitions))


if __name__ == "__main__":
    main()
