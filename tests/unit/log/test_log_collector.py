"""The collector: what goes, when, and what never."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes, read, start_append, values_in

from dray.log import Collection, Log, LogObserver
from dray.log.types import LogUnavailable
from dray.log.wal import object_path
from dray.metadata import keys
from dray.metadata.contract import Unavailable

HOUR = 3600.0
GRACE = 600.0


@pytest.fixture
async def log(world: World) -> Log:
    """Nothing runs in it but what the test runs."""
    return world.log(orphan_ttl=HOUR, collect_grace=GRACE)


async def expired_object(log: Log, world: World) -> str:
    """An object that nobody needs any more, beside one that is live; the path of the former."""
    [stream] = await log.create_streams(1)
    before = set(world.bucket.objects)
    await append(log, stream, batch_bytes([b"a"]))
    [path] = set(world.bucket.objects) - before
    await append(log, stream, batch_bytes([b"b"]))
    await asyncio.sleep(1)
    await log.delete_records(stream, 1)
    return path


async def orphan(log: Log, world: World) -> int:
    """An object whose broker died between the upload and the commit."""
    [stream] = await log.create_streams(1)
    world.store.hold("get", keys.STAGING)  # for ever
    start_append(log, stream, batch_bytes([b"a"])).cancel()
    await asyncio.sleep(1)
    assert len(world.bucket.objects) == 1
    return stream


async def test_an_object_without_references_goes_after_its_grace(log: Log, world: World) -> None:
    path = await expired_object(log, world)
    collector = world.log(orphan_ttl=HOUR, collect_grace=GRACE).collector
    seen = await collector.run()
    assert (seen.objects, seen.pending, seen.deleted) == (2, 1, 0)
    await asyncio.sleep(GRACE - 1)
    assert (await collector.run()).deleted == 0
    assert path in world.bucket.objects
    await asyncio.sleep(1)
    assert (await collector.run()).deleted == 1
    assert path not in world.bucket.objects
    assert len(world.bucket.objects) == len(world.keys(keys.OBJECTS)) == 1


async def test_grace_is_counted_by_each_collector_for_itself(log: Log, world: World) -> None:
    await expired_object(log, world)
    await log.collector.run()
    await asyncio.sleep(GRACE)
    assert (await world.log(collect_grace=GRACE).collector.run()).deleted == 0, "it has just seen it"
    assert (await log.collector.run()).deleted == 1


async def test_an_object_key_stays_until_its_object_is_known_to_be_gone(log: Log, world: World) -> None:
    await expired_object(log, world)
    log = world.log(collect_grace=0.0)
    world.objects.trap(Fate.REFUSE, "delete")
    assert (await log.collector.run(audit=False)).deleted == 0
    assert len(world.keys(keys.OBJECTS)) == 2
    world.objects.trap(Fate.LOSE_REPLY, "delete")
    assert (await log.collector.run(audit=False)).deleted == 0
    assert len(world.keys(keys.OBJECTS)) == 2
    assert (await log.collector.run(audit=False)).deleted == 1
    assert len(world.keys(keys.OBJECTS)) == 1


async def test_an_orphan_waits_its_time_at_one_version(log: Log, world: World) -> None:
    await orphan(log, world)
    collector = world.log(orphan_ttl=HOUR, collect_grace=0.0).collector
    assert (await collector.run(audit=False)).staged == 1
    await asyncio.sleep(HOUR - 1)
    assert (await collector.run(audit=False)).orphans == 0
    await asyncio.sleep(1)
    seen = await collector.run(audit=False)
    assert (seen.orphans, seen.deleted) == (1, 1)
    assert world.bucket.objects == {}
    assert world.keys("/dray/v1/wal/") == []


async def test_a_mark_that_moves_is_no_orphan(log: Log, world: World) -> None:
    """A late copy of the staging write gives it a new version: the clock starts again."""
    [stream] = await log.create_streams(1)
    copy = world.store.trap(Fate.COPY, "write", keys.STAGING)
    world.store.hold("get", keys.STAGING)
    start_append(log, stream, batch_bytes([b"a"])).cancel()
    await asyncio.sleep(1)
    collector = world.log(orphan_ttl=HOUR).collector
    await collector.run()
    await asyncio.sleep(HOUR)
    copy.land()
    assert (await collector.run()).orphans == 0
    await asyncio.sleep(HOUR)
    assert (await collector.run()).orphans == 1


async def test_an_orphan_that_is_in_the_log_is_kept(world: World) -> None:
    """Its broker died after the commit, before it settled."""
    log = world.log(settle_seconds=100 * HOUR)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    other = world.log(orphan_ttl=HOUR, collect_grace=0.0)
    assert len(world.keys(keys.STAGING)) == 1
    await other.collector.run()
    await asyncio.sleep(HOUR)
    assert (await other.collector.run()).orphans == 1
    assert world.keys(keys.STAGING) == []
    assert len(world.keys(keys.REFERENCES)) == 1
    assert values_in(await read(other, stream, 0)) == [(0, b"a")]


async def test_of_an_object_for_two_streams_one_can_be_live(log: Log, world: World) -> None:
    one, other = (await log.create_streams(1 + DOMAINS))[::DOMAINS]  # of one domain
    await append(log, other, batch_bytes([b"x"], producer=(1, 0, 0)))
    appends = [
        start_append(log, one, batch_bytes([b"a"])),
        start_append(log, other, batch_bytes([b"x"], producer=(1, 0, 0))),  # a duplicate: not in the entry
    ]
    world.store.trap(Fate.LOSE_REPLY, "write", "/hwm")
    await asyncio.gather(*appends)
    await asyncio.sleep(1)
    references = world.keys(keys.REFERENCES)
    assert sorted(int(key.split("/")[6]) for key in references) == sorted([one, other])
    assert len({key.split("/")[5] for key in references}) == 2, "one each: the duplicate holds nothing"
    assert values_in(await read(world.log(), one, 0)) == [(0, b"a")]


async def test_a_stream_is_sealed_before_its_orphan_is_judged(log: Log, world: World) -> None:
    stream = await orphan(log, world)
    broker = world.log(orphan_ttl=HOUR)
    await append(broker, stream, batch_bytes([b"b"]))
    before = await broker._streams.high_watermark(stream)
    await broker.collector.run()
    await asyncio.sleep(HOUR)
    assert (await broker.collector.run()).orphans == 1
    after = await broker._streams.high_watermark(stream)
    assert before is not None
    assert after is not None
    assert after.version > before.version
    assert (after.value.end, after.value.head) == (1, None)
    assert len(world.keys(keys.offset_index(stream))) == 1, "and the head is filed"
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"b")]


async def test_an_orphan_is_left_when_the_store_fails_and_found_again(log: Log, world: World) -> None:
    await orphan(log, world)
    broker = world.log(orphan_ttl=HOUR, collect_grace=0.0)
    await broker.collector.run()
    for fate, part in ((Fate.REFUSE, keys.STAGING), (Fate.LOSE_REPLY, "/hwm"), (Fate.LOSE, keys.REFERENCES)):
        await asyncio.sleep(HOUR)
        world.store.trap(fate, "write", part)
        assert (await broker.collector.run(audit=False)).orphans == 0
        await broker.collector.run(audit=False)  # it has a new version by now, perhaps
        assert len(world.bucket.objects) == 1
    await asyncio.sleep(HOUR)
    await broker.collector.run(audit=False)
    assert world.bucket.objects == {}


async def test_two_collectors_do_each_other_no_harm(log: Log, world: World) -> None:
    await orphan(log, world)
    await expired_object(world.log(), world)
    collectors = [world.log(orphan_ttl=HOUR, collect_grace=0.0).collector for _ in range(2)]
    for _ in range(3):
        await asyncio.gather(*[collector.run() for collector in collectors])
        await asyncio.sleep(HOUR)
    assert len(world.bucket.objects) == 1
    assert len(world.keys(keys.REFERENCES)) == 1
    assert world.keys(keys.STAGING) == []


# --- the audit


async def test_the_audit_finds_what_no_key_knows(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    now_ms = world.runtime.wall_ms()
    lost = object_path("local", 0, now_ms, world.runtime.uuid())
    world.bucket.put(lost, b"an upload that arrived when everything else was gone", now_ms)
    young = await log.collector.run()
    assert (young.audited, young.deleted) == (2, 0)
    await asyncio.sleep(HOUR)
    assert (await log.collector.run(audit=False)).deleted == 0
    seen = await log.collector.run()
    assert (seen.unknown, seen.pending, seen.deleted) == (1, 1, 0), "it is only nominated"
    await asyncio.sleep(GRACE - 1)
    assert (await log.collector.run()).deleted == 0
    await asyncio.sleep(1)
    assert (await log.collector.run(audit=False)).deleted == 1
    assert lost not in world.bucket.objects
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"a")]


async def test_the_audit_leaves_alone_what_is_not_ours(log: Log, world: World) -> None:
    foreign = [
        "wal/v1/zone=local/readme.txt",
        object_path("local", DOMAINS + 3, 0, world.runtime.uuid()),  # of a domain that we do not have
        "tables/somebody/else.parquet",
    ]
    for path in foreign:
        world.bucket.put(path, b"x", 0)
    await asyncio.sleep(2 * HOUR)
    await log.collector.run()
    await asyncio.sleep(GRACE)
    assert (await log.collector.run()).audited == 2
    assert sorted(world.bucket.objects) == sorted(foreign)


async def test_the_audit_asks_behind_a_barrier(log: Log, world: World) -> None:
    """An old object, and a reader from before it was staged."""
    [stream] = await log.create_streams(1)
    broker = world.log(orphan_ttl=HOUR, collect_grace=0.0)
    world.store.fall_behind(stream % DOMAINS)
    await append(log, stream, batch_bytes([b"a"]))
    await asyncio.sleep(HOUR + 1)
    await broker.collector.run()
    assert len(world.bucket.objects) == 1


async def test_the_audit_pages_through_the_bucket(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.log.life.collector._PAGE", 3)
    [stream] = await log.create_streams(1)
    for number in range(10):
        await append(log, stream, batch_bytes([b"%d" % number]))
        world.bucket.put(object_path("local", number % 2, 0, world.runtime.uuid()), b"lost", 0)
    await asyncio.sleep(HOUR)
    seen: Collection = await log.collector.run()
    assert (seen.objects, seen.audited, seen.deleted, seen.unknown) == (10, 20, 0, 10)
    await asyncio.sleep(GRACE)
    assert (await log.collector.run(audit=False)).deleted == 10
    assert len(values_in(await read(log, stream, 0))) == 10


# --- running by itself


async def test_a_broker_collects_in_the_background_and_says_what(world: World) -> None:
    heard: list[tuple[int, int, int]] = []

    class Observer(LogObserver):
        def collected(self, seen: Collection) -> None:
            heard.append((seen.orphans, seen.pending, seen.deleted))

    log = world.log(Observer(), collect_seconds=60.0, collect_grace=90.0, orphan_ttl=HOUR)
    await log.start()
    await expired_object(log, world)
    world.store.trap(Fate.REFUSE, "scan", keys.STAGING)  # one round fails, and the next comes
    await asyncio.sleep(60 * 4 + 1)
    await log.stop()
    assert heard == [(0, 1, 0), (0, 1, 0), (0, 0, 1)]
    assert len(world.bucket.objects) == 1


async def test_a_failing_store_is_told_to_whoever_runs_a_round(log: Log, world: World) -> None:
    world.store.trap(Fate.REFUSE, "scan")
    with pytest.raises(Unavailable):
        await log.collector.run()


async def test_an_append_whose_mark_was_taken_is_refused_retriably(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    broker = world.log()
    held = world.store.hold("get", keys.STAGING)
    appending = start_append(broker, stream, batch_bytes([b"a"]))
    await held.reached()
    await log.collector.run()
    await asyncio.sleep(HOUR)
    assert (await log.collector.run()).orphans == 1
    held.release()
    with pytest.raises(LogUnavailable):
        await appending
    assert (await append(broker, stream, batch_bytes([b"a"]))).base_offset == 0
