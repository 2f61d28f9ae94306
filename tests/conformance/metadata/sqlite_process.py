"""A process that works on a shared SQLite file for `test_metadata_sqlite_processes`.

    python sqlite_process.py ROLE PATH [ARGUMENT ...]

It prints one JSON line per thing worth knowing, the first when it is ready; it begins when it reads
a line.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, Ambiguous, Expectation, Put, Unavailable
from dray.metadata.sqlite import SqliteStore


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def increment(store: SqliteStore, times: str) -> None:
    """Raise one counter by compare-and-set, against other processes that do so."""
    for _ in range(int(times)):
        while True:
            record = await store.get(0, "/counter")
            value = 0 if record is None else int(record.value)
            expect: Expectation = ABSENT if record is None else record.version
            [outcome] = await store.write(0, [Put("/counter", b"%d" % (value + 1), expect)])
            if outcome.applied:
                break


async def append(store: SqliteStore, name: str) -> None:
    """Write numbered pairs for ever, saying each number once it is acknowledged."""
    number = 0
    while True:
        writes = []
        for _ in range(8):
            number += 1
            key = f"/{name}/{number:010d}"
            writes.append(store.write(0, [Put(f"{key}/left", bytes(3000)), Put(f"{key}/right", b"")]))
        await asyncio.gather(*writes)
        say(acknowledged=number)


async def crowd(store: SqliteStore, name: str, most: str) -> None:
    """Write flat out until one of all has written so often; say how many and the longest wait."""
    slowest, count, furthest = 0.0, 0, 0
    began = time.monotonic()
    while furthest < int(most):
        count += 1
        await store.write(0, [Put(f"/crowd/{name}", b"%d" % count)])
        now = time.monotonic()
        slowest = max(slowest, now - began)
        if count % 10 == 0:
            furthest = max([int(record.value) for record in await store.scan(0, "/crowd/", "/crowd0")])
        began = time.monotonic()
    say(count=count, slowest=slowest)


async def watch(store: SqliteStore) -> None:
    async for change in store.watch(0):
        say(key=change.key)


async def hold(store: SqliteStore, ttl: str) -> None:
    session = await store.session(0, float(ttl))
    await store.write(0, [Put("/lease", b"", ABSENT, session)])
    say(held=True)
    await session.wait_ended()


async def fill(store: SqliteStore, limit: str) -> None:
    """Write under a limit on file sizes until it bites, then without it."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
    number, failure = 0, ""
    while not failure:
        try:
            await store.write(0, [Put(f"/{number}", bytes(20_000))])
            number += 1
        except (Unavailable, Ambiguous) as error:
            failure = type(error).__name__
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.write(0, [Put("/after", b"")])
    keys = [record.key for record in await store.scan(0, "/", "0")]
    say(failure=failure, acknowledged=number, keys=keys)


ROLES = {role.__name__: role for role in (increment, append, crowd, watch, hold, fill)}


async def main(role: str, path: str, *arguments: str) -> None:
    runtime = SystemRuntime(threads=1)
    store = SqliteStore(path, runtime)
    await store.open()
    say(ready=True)
    await asyncio.to_thread(sys.stdin.readline)
    await ROLES[role](store, *arguments)
    await store.close()
    runtime.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
