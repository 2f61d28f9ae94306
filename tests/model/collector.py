"""Collectors of the model: WAL objects by key, by mark and by listing; Parquet files by listing."""

from __future__ import annotations

from tests.model import several
from tests.model.broker import seal
from tests.model.store import ANY, Delete, Key, Operation, Put
from tests.model.world import Entry, Job, Mark, ObjectName, Steps, World


def collector(world: World) -> Steps[None]:
    first_seen: dict[tuple[int, int], int] = {}
    while True:
        yield from _delete_unreferenced(world)
        yield
        for number, (mark, version) in world.store.scan("staging", 0):
            if world.now - first_seen.setdefault((number, version), world.now) >= world.orphan_steps:
                yield from _resolve_orphan(world, number, mark, version)
        if {"no-list", "key-first"}.isdisjoint(world.without) and (world.finishing or world.chance(0.3)):
            yield from _audit(world)
        yield from _collect_files(world)
        yield


def _is_unreferenced(world: World, number: int) -> bool:
    if "refs-in-commit" in world.without and world.store.find(Key("staging", 0, number)) is not None:
        return False
    return not world.store.scan("refs", number)


def _delete_unreferenced(world: World) -> Steps[None]:
    for number, _ in world.store.scan("objects", 0):
        if _is_unreferenced(world, number):
            if world.chance(0.5):
                yield
            gone = world.delete(ObjectName("wal", number))
            if gone or "key-first" in world.without:
                world.send([Delete(Key("objects", 0, number))])
                yield


def _resolve_orphan(world: World, number: int, mark: Mark, version: int) -> Steps[None]:
    key = Key("staging", 0, number)
    reply = world.send([Put(key, mark, version)])  # taken: the broker's version is gone
    yield
    if reply is None or not reply[0]:
        return
    dropped: list[int] = []
    is_pack = mark.kind == "pack" and "pack-seal" not in world.without
    for stream in mark.streams:
        held = yield from (_holds_pack if is_pack else _holds_append)(world, stream, number)
        if held is None:
            return  # not fenced: the next round tries again
        if not held:
            dropped.append(stream)
        if world.chance(0.3):
            yield
    world.counts["orphans"] += 1
    world.counts["orphaned packs"] += mark.kind == "pack"
    expect = ANY if "stg-del-any" in world.without else int(reply[0])
    world.send([*(Delete(Key("refs", number, stream)) for stream in dropped), Delete(key, expect)])
    yield


def _holds_append(world: World, stream: int, number: int) -> Steps[bool | None]:
    """Is the object in the stream, and will it ever be? None: that could not be found out."""
    if "no-fence" not in world.without:
        watermark, seen = world.store.get("hwm", stream)
        yield
        fence: list[Operation] = (
            [Put(Key("hwm", 0, stream), watermark, seen)]
            if "bump-fence" in world.without
            else seal(world, stream, watermark, seen)
        )
        world.send(fence)
        yield
        if world.store.get("hwm", stream).version == seen:
            return None
    return _is_live(world, stream, number)


def _holds_pack(world: World, stream: int, number: int) -> Steps[bool | None]:
    """The same of a pack. It is only ever aimed at a job that is DONE: one in any other state has moved past
    it. The job's version was read before the pack was staged, so moving it now is the fence."""
    held = False
    if "pack-index-job" in world.without:
        held = _is_live(world, stream, number)
        yield from pause(world)
    job: Job
    job, seen = world.store.get("job", stream)
    yield
    if job.state == "DONE" and "pack-no-fence" not in world.without:
        world.send([Put(Key("job", 0, stream), job, seen)])
        yield
        job, version = world.store.get("job", stream)
        if version == seen:
            return None
    named = job.merged is not None and job.merged.name.number == number
    if named and "pack-job-blind" not in world.without:
        return True
    yield from pause(world)
    return held if "pack-index-job" in world.without else _is_live(world, stream, number)


def pause(world: World) -> Steps[None]:
    for _ in range(world.random.choice((0, 0, 1, 3, 12))):
        yield


def _is_live(world: World, stream: int, number: int) -> bool:
    return number in {entry.name.number for entry in _live(world, stream) if entry.is_wal}


def _live(world: World, stream: int) -> list[Entry]:
    entries = world.live(stream)
    if "gc-stale-live" in world.without:
        entries += [entry for _, (entry, _) in world.store.scan("index", stream)]
    return entries


def _audit(world: World) -> Steps[None]:
    """Lists first, then looks for references."""
    names = [name for name in world.objects if name.kind == "wal"]
    yield
    for name in names:
        if _is_unreferenced(world, name.number):
            if world.chance(0.3):
                yield
            world.delete(name)


def _collect_files(world: World) -> Steps[None]:
    for name in [name for name in world.objects if name.kind in ("parquet", "keys")]:
        used = False
        if "pq-order" in world.without:
            used = _is_indexed(world, name)
            yield
        job: Job = world.store.get("job", name.stream).value
        if job.number < name.job and world.several and not (yield from several.spend_number(world, name)):
            continue
        if "pq-nojob" not in world.without and (
            (job.number < name.job and "several-spared" not in world.without)
            or (job.number == name.job and job.state != "DONE")
        ):
            continue
        if world.chance(0.2):
            yield
        if "pq-order" not in world.without:
            used = _is_indexed(world, name)
        if not used:
            if world.chance(0.2):
                yield
            world.delete(name)


def _is_indexed(world: World, name: ObjectName) -> bool:
    found = world.store.get("cleaned", name.stream).value.round
    if found is not None and found.keys == name:
        return True
    return any(entry.name == name for _, (entry, _) in world.store.scan("index", name.stream))
