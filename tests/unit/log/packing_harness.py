"""Streams that carry, and packs of them when a test asks for one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tests.services.room_settings import EMBEDDED
from tests.unit.log.harness import DOMAINS, QUICK, World, append, batch_bytes, read, values_in

from dray.log import Log, LogObserver
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import JobState
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.metadata import keys

ORPHAN = 30.0
DAY_MS = 24 * 3_600_000
LIMITS = replace(EMBEDDED, entry_bytes=0, pack_entries=3, pack_seconds=600.0, few_entries=0)
VALUES = [b"a", b"b", b"c", b"d"]
READ = list(enumerate(VALUES))
STANDING_SECONDS = LIMITS.standing_seconds


class Noticed(LogObserver):
    def __init__(self) -> None:
        self.entries: list[int] = []
        self.lost = 0
        self.carried_bytes: dict[int, int] = {}
        self.age = 0.0

    def packed(self, entries: int, size: int) -> None:
        assert size > 0
        self.entries.append(entries)

    def pack_lost(self) -> None:
        self.lost += 1

    def backlog(self, domain: int, size: int, age: float) -> None:
        self.carried_bytes[domain] = size
        self.age = max(self.age, age)


def packing_world() -> World:
    settings = replace(
        QUICK,
        carry=LIMITS,
        pack_look_seconds=1e9,
        orphan_ttl=ORPHAN,
        collect_grace=0.0,
        retry_limit=1,
        tail_cache_bytes=0,
        segment_cache_bytes=0,
    )
    return World(settings=settings)


def carrying(world: World, observer: LogObserver | None = None) -> Log:
    log = world.log(observer)
    log.carry(True)
    return log


async def fill(log: Log, streams: int = 1) -> list[int]:
    """Three carried entries and a carried head each, of one producer, in one domain."""
    made = (await log.create_streams(streams * DOMAINS))[::DOMAINS]
    for sequence, value in enumerate(VALUES):
        for stream in made:
            await append(log, stream, batch_bytes([value], producer=(9, 0, sequence)))
    return made


async def pack(log: Log) -> None:
    for rounds in log._packing:
        await rounds.run()


def streams_of(world: World) -> StreamStore:
    return StreamStore(world.store, DOMAINS, world.settings.producer_expiry_ms)


async def read_all(world: World, stream: int) -> list[tuple[int, bytes]]:
    """By a broker that comes anew. In the middle of a swap an answer ends where another entry begins."""
    log = world.log()
    found: list[tuple[int, bytes]] = []
    while more := values_in(await read(log, stream, len(found))):
        found += [each for each in more if each[0] >= len(found)]
    return found


async def entries(world: World, stream: int) -> list[IndexEntry]:
    view = await streams_of(world).view(stream)
    assert view is not None
    return [entry.value for entry in view.entries]


async def check(world: World, streams: Sequence[int], objects: int) -> None:
    """All is read, no key and no object is left over, and producers are known."""
    for stream in streams:
        assert await read_all(world, stream) == READ
        state = await load_stream_state(streams_of(world), stream)
        found = state.producers.get(9)
        assert found is not None
        assert found.batches[-1].base_offset == 3
        assert (await streams_of(world).job(stream)).value.state is JobState.DONE
    assert len(world.bucket.objects) == len(world.keys(keys.OBJECTS)) == objects
    assert world.keys(keys.STAGING) == []
    held = {
        (entry.object_id, stream)
        for stream in streams
        for entry in await entries(world, stream)
        if entry.is_referenced
    }
    found_references = {
        (keys.wal_id_of(key), int(key.rpartition("/")[2])) for key in world.keys(keys.REFERENCES)
    }
    assert found_references == held


async def collect(world: World) -> None:
    """Long enough for every orphan to be found and resolved."""
    collector = world.log().collector
    for _ in range(3):
        await collector.run()
        await asyncio.sleep(ORPHAN + 1)
