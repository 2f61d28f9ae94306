"""What administrators ask about a stream: its size, and who writes to it."""

from __future__ import annotations

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import World, append, batch_bytes

from dray.log import Log
from dray.log.types import ActiveProducer, LogUnavailable, StreamClosed
from dray.metadata import keys


async def test_a_size_is_that_of_what_can_still_be_read(log: Log) -> None:
    [stream] = await log.create_streams(1)
    assert await log.size(stream) == 0
    sizes = []
    for number in range(4):
        records = batch_bytes([b"x" * 10 * (number + 1)])
        sizes.append(len(records))
        await append(log, stream, records)
    assert await log.size(stream) == sum(sizes)
    await log.delete_records(stream, 2)
    assert await log.size(stream) == sum(sizes[2:])
    await log.delete_records(stream, 3)
    assert await log.size(stream) == sizes[3]
    await append(log, stream, batch_bytes([b"another"]))
    assert await log.size(stream) > sizes[3]
    await log.delete_records(stream, -1)
    assert await log.size(stream) == 0


async def test_a_start_within_an_entry_counts_the_entry(log: Log) -> None:
    [stream] = await log.create_streams(1)
    records = batch_bytes([b"one", b"two", b"three"])
    await append(log, stream, records)
    await log.delete_records(stream, 1)
    assert await log.size(stream) == len(records)


async def test_the_producers_are_those_that_the_log_remembers(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    assert await log.producers(stream) == []
    await append(log, stream, batch_bytes([b"of nobody"]))
    await append(log, stream, batch_bytes([b"a", b"b"], producer=(9, 0, 0)))
    await append(log, stream, batch_bytes([b"c"], producer=(9, 0, 2)))
    await append(log, stream, batch_bytes([b"d"], producer=(7, 3, 0)))
    found = await log.producers(stream)
    assert [producer._replace(last_ms=0) for producer in found] == [
        ActiveProducer(7, 3, 0, 0),
        ActiveProducer(9, 0, 2, 0),
    ]
    assert all(producer.last_ms > 0 for producer in found)


async def test_a_stream_that_is_gone_and_a_store_that_is_away_are_told_apart(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    for ask in (log.size, log.producers):
        world.store.trap(Fate.REFUSE, "get", keys.high_watermark(stream))
        with pytest.raises(LogUnavailable):
            await ask(stream)
    await log.close_streams([stream])
    for ask in (log.size, log.producers):
        with pytest.raises(StreamClosed):
            await ask(stream)
