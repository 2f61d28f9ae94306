"""How fast the durable local object store takes objects: `python -m bench.object_puts [FOLDER]`.

Each object is written as a WAL object is: as a list of 16 KiB pieces, synced with its directories. The
CPU seconds are the whole process's, the system's share for it included.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time

import uvloop

from dray.base.runtime import SystemRuntime
from dray.objects import LocalStore

MIB = 1024 * 1024
PIECE = 16 * 1024
TOTAL = 1024 * MIB


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(store: LocalStore, size: int, in_flight: int) -> tuple[float, float, float]:
    """MB/s, CPU seconds per GB, and milliseconds per put in the middle."""
    data = memoryview(os.urandom(size))
    parts = [data[start : start + PIECE] for start in range(0, size, PIECE)]
    paths = iter([f"size={size}/in-flight={in_flight}/{number}" for number in range(TOTAL // size)])
    latencies: list[float] = []

    async def writer() -> None:
        for path in paths:
            began = time.perf_counter()
            await store.put(path, parts)
            latencies.append(time.perf_counter() - began)

    began, cpu_before = time.perf_counter(), cpu_seconds()
    await asyncio.gather(*(writer() for _ in range(in_flight)))
    elapsed, cpu = time.perf_counter() - began, cpu_seconds() - cpu_before
    for number in range(TOTAL // size):
        await store.delete(f"size={size}/in-flight={in_flight}/{number}")
    return TOTAL / elapsed / 1e6, cpu / (TOTAL / 1e9), sorted(latencies)[len(latencies) // 2] * 1000


async def run(folder: str) -> None:
    runtime = SystemRuntime()
    store = await LocalStore.open(folder, runtime)
    print(f"{'object':>8} {'in flight':>10} {'MB/s':>8} {'CPU s/GB':>10} {'median ms':>10}")
    for size in (1 * MIB, 4 * MIB, 16 * MIB):
        for in_flight in (1, 4, 8):
            speed, cpu, latency = await measure(store, size, in_flight)
            print(
                f"{size // MIB:>4} MiB {in_flight:>10} {speed:>8.0f} {cpu:>10.2f} {latency:>10.2f}",
                flush=True,
            )
    await store.close()
    runtime.close()


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else ".") as folder:
        uvloop.run(run(folder))


if __name__ == "__main__":
    main()
