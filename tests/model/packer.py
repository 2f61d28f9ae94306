"""Packers of the model: carried entries of several streams become one WAL object.

The job key is to a pack what the high watermark is to an append: it is read before the pack is staged, one
compare-and-set on it decides, and the collector moves it before it judges. Any worker finishes what
is decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.model.broker import references
from tests.model.collector import pause
from tests.model.jobs import Found, sort_entries
from tests.model.store import ANY, Delete, DeleteBetween, Key, Operation, Put, Reply
from tests.model.world import STREAMS, Chunk, Entry, HighWatermark, Job, Mark, ObjectName, Steps, World


@dataclass(slots=True)
class Aim:
    """A stream's part of a pack: the job that is put over the version of one that is DONE."""

    version: int
    inputs: list[Found]
    job: Job
    unsure: bool = False  # a reply was lost at this version
    tries: int = 0


@dataclass(slots=True)
class Pack:
    name: ObjectName
    chunks: dict[int, Chunk]
    staged: int | None = None
    open: dict[int, Aim] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)  # streams that it is not in, and never will be
    undecided: bool = False


def packer(world: World) -> Steps[None]:
    while True:
        aims: dict[int, Aim] = {}
        for stream in world.random.sample(range(STREAMS), world.random.choice((1, 2, 3, 3))):
            aim = yield from _plan(world, stream)
            if aim is not None:
                aims[stream] = aim
        if aims:
            yield from _pack(world, aims)
        yield


def _plan(world: World, stream: int) -> Steps[Aim | None]:
    """The job first, then the view: a run of live carried entries below the head."""
    job: Job
    job, version = world.store.get("job", stream)
    yield
    if job.state != "DONE":
        return None
    watermark: HighWatermark = world.store.get("hwm", stream).value
    start: int = world.store.get("start", stream).value
    entries = world.store.scan("index", stream)
    yield from pause(world)
    if "pack-stale" in world.without:
        job, version = world.store.get("job", stream)
        if job.state != "DONE":
            return None
    top = watermark.end if watermark.head is None else watermark.head.low
    live, _ = sort_entries(world, entries, start, top, "pack-no-cover")
    run: list[Found] = []
    for found in live:
        if found[1].is_carried and (not run or run[-1][0] == found[1].low):
            run.append(found)
        elif run:
            break
    if not run:
        return None
    return Aim(version, run[: world.random.randint(1, 4)], job)


def _pack(world: World, aims: dict[int, Aim]) -> Steps[None]:
    pack = Pack(ObjectName("wal", world.number()), {})
    for stream, aim in aims.items():
        contents = [world.content(stream, entry) or () for _, entry, _ in aim.inputs]
        pack.chunks[stream] = tuple(batch for content in contents for batch in content)
    if "pack-no-stage" not in world.without:
        mark = Mark("pack", tuple(sorted(pack.chunks)))
        staging: list[Operation] = [Put(Key("staging", 0, pack.name.number), mark, ANY)]
        staged = world.send(staging + references(pack.name.number, pack.chunks))
        yield
        if staged is None and "pack-unsure" not in world.without:
            return  # the id is burnt
        pack.staged = None if staged is None else int(staged[0])
    if world.upload(pack.name, pack.chunks):
        for stream, aim in aims.items():
            yield from _aim(world, pack, stream, aim)
    else:
        pack.failed = set(pack.chunks)
    yield
    while pack.open:
        if "pack-no-job" in world.without:
            yield from _swap_without_job(world, pack)
            break
        reply = world.send(_jobs(world, pack))
        yield
        if reply is None:
            for _ in range(world.random.choice((0, 0, 1, 5, 14))):
                yield  # until the request times out
        for place, stream in enumerate(list(pack.open)):
            yield from _conclude(world, pack, stream, reply, place)
    if pack.undecided and "pack-drop" not in world.without:
        return  # references and mark stay: the collector decides
    expect = ANY if pack.staged is None or "pack-stg-any" in world.without else pack.staged
    world.send(
        [
            *(Delete(Key("refs", pack.name.number, stream)) for stream in sorted(pack.failed)),
            Delete(Key("staging", 0, pack.name.number), expect),
        ]
    )
    yield


def _aim(world: World, pack: Pack, stream: int, aim: Aim) -> Steps[None]:
    if "pack-aim-late" in world.without:
        aim.job, aim.version = world.store.get("job", stream)
        yield
    if aim.job.state != "DONE":
        pack.failed.add(stream)
        return
    inputs = tuple(entry for _, entry, _ in aim.inputs)
    high, _, last_version = aim.inputs[-1]
    merged = Entry(
        inputs[0].low,
        high,
        pack.name,
        tuple(range(len(pack.chunks[stream]))),
        tuple(each for entry in inputs for each in entry.remembered),
    )
    aim.job = Job(
        aim.job.number + 1,
        "PACKED",
        inputs=inputs,
        low=merged.low,
        high=high,
        last_version=last_version,
        merged=merged,
    )
    pack.open[stream] = aim


def _jobs(world: World, pack: Pack) -> list[Operation]:
    operations: list[Operation] = [
        Put(Key("job", 0, stream), aim.job, aim.version) for stream, aim in pack.open.items()
    ]
    return operations + (
        references(pack.name.number, pack.chunks) if "pack-no-stage" in world.without else []
    )


def _conclude(world: World, pack: Pack, stream: int, reply: Reply | None, place: int) -> Steps[None]:
    aim = pack.open[stream]
    if reply is None:
        aim.unsure = True
    elif reply[place]:
        world.counts["packs"] += 1
        del pack.open[stream]
        return
    elif not aim.unsure:  # a clear no is final
        if "pack-again" in world.without and aim.tries < 3:
            job, aim.version = world.store.get("job", stream)
            aim.tries += 1
            yield
            if job.state == "DONE":
                aim.job = replace(aim.job, number=job.number + 1)
                return
        pack.failed.add(stream)
        del pack.open[stream]
        return
    job, version = world.store.get("job", stream)
    if job.merged is not None and job.merged.name == pack.name:
        world.counts["packs"] += 1
        del pack.open[stream]
    elif version == aim.version:
        aim.tries += 1
        if aim.tries > world.random.choice((0, 1, 2)):
            _leave(world, pack, stream, "pack-drop")
    else:
        _leave(world, pack, stream, "pack-moved")  # perhaps it was ours, and is finished


def _leave(world: World, pack: Pack, stream: int, rule: str) -> None:
    """What became of this stream's part is unknown. The rules say that nothing is dropped then."""
    del pack.open[stream]
    if rule in world.without:
        pack.failed.add(stream)
    if rule != "pack-moved" or rule not in world.without:
        pack.undecided = True


def _swap_without_job(world: World, pack: Pack) -> Steps[None]:
    puts: list[Operation] = [
        Put(Key("index", stream, aim.job.high), aim.job.merged, aim.job.last_version)
        for stream, aim in pack.open.items()
    ]
    reply = world.send(puts)
    yield
    for place, (stream, aim) in enumerate(pack.open.items()):
        if reply is None:
            pack.undecided = True
        elif reply[place]:
            world.send([DeleteBetween("index", stream, aim.job.low, aim.job.high)])
            yield
        else:
            pack.failed.add(stream)
