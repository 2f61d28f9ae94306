"""How fast the metadata engines write and read, and whether processes take fair turns.

    python -m bench.metadata_engines [--seconds 2] [--directory DIR]

Each line is one setting: writes per second and latency percentiles in milliseconds. A "small" write
is what one produce commit of a single stream makes (a compare-and-set and a put); a "wide" one is
that of an object over twenty streams.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, ANY, DeleteRange, Expectation, MetadataStore, Operation, Put
from dray.metadata.memory import MemoryStore
from dray.metadata.sqlite import SqliteStore

KEY = "/dray/v1/streams/{stream:020d}/{leaf}"


def percentiles(latencies: list[float]) -> str:
    ordered = sorted(latencies)
    shown = (("p50", 0.50), ("p99", 0.99), ("p99.9", 0.999))
    parts = [f"{name} {ordered[int(len(ordered) * part)] * 1000:7.2f}" for name, part in shown]
    return "  ".join([*parts, f"max {ordered[-1] * 1000:7.2f}"])


async def flat_out(seconds: float, callers: int, call: Callable[[int], Awaitable[None]]) -> list[float]:
    """Every caller repeats its call until the time is up; the latencies of all."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def one(caller: int) -> None:
        began = time.perf_counter()
        while began < end:
            await call(caller)
            now = time.perf_counter()
            latencies.append(now - began)
            began = now

    await asyncio.gather(*(one(caller) for caller in range(callers)))
    return latencies


class Appender:
    """Commits like a broker's: per stream a compare-and-set of its head and one new index entry."""

    def __init__(self, store: MetadataStore, first_stream: int, streams: int, value: bytes) -> None:
        self._store = store
        self._streams = [first_stream + number for number in range(streams)]
        self._value = value
        self._versions: list[int] = []
        self._entries = 0

    async def append(self) -> None:
        self._entries += 1
        operations: list[Operation] = []
        for position, stream in enumerate(self._streams):
            expect: Expectation = self._versions[position] if self._versions else ANY
            operations.append(Put(KEY.format(stream=stream, leaf="hwm"), self._value, expect))
            leaf = f"offset-index/{self._entries:020d}"
            operations.append(Put(KEY.format(stream=stream, leaf=leaf), self._value, ABSENT))
        outcomes = await self._store.write(0, operations)
        self._versions = [outcome.version for outcome in outcomes[::2]]
        if not all(self._versions):
            raise AssertionError("a compare-and-set without a rival was refused")


async def append_flat_out(
    store: MetadataStore, seconds: float, callers: int, streams: int, size: int, first_stream: int = 0
) -> list[float]:
    appenders = [
        Appender(store, first_stream + 1000 * caller, streams, bytes(size)) for caller in range(callers)
    ]
    return await flat_out(seconds, callers, lambda caller: appenders[caller].append())


async def measure_engine(name: str, store: MetadataStore, seconds: float) -> None:
    for kind, streams, size in (("small", 1, 200), ("wide", 20, 400), ("heavy", 10, 20_000)):
        for callers in (1, 16, 64):
            latencies = await append_flat_out(store, seconds, callers, streams, size)
            rate = len(latencies) / seconds
            print(f"{name:7} {kind:6} {callers:3} callers {rate:9.0f} writes/s  {percentiles(latencies)}")
            await store.write(0, [DeleteRange("/", "0")])
    await store.write(0, [Put(KEY.format(stream=0, leaf="hwm"), bytes(200))])

    async def get(_caller: int) -> None:
        await store.get(0, KEY.format(stream=0, leaf="hwm"))

    for callers in (1, 64):
        latencies = await flat_out(seconds, callers, get)
        rate = len(latencies) / seconds
        print(f"{name:7} get    {callers:3} callers {rate:9.0f} reads/s   {percentiles(latencies)}")


def write_alone(path: str, number: int, seconds: float, results: multiprocessing.Queue[list[float]]) -> None:
    async def run() -> None:
        runtime = SystemRuntime()
        store = SqliteStore(path, runtime)
        await store.open()
        results.put(await append_flat_out(store, seconds, 4, 1, 200, 1_000_000 * (number + 1)))
        await store.close()
        runtime.close()

    asyncio.run(run())


def measure_processes(directory: Path, processes: int, seconds: float) -> None:
    path = str(directory / f"shared-{processes}.db")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    running = [
        context.Process(target=write_alone, args=(path, number, seconds, results))
        for number in range(processes)
    ]
    for process in running:
        process.start()
    collected = [results.get() for _ in running]
    for process in running:
        process.join()
    rates = sorted(len(latencies) / seconds for latencies in collected)
    everything = [latency for latencies in collected for latency in latencies]
    print(
        f"sqlite  {processes} processes, 4 callers each {sum(rates):7.0f} writes/s in all "
        f"({rates[0]:.0f} to {rates[-1]:.0f} each)  {percentiles(everything)}"
    )


async def measure_idle_watch(directory: Path, seconds: float) -> None:
    runtime = SystemRuntime()
    store = SqliteStore(directory / "idle.db", runtime)
    await store.open()
    watch = store.watch(0)
    await anext(watch)
    began = time.process_time()
    await asyncio.sleep(seconds)
    print(f"sqlite  idle, watched: {(time.process_time() - began) / seconds:.2%} of a core")
    await store.close()
    runtime.close()


async def measure(directory: Path, seconds: float) -> None:
    runtime = SystemRuntime()
    await measure_engine("memory", MemoryStore(runtime), seconds)
    store = SqliteStore(directory / "metadata.db", runtime)
    await store.open()
    await measure_engine("sqlite", store, seconds)
    await store.close()
    runtime.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="per setting")
    parser.add_argument("--directory", type=Path, default=None, help="a directory on the disk to measure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        asyncio.run(measure(directory, arguments.seconds))
        for processes in (2, 4):
            measure_processes(directory, processes, arguments.seconds)
        asyncio.run(measure_idle_watch(directory, arguments.seconds))


if __name__ == "__main__":
    main()
