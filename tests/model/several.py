"""Several files of one stream at once, in the model: the second is written before its job begins."""

from __future__ import annotations

from dataclasses import replace

from tests.model import jobs
from tests.model.store import Key, Put
from tests.model.world import HighWatermark, Job, ObjectName, Record, Steps, World, expand

Ahead = dict[int, Job]
"""Of one compactor, by stream: the job to come, with the file that is there for it."""


def applies(world: World) -> bool:
    """What is compacted by key is compacted a file at a time."""
    return world.several and world.cleaning is None


def plan_two(world: World, stream: int, job: Job, version: int, ahead: Ahead) -> Steps[None]:
    """Two jobs from one view: the first begins, and the file of the second is written under its number."""
    watermark: HighWatermark = world.store.get("hwm", stream).value
    start: int = world.store.get("start", stream).value
    entries = world.store.scan("index", stream)
    yield
    top = watermark.end if watermark.head is None else watermark.head.low
    live, _ = jobs.sort_entries(world, entries, start, top, "no-cover")
    if world.finishing or len(live) < 3:
        return
    cut = world.random.randint(1, len(live) - 2)
    first = jobs.compaction_of(job, live[:cut], start)
    second = jobs.compaction_of(first, live[cut : cut + 3], start)
    world.send([Put(Key("job", 0, stream), first, version)])
    yield
    if world.store.get("job", stream).value != first and "several-other" not in world.without:
        return
    content: dict[int, Record] = {}
    for entry in second.inputs:
        found = world.content(stream, entry)
        if found is None:
            return
        records = expand(entry, found, stream)
        content |= {offset: record for offset, record in records.items() if offset >= second.low}
        if world.chance(0.3):
            yield
    name = ObjectName("parquet", world.number(), stream, second.number)
    if world.upload(name, content):
        ahead[stream] = replace(second, output=name)
    yield


def begin_second(world: World, stream: int, job: Job, version: int, ahead: Ahead) -> Steps[None]:
    """Only if no other job came between."""
    second = ahead.pop(stream)
    if job.number + 1 != second.number and "several-number" not in world.without:
        world.counts["files ahead of no use"] += 1
        return
    begun = replace(second, number=job.number + 1, output=None)
    world.send([Put(Key("job", 0, stream), begun, version)])
    yield
    found, seen = world.store.get("job", stream)
    if found == begun:
        world.counts["files ahead"] += 1
        world.send([Put(Key("job", 0, stream), replace(second, number=begun.number, state="WRITTEN"), seen)])
        yield


def spend_number(world: World, name: ObjectName) -> Steps[bool]:
    """The collector, of a file of a job to come: true once no job can have its number."""
    job: Job
    job, version = world.store.get("job", name.stream)
    if "several-spared" in world.without:
        return True
    spends = "several-spent" not in world.without and job.state == "DONE"
    if spends and (world.finishing or world.chance(0.1)):
        yield
        world.send([Put(Key("job", 0, name.stream), replace(job, number=name.job), version)])
        yield
    return False
