"""What a put to S3 costs its client: `python -m bench.s3_puts [MIB]`.

A real S3 server on the same machine, plain and with TLS, the payload signed and not. Signing means a SHA-256
over every byte. The CPU seconds are this process's alone, the server's are not in them. Dray itself
refuses unsigned payloads without TLS; that row only shows where the time goes.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from obstore.store import S3Store
from tests.services.certificates import make_certificates
from tests.services.s3 import BUCKET, S3Process

from dray.base.runtime import SystemRuntime
from dray.objects.remote.store import RemoteStore

MIB = 1024 * 1024
PIECE = 16 * 1024
OBJECT = 8 * MIB
IN_FLIGHT = 4


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def store_on(server: S3Process, runtime: SystemRuntime, unsigned: bool) -> RemoteStore:
    client: dict[str, object] = {"allow_http": True}
    if server.certificates:
        client["root_certificate"] = server.certificates.authority.read_text()
    options = server.options()
    config = {"endpoint": options["endpoint"], "region": options["region"], "unsigned_payload": unsigned}
    store = S3Store(BUCKET, config=config | server.secrets(), client_options=client)  # type: ignore[arg-type]
    return RemoteStore(store, runtime)


async def measure(store: RemoteStore, total: int) -> tuple[float, float, float]:
    """MB/s, CPU seconds per GB, and milliseconds per put in the middle."""
    data = memoryview(os.urandom(OBJECT))
    parts = [data[start : start + PIECE] for start in range(0, OBJECT, PIECE)]
    names = [f"object-{number}" for number in range(total // OBJECT)]
    latencies: list[float] = []
    waiting = iter(names)

    async def writer() -> None:
        for name in waiting:
            began = time.perf_counter()
            await store.put(name, parts)
            latencies.append(time.perf_counter() - began)

    began, cpu_before = time.perf_counter(), cpu_seconds()
    await asyncio.gather(*(writer() for _ in range(IN_FLIGHT)))
    elapsed, cpu = time.perf_counter() - began, cpu_seconds() - cpu_before
    for name in names:
        await store.delete(name)
    written = len(names) * OBJECT
    return written / elapsed / 1e6, cpu / (written / 1e9), sorted(latencies)[len(latencies) // 2] * 1000


async def run(folder: Path, total: int) -> None:
    runtime = SystemRuntime()
    print(f"{'':>6} {'payload':>9} {'MB/s':>8} {'client CPU s/GB':>16} {'median ms':>10}")
    for name, certificates in (("plain", None), ("TLS", make_certificates(folder / "certificates"))):
        with S3Process(folder / name, certificates=certificates) as server:
            costs = []
            for unsigned in (False, True):
                store = store_on(server, runtime, unsigned)
                speed, cpu, latency = await measure(store, total)
                await store.close()
                costs.append(cpu)
                payload = "unsigned" if unsigned else "signed"
                print(f"{name:>6} {payload:>9} {speed:>8.0f} {cpu:>16.2f} {latency:>10.1f}", flush=True)
            print(f"{name:>6} unsigned costs {costs[1] / costs[0]:.2f} of signed")
    runtime.close()


def main() -> None:
    total = int(sys.argv[1]) * MIB if len(sys.argv) > 1 else 1024 * MIB
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(run(Path(folder), total))


if __name__ == "__main__":
    main()
