"""Marks staged before their objects: when, for what, and what becomes of one that is not used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.simulation.scripted import Fate, Trap
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes, read, start_append, values_in

from dray.log import Log
from dray.log.append.stage_ahead import SOON_SECONDS, AheadPolicy, StagedMark
from dray.log.types import LogUnavailable
from dray.log.wal import WalObject, decode
from dray.log.wal_keys import Staging
from dray.metadata import keys
from dray.metadata.contract import Put

DAY_MS = 24 * 3_600_000


def watched(world: World, patch: pytest.MonkeyPatch) -> list[str]:
    """The calls of both stores from now on, in their order, as far as appends make them."""
    calls: list[str] = []

    def springing(kept: object, kind: str, names: Sequence[str]) -> Trap:
        if kind == "put":
            calls.append("upload")
        elif kind == "write":
            staged = any(name.startswith(keys.OBJECTS) for name in names)
            calls.append("stage" if staged else "commit" if names[0].endswith("/hwm") else "settle")
        return kept(kind, names)  # type: ignore[operator, no-any-return]

    for traps in (world.store, world.objects):
        kept = traps.springing
        patch.setattr(traps, "springing", lambda kind, names, kept=kept: springing(kept, kind, names))
    return calls


def stored_objects(world: World) -> list[WalObject]:
    return [decode(stored.data, path) for path, stored in world.bucket.objects.items()]


def check_references(world: World) -> None:
    """Every object has the references of exactly the streams in it."""
    references = set(world.keys(keys.REFERENCES))
    expected = {
        keys.reference(found.header.wal_id, chunk.entry.stream_id)
        for found in stored_objects(world)
        for chunk in found.chunks
    }
    assert references == expected


async def test_while_a_producer_waits_the_next_mark_is_staged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log(ahead_bytes=0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"first"]))
    calls = watched(world, monkeypatch)
    await append(log, stream, batch_bytes([b"second"]))
    assert calls.count("stage") == 2, "its own, and the next one's"
    await asyncio.sleep(0.01)
    calls.clear()
    await append(log, stream, batch_bytes([b"third"]))
    assert calls[0] == "upload", "nothing is written before"
    assert calls.count("stage") == 1, "the next one's"
    found = values_in(await read(world.log(), stream, 0))
    assert found == [(0, b"first"), (1, b"second"), (2, b"third")]
    await log.stop()
    check_references(world)
    assert world.keys(keys.STAGING) == []


async def test_a_mark_that_is_not_used_is_dropped(world: World) -> None:
    log = world.log(ahead_bytes=0)
    [stream] = await log.create_streams(1)
    for _ in range(2):
        await append(log, stream, batch_bytes([b"x"]))
    await asyncio.sleep(SOON_SECONDS / 2)
    assert len(world.keys(keys.STAGING)) == 1
    assert len(world.keys(keys.REFERENCES)) == 3
    await asyncio.sleep(SOON_SECONDS + 1)
    assert world.keys(keys.STAGING) == []
    check_references(world)
    await append(log, stream, batch_bytes([b"later"]))
    assert values_in(await read(world.log(), stream, 2)) == [(2, b"later")]
    await log.stop()


async def test_an_object_of_other_streams_has_its_own_mark(world: World) -> None:
    log = world.log(ahead_bytes=0)
    [stream, _, other, _] = await log.create_streams(2 * DOMAINS)
    for _ in range(2):
        await append(log, stream, batch_bytes([b"x"]))
    await asyncio.sleep(0.01)
    await append(log, other, batch_bytes([b"elsewhere"]))
    await asyncio.sleep(0.01)
    await asyncio.gather(*[start_append(log, each, batch_bytes([b"both"])) for each in (stream, other)])
    await log.stop()
    check_references(world)
    assert world.keys(keys.STAGING) == []


async def test_a_mark_whose_reply_was_lost_is_burnt(world: World) -> None:
    log = world.log(ahead_bytes=0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"first"]))
    world.store.script(Fate.PASS, Fate.LOSE_REPLY, part=keys.OBJECTS)
    await append(log, stream, batch_bytes([b"second"]))
    await asyncio.sleep(0.01)
    assert world.store.all_sprung()
    burnt = set(world.keys(keys.OBJECTS)) - {keys.wal_object(each) for each in uploaded(world)}
    assert len(burnt) == 1
    await append(log, stream, batch_bytes([b"third"]))
    await asyncio.sleep(0.01)
    assert burnt.isdisjoint({keys.wal_object(each) for each in uploaded(world)})
    await log.stop()


def uploaded(world: World) -> set[UUID]:
    return {found.header.wal_id for found in stored_objects(world)}


async def test_stopping_drops_a_mark_that_is_being_staged(world: World) -> None:
    log = world.log(ahead_bytes=0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"first"]))
    world.store.trap(Fate.PASS, "write", keys.OBJECTS)
    ahead = world.store.trap(Fate.HOLD_AFTER, "write", keys.OBJECTS)
    await append(log, stream, batch_bytes([b"second"]))
    await ahead.reached()
    stopping = asyncio.ensure_future(log.stop())
    await asyncio.sleep(1)
    assert not stopping.done()
    ahead.release()
    await stopping
    check_references(world)
    assert world.keys(keys.STAGING) == []


async def test_an_object_whose_mark_was_taken_by_a_collector_is_not_committed(world: World) -> None:
    """The recheck holds for marks that were staged ahead too: such a mark is older than others."""
    log = world.log(ahead_bytes=0, retry_limit=1)
    [stream] = await log.create_streams(1)
    for _ in range(2):
        await append(log, stream, batch_bytes([b"x"]))
    await asyncio.sleep(SOON_SECONDS / 2)  # until what is done is settled
    for mark in world.keys(keys.STAGING):
        record = await world.store.get(stream % DOMAINS, mark)
        assert record is not None
        await world.store.write(stream % DOMAINS, [Put(mark, record.value, record.version)])
    waiting = start_append(log, stream, batch_bytes([b"fenced"]))
    with pytest.raises(LogUnavailable):
        await waiting
    assert (await log.bounds(stream)).end == 2
    await log.stop()


async def test_small_objects_and_slow_producers_stage_nothing_ahead(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    for _ in range(3):
        await append(log, stream, batch_bytes([b"small"]))
    assert len(world.keys(keys.REFERENCES)) == 3
    for _ in range(3):
        await append(log, stream, batch_bytes([bytes(20_000)]))
        await asyncio.sleep(2 * SOON_SECONDS)
    assert len(world.keys(keys.REFERENCES)) == 6


def test_another_is_expected_after_two_of_one_stream_in_a_row() -> None:
    policy = AheadPolicy(100)
    assert not policy.expects_another(1.0, [7], 100)
    assert policy.expects_another(1.2, [7], 100)
    assert not policy.expects_another(1.3, [7], 99), "too small"
    assert not policy.expects_another(1.3, [8], 100), "another stream"
    assert policy.expects_another(1.3, [8], 100)
    assert not policy.expects_another(1.3, [7, 8], 100)
    assert not policy.expects_another(1.3, [7, 8], 100), "several streams: bulk"
    assert not policy.expects_another(2.0, [8], 100)
    assert not policy.expects_another(2.0 + 1.1 * SOON_SECONDS, [8], 100), "too late"


def test_a_mark_serves_its_stream_on_its_day() -> None:
    mark = StagedMark(UUID(int=1), Staging("path", (7,)), 5 * DAY_MS, 3)
    assert mark.serves([7], 5 * DAY_MS + 10)
    assert not mark.serves([8], 5 * DAY_MS + 10)
    assert not mark.serves([7, 8], 5 * DAY_MS + 10)
    assert not mark.serves([7], 6 * DAY_MS), "its path has another date"
