"""Who allows a deletion, when it stops by itself, and what is said of it."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.services import room_settings
from tests.simulation.scripted import Fate
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes, read, values_in

from dray.log import Collection, Log, LogObserver
from dray.log.life.deletions import HELD, RELEASED, Brake
from dray.log.wal import object_path, parse_object_path
from dray.metadata import keys

HOUR = 3600.0
GRACE = 600.0


def put_unknown(world: World, number: int) -> set[str]:
    """Objects as WAL writers make them, of which the metadata knows nothing."""
    paths = {object_path("local", place % DOMAINS, 0, world.runtime.uuid()) for place in range(number)}
    for path in paths:
        world.bucket.put(path, b"unknown", 0)
    return paths


async def garbage(log: Log) -> int:
    """An object that is known, and that nothing needs any more."""
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    await asyncio.sleep(1)
    await log.delete_records(stream, 1)
    return stream


# --- whose bucket it is


async def test_without_permission_nothing_goes(world: World) -> None:
    """Neither what is known to be garbage, nor what is unknown, nor a mark without a writer."""
    log = world.log()
    await garbage(log)
    put_unknown(world, 2)
    before, keys_before = set(world.bucket.objects), world.keys("/dray/v1/wal/")
    held: list[str | None] = ["it is another's"]

    async def may_delete() -> str | None:
        return held[0]

    heard: list[Collection] = []

    class Observer(LogObserver):
        def collected(self, seen: Collection) -> None:
            heard.append(seen)

    world.may_delete = may_delete
    collector = world.log(Observer(), orphan_ttl=0.0, collect_grace=0.0).collector
    with capture_logs() as logs:
        seen = await collector.run()
    assert (seen.held, seen.deleted) == ("it is another's", 0)
    assert heard == [seen]
    assert [(line["event"], line["reason"]) for line in logs] == [(HELD, "it is another's")]
    assert (set(world.bucket.objects), world.keys("/dray/v1/wal/")) == (before, keys_before)
    held[0] = None
    assert (await collector.run()).deleted == 3
    assert world.bucket.objects == {}


async def test_a_log_that_was_given_no_guard_deletes_nothing(world: World) -> None:
    await garbage(world.log())
    log = Log(world.store, world.objects, world.runtime, DOMAINS, room_settings.log(collect_grace=0.0))
    assert (await log.collector.run()).held is not None
    assert len(world.bucket.objects) == 1


# --- nominated, and known after all


async def test_the_audit_leaves_known_garbage_to_its_grace(world: World) -> None:
    """Old enough for an orphan, and given up just now: a backup that names it may be under way."""
    log = world.log(collect_grace=GRACE, orphan_ttl=HOUR)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    await asyncio.sleep(2 * HOUR)
    await log.delete_records(stream, 1)
    for _ in range(3):
        seen = await log.collector.run(audit=True)
        assert (seen.deleted, seen.pending, seen.unknown) == (0, 1, 0)
    await asyncio.sleep(GRACE)
    assert (await log.collector.run()).deleted == 1


async def test_what_turns_out_to_be_known_is_not_deleted(world: World) -> None:
    """A late copy of the staging write comes while its object waits."""
    log = world.log(collect_grace=GRACE, orphan_ttl=HOUR)
    [path] = put_unknown(world, 1)
    parsed = parse_object_path(path)
    assert parsed is not None
    assert (await log.collector.run()).unknown == 1
    from dray.log.wal_keys import Staging, stage

    await world.store.write(parsed.domain, stage(parsed.wal_id, Staging(path, (parsed.domain,))))
    await asyncio.sleep(GRACE)
    seen = await log.collector.run(audit=False)
    assert (seen.deleted, seen.unknown) == (0, 0)
    assert path in world.bucket.objects


async def test_what_is_nominated_is_asked_for_behind_a_barrier(world: World) -> None:
    log = world.log(collect_grace=0.0, orphan_ttl=HOUR)
    [path] = put_unknown(world, 1)
    parsed = parse_object_path(path)
    assert parsed is not None
    world.store.trap(Fate.REFUSE, "barrier")
    with pytest.raises(Exception, match="refuse"):
        await log.collector.run()
    assert path in world.bucket.objects


async def test_what_was_deleted_by_another_is_nominated_no_more(world: World) -> None:
    log = world.log(collect_grace=GRACE, orphan_ttl=HOUR)
    [path] = put_unknown(world, 1)
    assert (await log.collector.run()).unknown == 1
    world.bucket.delete(path)
    assert (await log.collector.run()).unknown == 0


async def test_the_memory_for_nominations_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.log.life.collector._MOST_NOMINATED", 3)
    log = world.log(collect_grace=GRACE, orphan_ttl=HOUR)
    put_unknown(world, 8)
    for left in (5, 2, 0):
        assert (await log.collector.run()).unknown <= 3
        await asyncio.sleep(GRACE)
        await log.collector.run(audit=False)
        assert len(world.bucket.objects) == left


# --- the brake


def test_a_brake_knows_shares_and_few() -> None:
    brake = Brake(0.5, 10)
    assert not brake.stops(10, 10), "so few are never too many"
    assert brake.stops(11, 11)
    assert brake.stops(11, 21)
    assert not brake.stops(11, 22)
    assert not RELEASED.stops(1000, 1000)


async def test_metadata_from_an_earlier_moment_deletes_nothing_of_the_later(world: World) -> None:
    """Restored from a backup: most of what lies there was written after it."""
    log = world.log()
    streams = await log.create_streams(2)
    await append(log, streams[0], batch_bytes([b"before"]))
    await asyncio.sleep(1)
    earlier = World(runtime=world.runtime, bucket=world.bucket)
    for domain in range(DOMAINS):
        source = world.state.domain(domain, 0.0)
        copy = earlier.state.domain(domain, 0.0)
        copy.entries.update(source.entries)
        copy.keys.extend(source.keys)
    for number in range(20):
        await append(log, streams[number % 2], batch_bytes([b"%d" % number]))
    await asyncio.sleep(2 * HOUR)
    before = set(world.bucket.objects)
    restored = earlier.log(orphan_ttl=HOUR, collect_grace=GRACE)
    for _ in range(3):
        with capture_logs() as logs:
            seen = await restored.collector.run()
        assert seen.braked is not None
        assert [line["reason"] for line in logs] == [seen.braked]
        assert "--release-brake" in seen.braked
        await asyncio.sleep(2 * GRACE)
    assert (await restored.collector.run(audit=False)).braked == seen.braked
    assert set(world.bucket.objects) == before
    values = [values_in(await read(world.log(), stream, 0)) for stream in streams]
    assert sum(map(len, values)) == 21, "and once the newer metadata is back, all is there"
    confirmed = earlier.log(orphan_ttl=0.0, collect_grace=0.0, brake=RELEASED)
    assert (await confirmed.collector.run()).deleted == 20


async def test_known_garbage_is_not_braked(world: World) -> None:
    """All of a bucket, after its one topic was deleted: the metadata knows every object of it."""
    log = world.log(collect_grace=0.0, orphan_ttl=0.0)
    [stream] = await log.create_streams(1)
    for _ in range(20):
        await append(log, stream, batch_bytes([b"a"]))
    await asyncio.sleep(1)
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    seen = await log.collector.run()
    assert (seen.deleted, seen.braked) == (20, None)
    assert world.bucket.objects == {}


async def test_a_brake_is_off_again_when_the_next_audit_finds_less(world: World) -> None:
    log = world.log(collect_grace=0.0, orphan_ttl=0.0)
    unknown = sorted(put_unknown(world, 12))
    assert (await log.collector.run()).braked is not None
    for path in unknown[:6]:
        world.bucket.delete(path)
    seen = await log.collector.run()
    assert (seen.braked, seen.deleted) == (None, 6)


# --- what is said


async def test_a_round_that_deletes_says_so_in_one_line(world: World) -> None:
    log = world.log(collect_grace=0.0, orphan_ttl=0.0)
    await garbage(log)
    put_unknown(world, 5)
    paths = set(world.bucket.objects)
    with capture_logs() as logs:
        await log.collector.run()
        await log.collector.run()
    [line] = [line for line in logs if line["log_level"] == "info"]
    assert (line["event"], line["number"]) == ("WAL objects deleted", 6)
    assert len(line["examples"]) == 3
    assert {line["path"] for line in logs if line["log_level"] == "debug"} == paths


async def test_a_round_that_is_cut_short_says_what_it_deleted(world: World) -> None:
    log = world.log(collect_grace=0.0, orphan_ttl=0.0)
    stream = await garbage(log)
    world.store.trap(Fate.REFUSE, "write", keys.OBJECTS)
    with capture_logs() as logs, pytest.raises(Exception, match="refuse"):
        await log.collector.run()
    assert [line["number"] for line in logs if line["log_level"] == "info"] == [1]
    assert world.bucket.objects == {}, stream


async def test_a_dry_run_says_nothing_of_deletions(world: World) -> None:
    log = world.log(collect_grace=0.0, orphan_ttl=0.0)
    await garbage(log)
    put_unknown(world, 1)
    with capture_logs() as logs:
        for _ in range(2):
            assert (await log.collector.run(dry_run=True)).deleted == 2
    assert logs == []
    assert len(world.bucket.objects) == 2


async def test_deleted_records_leave_a_line_and_a_number(world: World) -> None:
    heard: list[tuple[str, int]] = []

    class Observer(LogObserver):
        def records_deleted(self, why: str, records: int) -> None:
            heard.append((why, records))

    log = world.log(Observer())
    [stream] = await log.create_streams(1)
    for _ in range(3):
        await append(log, stream, batch_bytes([b"a", b"b"]))
    with capture_logs() as logs:
        await log.delete_records(stream, 5)
        await log.delete_records(stream, 2)
    [line] = [line for line in logs if line["event"] == "records deleted"]
    assert (line["log_level"], line["stream"], line["first"], line["below"]) == ("info", stream, 0, 5)
    assert heard == [("delete_records", 5)]


async def test_what_waits_is_a_number_of_now(world: World) -> None:
    """Marks that stand there, not those of writers at work, and not those resolved."""
    log = world.log(settle_seconds=100 * HOUR)  # it never settles: its mark stands
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    collector = world.log(orphan_ttl=HOUR, collect_grace=0.0).collector
    assert (await collector.run()).standing == 0, "it may be at work"
    for _ in range(2):
        await asyncio.sleep(60)
        assert (await collector.run()).standing == 1
    await asyncio.sleep(HOUR)
    seen = await collector.run()
    assert (seen.standing, seen.orphans) == (0, 1)
    assert (await collector.run()).orphans == 0
