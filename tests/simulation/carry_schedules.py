"""Schedules for the rules of carrying and packing that chance tests too rarely, on scripted stores."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.services.room_settings import EMBEDDED
from tests.simulation.log_schedules import ORPHAN, Actor, Schedule, Stage
from tests.simulation.scripted import Fate

from dray.log.jobs.machine import JobState
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import Delete

VALUES = [b"a", b"b", b"c", b"d"]
LARGE = bytes(20_000)


class PackingStage(Stage):
    """One domain; packs are made when a schedule says so."""

    def __init__(self) -> None:
        super().__init__()
        carry = replace(EMBEDDED, pack_entries=1, pack_seconds=1e9)
        self.settings = replace(self.settings, carry=carry, pack_look_seconds=1e9, object_bytes=1 << 20)

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

    async def check_hinted(self, stream: int) -> None:
        """It carries, and who looks for such streams finds it."""
        view = await StreamStore(self.actor().store, 1, 1).view(stream)
        assert view is not None
        head = view.high_watermark.value.head
        assert any(entry.is_carried for entry in [each.value for each in view.entries] + [head] if entry)
        assert self.keys(keys.CARRIED) == [keys.carried_hint(stream)]

    async def emptied(self, actor: Actor) -> int:
        """A stream whose broker has put the hint, and that carries nothing now: what it did is packed, and
        its head is an object. All commits of it are that broker's."""
        stream = await self.filled(actor)
        await actor.append(stream, LARGE)
        await pack(actor)
        return stream


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


# --- hints


async def a_hint_goes_and_its_broker_goes_on() -> None:
    """A broker that does not carry deletes the hint; the one that put it carries again."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.emptied(broker)
    await pack(other)
    assert stage.keys(keys.CARRIED) == []
    await broker.append(stream, b"again")
    await stage.check_hinted(stream)


async def a_hint_goes_while_its_broker_writes_an_object() -> None:
    """That moves the version before the seal could: the broker still believes in its hint."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.emptied(broker)
    seals = other.store.hold("write", "/hwm")
    packing = asyncio.ensure_future(pack(other))
    await seals.reached()
    await broker.append(stream, LARGE)
    seals.release()
    await packing
    await broker.append(stream, b"again")
    await stage.check_hinted(stream)


async def a_hint_goes_while_its_broker_carries() -> None:
    """After the first look, which is only there to spare the seal."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.emptied(broker)
    looked = other.store.hold("get", "/hwm")
    packing = asyncio.ensure_future(pack(other))
    await looked.reached()
    await broker.append(stream, b"again")
    other.objects.trap(Fate.REFUSE, "put")  # or it would pack what it sees
    looked.release()
    await packing
    await stage.check_hinted(stream)


async def a_hint_is_put_before_it_goes() -> None:
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.emptied(broker)
    deletes = other.store.hold("write", keys.CARRIED)
    packing = asyncio.ensure_future(pack(other))
    await deletes.reached()
    await broker.append(stream, b"again")
    deletes.release()
    await packing
    await stage.check_hinted(stream)


async def the_first_write_is_given_up() -> None:
    """The store refuses it, and takes the next."""
    stage = PackingStage()
    stage.settings = replace(stage.settings, commit_seconds=0.0)
    broker = stage.actor()
    broker.log.carry(True)
    [stream] = await broker.log.create_streams(1)
    broker.store.trap(Fate.REFUSE, "write", "/hwm")
    with pytest.raises(LogUnavailable):
        await broker.append(stream, b"refused")
    await broker.append(stream, b"carried")
    await stage.check_hinted(stream)


async def a_duplicate_comes_first() -> None:
    """Nothing is written for it."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await other.log.create_streams(1)
    await other.append(stream, b"first", (9, 0, 0))
    broker.log.carry(True)
    assert (await broker.append(stream, b"first", (9, 0, 0))).base_offset == 0
    await broker.append(stream, b"second", (9, 0, 1))
    await stage.check_hinted(stream)


