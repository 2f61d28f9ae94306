"""The log alone, without sockets: appends of whole batches on SQLite and local files.

python -m bench.log_append [--batch 1048576] [--streams 16] [--in-flight 64] [--gigabytes 2]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import tempfile
import time
from pathlib import Path

import uvloop
from tests.services import room_settings

from dray.base.runtime import SystemRuntime
from dray.kafka.records import Record, twin, validate
from dray.log import Log
from dray.metadata.sqlite import SqliteStore
from dray.objects.local.store import LocalStore


async def run(batch_bytes: int, streams: int, in_flight: int, gigabytes: float) -> None:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-", dir="."))
    runtime = SystemRuntime()
    store = SqliteStore(root / "metadata.sqlite", runtime)
    await store.open()
    objects = await LocalStore.open(root / "objects", runtime)
    log = Log(store, objects, runtime, 4, room_settings.log())
    await log.start()
    names = await log.create_streams(streams)
    count = max(1, batch_bytes // 1024)
    template = bytes(twin.encode([Record(n, 1, None, b"x" * (batch_bytes // count)) for n in range(count)]))
    total = int(gigabytes * 1e9 / len(template))
    left = iter(range(total))
    latencies: list[float] = []

    async def producer(place: int) -> None:
        stream = names[place % streams]
        for _ in left:
            data = bytearray(template)
            began = time.monotonic()
            [batch] = validate(data, max_batch_bytes=1 << 30, max_decompressed_bytes=1 << 30)
            await log.append(stream, batch, memoryview(data))
            latencies.append(time.monotonic() - began)

    began, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*[producer(place) for place in range(in_flight)])
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    size = total * len(template)
    latencies.sort()
    print(
        f"{len(template)} B batches, {streams} streams, {in_flight} in flight: "
        f"{size / seconds / 1e6:.0f} MB/s, "
        f"{total / seconds:.0f} batches/s, {cpu / size * 1e9:.2f} CPU s/GB, "
        f"p50 {latencies[len(latencies) // 2] * 1e3:.1f} ms, "
        f"p99 {latencies[len(latencies) * 99 // 100] * 1e3:.1f} ms, "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB"
    )
    await log.stop()
    await store.close()
    await objects.close()
    runtime.close()
    shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1 << 20)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--gigabytes", type=float, default=2)
    options = parser.parse_args()
    uvloop.run(run(options.batch, options.streams, options.in_flight, options.gigabytes))


if __name__ == "__main__":
    main()
