"""What a broker reads of a stream before its first append to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes, start_append

from dray.log import Log
from dray.log.append.commit import Committer
from dray.log.types import LogUnavailable, StreamClosed
from dray.metadata import keys


class Reads:
    """The parts of streams that were asked for, and how many were under way at once."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[str] = []
        self.most = self._under_way = 0
        store = world.store
        monkeypatch.setattr(store, "get", self._noted(store.get))
        monkeypatch.setattr(store, "scan", self._noted(store.scan))

    def _noted(self, read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def noted(domain: int, key: str, *more: Any) -> Any:
            _, part = keys.part_of_stream(key)
            if part:
                self.parts.append(part.split("/")[0])
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            try:
                await asyncio.sleep(0)  # or no read would overlap another
                return await read(domain, key, *more)
            finally:
                self._under_way -= 1

        return noted


async def streams_of_one_domain(log: Log, count: int) -> list[int]:
    return [stream for stream in await log.create_streams(count * DOMAINS) if stream % DOMAINS == 0]


async def append_to_all(log: Log, streams: Iterable[int], sequence: int = 0) -> list[Any]:
    batch = batch_bytes([b"x"], producer=(1, 0, sequence))
    appends = [start_append(log, stream, batch) for stream in streams]
    return await asyncio.gather(*appends, return_exceptions=True)


async def test_of_an_empty_stream_only_the_high_watermark_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [stream] = await world.log().create_streams(1)
    log = world.log()
    reads = Reads(world, monkeypatch)
    assert (await append(log, stream, batch_bytes([b"x"], producer=(1, 0, 7)))).base_offset == 0
    assert reads.parts == [keys.HIGH_WATERMARK]


async def test_a_stream_whose_records_are_all_deleted_is_not_empty(world: World) -> None:
    """Its producers are still known, and so is its start."""
    log = world.log()
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"x"], producer=(1, 0, 0)))
    await log.delete_records(stream, -1)
    other = world.log()
    with pytest.raises(LogUnavailable, match="1 is missing before it"):
        await append(other, stream, batch_bytes([b"x"], producer=(1, 0, 7)))
    appended = await append(other, stream, batch_bytes([b"x"], producer=(1, 0, 1)))
    assert (appended.base_offset, appended.start_offset) == (1, 1)


async def test_the_streams_of_an_object_are_read_side_by_side(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.log()
    streams = await streams_of_one_domain(first, 50)
    assert [result.base_offset for result in await append_to_all(first, streams)] == [0] * 50
    log = world.log()
    reads = Reads(world, monkeypatch)
    assert [result.base_offset for result in await append_to_all(log, streams, 1)] == [1] * 50
    assert reads.most >= 50
    assert reads.parts.count(keys.HIGH_WATERMARK) == 50


async def test_not_more_than_so_many_are_read_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = await streams_of_one_domain(world.log(), 400)
    log = world.log()
    reads = Reads(world, monkeypatch)
    assert [result.base_offset for result in await append_to_all(log, streams)] == [0] * 400
    assert reads.most <= 130


async def test_a_stream_that_cannot_be_read_fails_alone(world: World) -> None:
    streams = await streams_of_one_domain(world.log(), 4)
    log = world.log()
    await log.close_streams(streams[1:2])
    for _ in range(2):  # with the others, and then by itself
        world.store.trap(Fate.REFUSE, "get", keys.high_watermark(streams[2]))
    answers = await append_to_all(log, streams)
    assert [type(answer).__name__ for answer in answers] == [
        "AppendResult",
        StreamClosed.__name__,
        LogUnavailable.__name__,
        "AppendResult",
    ]


async def test_a_stream_that_could_not_be_read_with_the_others_is_read_by_itself(world: World) -> None:
    streams = await streams_of_one_domain(world.log(), 4)
    log = world.log()
    world.store.trap(Fate.REFUSE, "get", keys.high_watermark(streams[2]))
    assert [answer.base_offset for answer in await append_to_all(log, streams)] == [0] * 4


async def test_states_that_are_known_are_not_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = await streams_of_one_domain(world.log(), 10)
    log = world.log()
    await append_to_all(log, streams[:5])
    asked: list[int] = []
    load = Committer._load_together

    async def noted(committer: Committer, wanted: list[int]) -> None:
        asked.extend(stream for stream in wanted if stream not in committer._states)
        await load(committer, wanted)

    monkeypatch.setattr(Committer, "_load_together", noted)
    reads = Reads(world, monkeypatch)
    await append_to_all(log, streams, 1)
    assert asked == streams[5:]
    assert reads.parts == [keys.HIGH_WATERMARK] * 5