# --- packs


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


async def a_pack_that_is_decided_while_it_is_judged() -> None:
    """The collector has read the job, and is about to put it again."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    decides = broker.store.hold("write", "/job")
    packing = asyncio.ensure_future(pack(broker))
    await decides.reached()
    await other.log.collector.run()
    await asyncio.sleep(ORPHAN + 1)
    fences = other.store.hold("write", "/job")
    collecting = asyncio.ensure_future(other.log.collector.run())
    await fences.reached()
    swaps = broker.store.hold("write", "/offset-index/")
    decides.release()
    await swaps.reached()
    fences.release()
    await collecting
    swaps.release()
    await packing
    await stage.check_packed(stream)


async def a_pack_that_is_decided_while_it_is_judged_by_stale_reads() -> None:
    """As before, and the collector does not see it: then it must not judge."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    decides = broker.store.hold("write", "/job")
    packing = asyncio.ensure_future(pack(broker))
    await decides.reached()
    await other.log.collector.run()
    await asyncio.sleep(ORPHAN + 1)
    fences = other.store.hold("write", "/job")
    collecting = asyncio.ensure_future(other.log.collector.run())
    await fences.reached()
    other.store.fall_behind(0)
    swaps = broker.store.hold("write", "/offset-index/")
    decides.release()
    await swaps.reached()
    fences.release()
    await collecting
    swaps.release()
    await packing
    await stage.check_packed(stream)


async def a_pack_whose_reply_is_lost_is_finished_by_another() -> None:
    """Before its packer asks what became of it: the job has moved, and names nothing any more."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    upload = broker.objects.hold("put")
    packing = asyncio.ensure_future(pack(broker))
    await upload.reached()
    broker.store.trap(Fate.LOSE_REPLY, "write", "/job")
    asks = broker.store.hold("barrier")
    upload.release()
    await asks.reached()
    await other.log.delete_records(stream, 0)
    asks.release()
    await packing
    await stage.check_packed(stream)


async def a_late_pack_of_a_stream_without_a_job() -> None:
    """There would be nothing to fence: so there is no such pack."""
    stage = PackingStage()
    broker, other = stage.actor(), stage.actor()
    stream = await stage.filled(broker)
    await broker.store.write(0, [Delete(keys.job(stream))])
    late = broker.store.trap(Fate.LATE, "write", "/job")
    broker.store.trap(Fate.LOSE, "write", "/job")
    await pack(broker)
    await stage.collect(other)
    if late.is_late:
        late.land()
    broker.store.disarm()
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
    a_hint_goes_and_its_broker_goes_on: ["hints go without a seal", "hints are known by stream"],
    a_hint_goes_while_its_broker_writes_an_object: ["hints go though another moved the version"],
    a_hint_goes_while_its_broker_carries: ["hints go without a look behind the seal"],
    a_hint_is_put_before_it_goes: ["hints go at any version"],
    the_first_write_is_given_up: [],
    a_duplicate_comes_first: ["hints are known before they are put"],
    a_pack_that_is_decided_while_it_is_judged: ["a fenced job is not read again", "ask the index only"],
    a_pack_that_is_decided_while_it_is_judged_by_stale_reads: [
        "a fenced job is not read again",
        "a fenced job is not seen moved",
    ],
    a_pack_whose_reply_is_lost_is_finished_by_another: ["a job that moved is not ours"],
    a_late_pack_of_a_stream_without_a_job: ["pack over a job that is absent"],
    a_pack_that_was_planned_before_another: ["pack over a later job", "a pack aims after staging"],
    a_late_pack_before_its_orphan_is_found: ["settle an undecided pack"],
    a_late_pack_of_an_orphan: ["no fence for a pack", "seal for a pack"],
    a_pack_that_is_finished_while_it_is_judged: ["ask the index before the job", "seal for a pack"],
    a_pack_is_staged_without_a_reply: ["pack though staging is unclear"],
}
