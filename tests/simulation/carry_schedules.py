"""Schedules for the rules of carrying and packing that chance tests too rarely, on scripted stores."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.simulation.log_schedules import ORPHAN, Actor, Schedule, Stage
from tests.simulation.scripted import Fate

from dray.log.carry import EMBEDDED
from dray.log.jobs import JobState
from dray.log.stream_store import StreamStore
from dray.metadata import keys

VALUES = [b"a", b"b", b"c", b"d"]


class PackingStage(Stage):
    """One domain; packs are made when a schedule says so."""

    def __init__(self) -> None:
        super().__init__()
        carry = replace(EMBEDDED, pack_entries=1, pack_seconds=1e9)
        self.settings = replace(self.settings, carry=carry, pack_look_seconds=1e9, max_object_bytes=1 << 20)

    async def filled(self, actor: Actor) -> int:
        """A stream of three carried entries and a carried head."""
        actor.log.carry(True)
        [stream] = await actor.log.create_streams(1)
        for sequence, value in enumerate(VALUES):
            await actor.append(stream, value, (9, 0, sequence))
        return stream

    async def check_packed(self, stream: int) -> None:
        """All is read, the job is done, and nothing is left over, when every collector has been round."""
        for _ in range(2):
            actor = self.actor()
            assert await actor.log.delete_records(stream, 0) == 0  # this finishes any job
            assert await actor.read(stream, 0) == VALUES
            assert (await StreamStore(actor.store, 1, 1).job(stream)).value.state is JobState.DONE
            await self.collect(actor)
        assert len(self.keys(keys.REFERENCES)) == len(self.keys(keys.OBJECTS)) == len(self.bucket.objects)
        assert self.keys(keys.STAGING) == []


async def pack(actor: Actor) -> None:
    for rounds in actor.log._packing:
        await rounds.run()


async def what_waits_is_overtaken_by_an_object() -> None:
    """A carried write is under way, a batch waits for the next, which is not due yet, and a large one goes as
    an object."""
    stage = PackingStage()
    stage.settings = replace(stage.settings, carry=replace(EMBEDDED, free_writes=1, pace_seconds=0.9))
    broker = stage.actor()
    broker.log.carry(True)
    [stream] = await broker.log.create_streams(1)
    commit = broker.store.hold("write", "/hwm")
    appends = [broker.append(stream, b"first", (1, 0, 0))]
    await commit.reached()
    appends.append(broker.append(stream, b"waits", (1, 0, 1)))
    appends.append(broker.append(stream, bytes(20_000), (1, 0, 2)))
    await asyncio.sleep(0.1)
    commit.release()
    assert [(await each).base_offset for each in appends] == [0, 1, 2]


async def a_pack_that_was_planned_before_another() -> None:
    """Its view is from before the other pack; so must its job be."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    seen = broker.store.hold("scan", f"{keys.number(stream)}/", answered=True)
    packing = asyncio.ensure_future(pack(broker))
    await seen.reached()
    await pack(other)  # it does not carry: it follows the hint
    seen.release()
    await packing
    await stage.check_packed(stream)


async def a_late_pack_before_its_orphan_is_found() -> None:
    """The job's write lands after the packer gave up; a collector has looked for unreferenced objects."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    late = broker.store.trap(Fate.LATE, "write", "/job")
    broker.store.trap(Fate.LOSE, "write", "/job")
    await pack(broker)
    await other.log.collector.run()
    await asyncio.sleep(1)
    await other.log.collector.run()
    late.land()
    await stage.check_packed(stream)


async def a_late_pack_of_an_orphan() -> None:
    """The collector has judged; the job's write lands after that."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    late = broker.store.trap(Fate.LATE, "write", "/job")
    broker.store.trap(Fate.LOSE, "write", "/job")
    await pack(broker)
    await stage.collect(other)
    late.land()
    await stage.check_packed(stream)


async def a_pack_that_is_finished_while_it_is_judged() -> None:
    """The packer is so slow that a collector takes its mark; it goes on while the collector looks."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    decides = broker.store.hold("write", "/job")
    packing = asyncio.ensure_future(pack(broker))
    await decides.reached()
    await other.log.collector.run()
    await asyncio.sleep(ORPHAN + 1)
    looks = other.store.hold("get", "/job")
    collecting = asyncio.ensure_future(other.log.collector.run())
    await looks.reached()
    decides.release()
    await packing
    looks.release()
    await collecting
    await stage.check_packed(stream)


async def a_pack_is_staged_without_a_reply() -> None:
    """Nothing may be uploaded under an id whose references may not be there."""
    stage = PackingStage()
    broker = stage.actor()
    stream = await stage.filled(broker)
    broker.store.trap(Fate.LOSE, "write", keys.STAGING)
    try:
        await pack(broker)
    except Exception:
        assert stage.bucket.objects == {}
    await stage.check_packed(stream)
    assert stage.bucket.objects == {}


SCHEDULES: dict[Schedule, list[str]] = {
    what_waits_is_overtaken_by_an_object: [
        "waiting batches stay in their lane",
        "objects do not wait for what is carried",
    ],
    a_pack_that_was_planned_before_another: ["pack over a later job", "a pack aims after staging"],
    a_late_pack_before_its_orphan_is_found: ["settle an undecided pack"],
    a_late_pack_of_an_orphan: ["no fence for a pack", "seal for a pack"],
    a_pack_that_is_finished_while_it_is_judged: ["ask the index before the job", "seal for a pack"],
    a_pack_is_staged_without_a_reply: ["pack though staging is unclear"],
}
