"""Compactors of the model: jobs of compaction and retention, by several workers without a lock."""

from __future__ import annotations

from dataclasses import replace

from tests.model import cleaning, several
from tests.model.store import ANY, Delete, DeleteBetween, Key, Operation, Put, Versioned, Violation
from tests.model.world import (
    STREAMS,
    Entry,
    HighWatermark,
    Job,
    ObjectName,
    Record,
    Snapshot,
    Steps,
    World,
    expand,
    fold_entry,
)


def worker(world: World) -> Steps[None]:
    """Begins a job where none is under way, and carries on whatever it finds, one step at a time."""
    ahead: several.Ahead = {}
    while True:
        stream = world.random.randrange(STREAMS)
        job: Job
        job, version = world.store.get("job", stream)
        yield
        if stream in ahead and job.state == "DONE":
            yield from several.begin_second(world, stream, job, version, ahead)
            continue
        if several.applies(world) and job.state == "DONE" and stream not in ahead and world.chance(0.4):
            yield from several.plan_two(world, stream, job, version, ahead)
            continue
        yield from _STEPS[job.state](world, stream, job, version)


def _plan(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    watermark: HighWatermark = world.store.get("hwm", stream).value
    start: int = world.store.get("start", stream).value
    entries = world.store.scan("index", stream)
    yield
    if "stale-plan" in world.without:
        job, version = world.store.get("job", stream)
        if job.state != "DONE":
            return
    top = watermark.end if watermark.head is None else watermark.head.low
    live, junk = sort_entries(world, entries, start, top, "no-cover")
    if junk and "no-sweep" not in world.without and (world.finishing or world.chance(0.3)):
        swept: list[Operation] = [Delete(Key("index", stream, high), found) for high, _, found in junk]
        world.send(swept + _dereference(stream, [entry for _, entry, _ in junk]))
        yield
    if world.finishing:
        return
    begun: Job | None = None
    if world.chance(0.2 if world.cleaning is None else 0.04) and live:
        begun = _retention(world, job, live, start)
    elif live and live[0][1].low < start and not live[0][1].has_detail:
        begun = _compaction(world, job, live[:1], start)  # what was deleted leaves its file
    elif len(live) >= 2:
        begun = _compaction(world, job, live, start)
    if world.cleaning is not None and (begun is None or begun.state == "CREATED"):
        planned = yield from cleaning.plan(world, stream, live, start)
        begun = None
        if planned is not None:
            begun = replace(compaction_of(job, planned[0], start), cleaning=planned[1])
    if begun is not None:
        world.send([Put(Key("job", 0, stream), begun, version)])
        yield


Found = tuple[int, Entry, int]
"""The key, the entry and the version of its key."""


def sort_entries(
    world: World, entries: list[tuple[int, Versioned]], start: int, top: int, rule: str
) -> tuple[list[Found], list[Found]]:
    """The entries a job may take, in order; and those that are covered or below the start. `rule` is the one
    by which covered entries do not count."""
    live: list[Found] = []
    junk: list[Found] = []
    covered_from: int | None = None
    for high, (entry, version) in reversed(entries):
        found = (high, entry, version)
        if high <= start:
            junk.append(found)
        elif covered_from is None or world.low(entry, start) < covered_from or rule in world.without:
            covered_from = entry.low
            if high <= top:
                live.append(found)
        else:
            junk.append(found)
    return live[::-1], junk


def _retention(world: World, job: Job, live: list[Found], start: int) -> Job | None:
    high, entry, _ = live[world.random.randint(0, max(0, len(live) // 2 - 1))]
    target = high if world.chance(0.7) else world.random.randint(entry.low, high)
    if target <= start:
        return None
    covered = max([high for high, _, _ in live if high <= target], default=0)
    return Job(job.number + 1, "RETAIN", target=target, covered=covered)


def _compaction(world: World, job: Job, live: list[Found], start: int) -> Job:
    """Over what counts of the entries: the file of one that reaches below the start begins at the start."""
    first = world.random.randint(0, max(0, len(live) - 2))
    last = world.random.randint(min(first + 1, len(live) - 1), min(len(live) - 1, first + 3))
    return compaction_of(job, live[first : last + 1], start)


def compaction_of(job: Job, inputs: list[Found], start: int) -> Job:
    high, _, version = inputs[-1]
    return Job(
        job.number + 1,
        "CREATED",
        inputs=tuple(entry for _, entry, _ in inputs),
        low=max(inputs[0][1].low, start),
        high=high,
        last_version=version,
    )


def _write_file(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    content: dict[int, Record] = {}
    missing = False
    for entry in job.inputs:
        found = world.content(stream, entry)
        if found is None:
            missing = True
            break
        records = expand(entry, found, stream)
        content |= {offset: record for offset, record in records.items() if offset >= job.low}
        if world.chance(0.3):
            yield
    if missing or world.chance(0.05):
        world.counts["abandoned"] += 1
        yield from _move(world, stream, version, Job(job.number))
        return
    emptied = False
    if world.cleaning is not None:
        content = cleaning.Thinned(content)
    if job.cleaning is not None:
        left = cleaning.filtered(world, job, content)
        if left is None:
            yield from cleaning.end_round(world, stream, job.cleaning.keys)
            yield from _move(world, stream, version, Job(job.number))
            return
        content, emptied = left
    name = ObjectName("parquet", world.number(), stream, job.number)
    written = world.upload(name, content)
    yield
    if written:
        yield from _move(world, stream, version, replace(job, state="WRITTEN", output=name, emptied=emptied))


def _swap(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    if not _skips_snapshot(world, job) and not (yield from _advance_snapshot(world, stream, job.high)):
        return
    if "abandon-written" in world.without and world.chance(0.1):
        yield from _move(world, stream, version, Job(job.number))
        return
    assert job.output is not None
    if "clean-unseen" in world.without:
        yield from cleaning.note(world, stream, job)
    yield from _put_over_last(world, stream, job, version, Entry(job.low, job.high, job.output))


def _skips_snapshot(world: World, job: Job) -> bool:
    if "no-snap" in world.without:
        return True
    return "car-no-snap" in world.without and all(entry.is_carried for entry in job.inputs)


def _put_over_last(world: World, stream: int, job: Job, version: int, entry: Entry) -> Steps[None]:
    """The entry goes onto the key of the last input, expecting its version; once it is seen there, the job
    goes on."""
    any_version, unseen = ("pack-swap-any", "pack-unseen") if job.merged else ("swap-any", "delete-unseen")
    key = Key("index", stream, job.high)
    expect = ANY if any_version in world.without else job.last_version
    world.send([Put(key, entry, expect)])
    yield
    found = world.store.find(key)
    if (found is not None and found.value.name == entry.name) or unseen in world.without:
        yield from _move(world, stream, version, replace(job, state="SWAPPED"))
    elif (found is None or found.version != job.last_version) and (
        world.store.get("job", stream).version == version
    ):
        raise Violation("a job is stuck")


def _swap_merged(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    """A pack: as a compaction that is written, but the merged entry has its detail and its reference."""
    assert job.merged is not None
    if "pack-no-snap" not in world.without and not (yield from _advance_snapshot(world, stream, job.high)):
        return
    if not {"pack-abandon", "pack-abandon-ref"}.isdisjoint(world.without) and world.chance(0.1):
        dropped = [job.merged] if "pack-abandon-ref" in world.without else []
        done: list[Operation] = [Put(Key("job", 0, stream), Job(job.number), version)]
        world.send(done + _dereference(stream, dropped))
        yield
        return
    yield from _put_over_last(world, stream, job, version, job.merged)


def _delete_inputs(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    if not (yield from cleaning.note(world, stream, job)):
        return
    inner: list[Operation] = [DeleteBetween("index", stream, job.low, job.high)]
    if "refs-apart" in world.without:
        seen = [entry for high, (entry, _) in world.store.scan("index", stream) if job.low < high < job.high]
        reply = world.send(inner)
        yield
        if reply is not None:
            reply = world.send(_dereference(stream, [*seen, job.inputs[-1]]))
    else:
        reply = world.send(inner + _dereference(stream, job.inputs))
    yield
    if reply is not None or "done-unseen" in world.without:
        yield from _move(world, stream, version, Job(job.number))


def _raise_start(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    if "ret-no-snap" not in world.without and not (yield from _advance_snapshot(world, stream, job.covered)):
        return
    start, start_version = world.store.get("start", stream)
    yield
    if start < job.target:
        expect = ANY if "ret-start-any" in world.without else start_version
        world.send([Put(Key("start", 0, stream), job.target, expect)])
        yield
        if "ret-delete-first" not in world.without:
            return  # until it is seen raised
    yield from _move(world, stream, version, replace(job, state="RAISED"))


def _delete_expired(world: World, stream: int, job: Job, version: int) -> Steps[None]:
    expired = [(high, entry) for high, (entry, _) in world.store.scan("index", stream) if high <= job.target]
    yield
    deletes: list[Operation] = [Delete(Key("index", stream, high)) for high, _ in expired]
    reply = world.send(deletes + _dereference(stream, [entry for _, entry in expired]))
    yield
    if reply is not None or "done-unseen" in world.without:
        yield from _move(world, stream, version, Job(job.number))


_STEPS = {
    "DONE": _plan,
    "CREATED": _write_file,
    "WRITTEN": _swap,
    "PACKED": _swap_merged,
    "SWAPPED": _delete_inputs,
    "RETAIN": _raise_start,
    "RAISED": _delete_expired,
}


def _move(world: World, stream: int, version: int, job: Job) -> Steps[None]:
    world.send([Put(Key("job", 0, stream), job, version)])
    yield


def _dereference(stream: int, entries: list[Entry] | tuple[Entry, ...]) -> list[Operation]:
    return [Delete(Key("refs", entry.name.number, stream)) for entry in entries if entry.is_wal]


def _advance_snapshot(world: World, stream: int, upto: int) -> Steps[bool]:
    """Moves the producer snapshot to a boundary of entries. True once it is seen there."""
    snapshot: Snapshot
    snapshot, version = world.store.get("snapshot", stream)
    if snapshot.upto >= upto:
        return True
    yield
    entries = world.store.scan("index", stream)
    yield
    known, reached = dict(snapshot.producers), snapshot.upto
    for _, (entry, _) in entries:
        if entry.has_detail and entry.low == reached and entry.high <= upto:
            fold_entry(known, entry)
            reached = entry.high
    if reached >= upto:
        expect = ANY if "snap-any" in world.without else version
        world.send([Put(Key("snapshot", 0, stream), Snapshot(reached, known), expect)])
        yield
    return False
