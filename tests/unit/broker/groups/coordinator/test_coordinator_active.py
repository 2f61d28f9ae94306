"""A group in memory: what is written, what is answered when, what its timers do."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    DOMAINS,
    GROUP,
    SETTINGS,
    TTL,
    World,
    passing,
    refused,
    settled,
    simulated,
)

from dray.broker.groups import classic, consumer
from dray.broker.groups.assignors import ASSIGNORS
from dray.broker.groups.consumer import ConsumerGroup, HeartbeatAnswer, Refusal
from dray.broker.groups.coordinator import NotCoordinator, active, patterns
from dray.broker.groups.offsets import CommittedOffset
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys

RECORD = keys.group(GROUP)


def answered(answer: HeartbeatAnswer | Refusal) -> HeartbeatAnswer:
    assert isinstance(answer, HeartbeatAnswer), answer
    return answer


# --- what is written


@simulated
async def test_heartbeats_that_change_nothing_write_nothing() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    joined = answered(await broker.beat())
    member, generation = await broker.stable_group("classic")
    broker.store.writes.clear()
    for _ in range(10):
        assert answered(await broker.beat(epoch=joined.member_epoch)).assignment is None
        assert await broker.classic_beat(member, generation, group_id="classic") is ErrorCode.NONE
    assert broker.store.writes == []


@simulated
async def test_refused_requests_write_nothing() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat()
    member, generation = await broker.stable_group("classic")
    broker.store.writes.clear()
    before = world.records()
    for group_id in (GROUP, "classic", "nowhere"):
        assert isinstance(await broker.beat("m7", 3, group_id=group_id), Refusal)
        assert isinstance(await broker.beat("m7", 0, group_id=group_id, topics=[], instance_id=" "), Refusal)
        assert await broker.classic_beat("m7", 3, group_id=group_id) is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await broker.sync("m7", 3, group_id=group_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await broker.join("m7", group_id=group_id)).error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        )
        assert (await broker.join(group_id=group_id, session_ms=0)).error is not ErrorCode.NONE
        assert await broker.leave("m7", group_id=group_id) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await broker.commit(1, group_id=group_id, member_id="m7", generation=3) is not ErrorCode.NONE
        assert await broker.delete(group_id) in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND)
    assert await broker.commit(1, group_id="classic", member_id=member, generation=generation + 1) is (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert await broker.committed(group_id="nowhere") is None
    assert broker.store.writes == []
    assert world.records() == before


@simulated
async def test_events_that_come_during_a_write_share_the_next() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m0")
    broker.store.writes.clear()
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    first = asyncio.ensure_future(broker.beat("m1"))
    await settled()
    others = [asyncio.ensure_future(broker.beat(f"m{number}")) for number in range(2, 20)]
    await settled()
    assert not any(other.done() for other in others)
    broker.store.release()
    answers = [answered(answer) for answer in await asyncio.gather(first, *others)]
    assert [answer.member_epoch for answer in answers] == [2] + [20] * 18
    assert len(broker.store.writes) == 2


@simulated
async def test_heartbeats_that_come_together_share_a_run_of_the_assignor() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    runs = 0
    uniform = ASSIGNORS["uniform"]

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal runs
        runs += 1
        return uniform(*arguments, **named)

    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    with patch.dict(ASSIGNORS, {"uniform": counted}), patch.object(active, "MOST_TOGETHER", 10):
        first = asyncio.ensure_future(broker.beat("m0"))
        await settled()
        runs = 0
        others = [asyncio.ensure_future(broker.beat(f"m{number}")) for number in range(1, 21)]
        await settled()
        broker.store.release()
        await asyncio.gather(first, *others)
    assert runs == 2, "as many together as may be"


@simulated
async def test_a_batch_does_not_keep_the_processor() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m0")
    step = broker.groups.machines.step_together
    clock = 0.0

    def slow_step(*arguments: object) -> object:
        nonlocal clock
        clock += active.BATCH_SECONDS / 2 + 0.001
        return step(*arguments)  # type: ignore[arg-type]

    broker.groups.machines.step_together = slow_step  # type: ignore[assignment, method-assign]
    broker.groups.machines.count_together = lambda *_: 1  # type: ignore[method-assign]
    monotonic = broker.runtime.monotonic
    broker.runtime.monotonic = lambda: monotonic() + clock  # type: ignore[method-assign]
    broker.store.writes.clear()
    await asyncio.gather(*(broker.beat(f"m{number}") for number in range(1, 10)))
    assert len(broker.store.writes) == 5  # one alone, then two at a time


# --- what is answered when


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_nothing_is_answered_before_it_is_stored(protocol: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World()
        world.topics.make("a", 4)
        broker = await world.broker(1)
        broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
        asking = asyncio.ensure_future(broker.beat() if protocol == "consumer" else broker.join())
        await settled()
        assert not asking.done()
        assert world.group_record() is not None
        broker.store.release()
        await asking

    scenario()


@simulated
async def test_what_could_not_be_stored_has_not_happened() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    first = answered(await broker.beat("m1"))
    for fate in (Fate.REFUSE, Fate.LOSE, Fate.LATE):
        broker.store.trap(fate, "write", RECORD)
        assert await refused(broker.beat("m2")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.store.land()
        state = await broker.groups.state(GROUP)
        assert isinstance(state, ConsumerGroup)
        assert set(state.members) == {"m1"}
        assert answered(await broker.beat("m1", first.member_epoch)).member_epoch == first.member_epoch
    assert answered(await broker.beat("m2")).member_epoch > first.member_epoch
    await broker.stop()
    heir = await world.broker(2)
    state = await heir.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert set(state.members) == {"m1", "m2"}


@simulated
async def test_a_lost_reply_is_looked_up() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    broker.store.trap(Fate.LOSE_REPLY, "write", RECORD)
    assert answered(await broker.beat("m1")).member_epoch == 1
    broker.store.trap(Fate.LOSE_REPLY, "write", RECORD)
    assert answered(await broker.beat("m2")).member_epoch == 2


@simulated
async def test_a_parked_join_stays_parked_when_somebody_elses_step_fails() -> None:
    broker = await World(settings=replace(SETTINGS)).broker(1)
    member, generation = await broker.stable_group()
    parked = asyncio.ensure_future(broker.join(fresh="second"))
    await settled()
    assert await broker.classic_beat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    broker.store.trap(Fate.REFUSE, "write", RECORD)
    assert await refused(broker.join(member)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not parked.done()
    joined = await broker.join(member)
    assert (joined.error, joined.generation) == (ErrorCode.NONE, generation + 1)
    assert (await parked).generation == generation + 1


@simulated
async def test_a_client_that_leaves_while_it_is_parked_is_no_trouble() -> None:
    broker = await World().broker(1)
    member, generation = await broker.stable_group()
    parked = asyncio.ensure_future(broker.join(fresh="second"))
    await settled()
    parked.cancel()
    joined = await broker.join(member)
    assert (joined.error, joined.generation) == (ErrorCode.NONE, generation + 1)
    assert len(joined.members) == 2


@simulated
async def test_a_mistake_of_ours_leaves_nobody_waiting() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    first = answered(await broker.beat("m1"))
    step = broker.groups.machines.step_together

    def broken_step(state: object, events: list[Any], *others: object) -> object:
        if any(getattr(event, "member_id", "") == "bad" for event in events):
            raise ZeroDivisionError
        return step(state, events, *others)  # type: ignore[arg-type]

    broker.groups.machines.step_together = broken_step  # type: ignore[assignment, method-assign]
    with pytest.raises(ZeroDivisionError):
        await broker.beat("bad")
    assert answered(await broker.beat("m1", first.member_epoch)).member_epoch == first.member_epoch
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    good = asyncio.ensure_future(broker.beat("m2"))
    await settled()
    bad = asyncio.ensure_future(refused(broker.beat("bad")))
    waiting = asyncio.ensure_future(refused(broker.beat("m3")))
    await settled()
    broker.store.release()
    assert answered(await good).member_id == "m2"
    assert await bad is ErrorCode.NOT_COORDINATOR
    assert await waiting is ErrorCode.NOT_COORDINATOR
    assert [type(failure) for failure in broker.runtime.failures] == [ZeroDivisionError]
    assert answered(await broker.beat("m3")).member_id == "m3"


@simulated
async def test_a_group_that_is_let_go_during_a_write_answers_nobody() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m0")
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    joining = asyncio.ensure_future(refused(broker.beat("m1")))
    await settled()
    [group] = broker.groups.active()
    group.drop("somebody else commits its offsets")
    broker.store.release()
    assert await joining is ErrorCode.NOT_COORDINATOR


@simulated
async def test_whoever_waits_for_a_group_that_is_let_go_hears_it_at_once() -> None:
    """Behind a write of the group, or behind one of its offsets."""
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    joined = answered(await broker.beat("m0"))
    offsets: dict[str, Any] = {"member_id": "m0", "generation": joined.member_epoch}
    broker.store.trap(Fate.HOLD_AFTER, "write", keys.group_offsets(GROUP))
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    committed_before = asyncio.ensure_future(broker.commit(1, **offsets))
    under_way = asyncio.ensure_future(refused(broker.beat("m1")))
    await settled()
    waiting = [asyncio.ensure_future(refused(broker.beat("m2")))]
    [group] = broker.groups.active()
    committed = CommittedOffset.at(2, 0, "", 0)
    waiting.append(asyncio.ensure_future(refused(group.ledger.change({("a", 1): committed}))))
    await settled()
    group.drop()
    await settled()
    assert [done.done() and done.result() for done in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    broker.store.release()
    assert await committed_before is ErrorCode.NONE, "it was in the store before the group was let go"
    assert await under_way is ErrorCode.NOT_COORDINATOR


@simulated
async def test_a_timer_of_a_group_whose_lease_may_have_ended_lets_it_go() -> None:
    """Even where nobody has told of that yet."""

    class Doubtful:
        def confirmed(self) -> bool:
            return False

    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m0")
    [group] = broker.groups.active()
    broker.store.writes.clear()
    group._lease = Doubtful()  # type: ignore[assignment]
    await passing(60)
    assert broker.store.writes == []
    assert GROUP not in broker.groups._active


@simulated
async def test_whoever_still_has_a_group_that_was_let_go_gets_no_answer_from_it() -> None:
    world = World()
    broker = await world.broker(1)
    member, generation = await broker.stable_group()
    [group] = broker.groups.active()
    broker.store.down = True
    await passing(2 * TTL)
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    with pytest.raises(NotCoordinator):
        group.ask(classic.Heartbeat(future, GROUP, member, generation), future)
    assert not future.done()


# --- timers


@simulated
async def test_a_member_that_is_silent_for_a_session_is_gone() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m1")
    second = answered(await broker.beat("m2"))
    for _ in range(12):
        await passing(5)
        second = answered(await broker.beat("m2", second.member_epoch, owned=[]))
    state = await broker.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert set(state.members) == {"m2"}


@simulated
async def test_a_heartbeat_that_waits_for_a_write_counts() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    first = answered(await broker.beat("m1"))
    await passing(44.9)
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    joining = asyncio.ensure_future(broker.beat("m2"))
    await settled()
    beating = asyncio.ensure_future(broker.beat("m1", first.member_epoch))
    await passing(0.5)  # its session would have ended
    broker.store.release()
    assert answered(await beating).member_id == "m1"
    await joining
    await passing(1)
    state = await broker.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert set(state.members) == {"m1", "m2"}


@simulated
async def test_what_a_timer_could_not_store_it_tries_again() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m1")
    broker.store.script(Fate.REFUSE, Fate.LOSE, part=RECORD)
    await passing(46)
    state = await broker.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert set(state.members) == {"m1"}
    await passing(3)
    state = await broker.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert set(state.members) == set()


@simulated
async def test_one_armed_timer_serves_a_group_whatever_its_members_do() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    epochs = {}
    for number in range(20):
        epochs[f"m{number}"] = answered(await broker.beat(f"m{number}", topics=["none"])).member_epoch
    loop = asyncio.get_running_loop()
    armed = len(loop._scheduled)  # type: ignore[attr-defined]
    for _ in range(50):
        for member_id, epoch in epochs.items():
            epochs[member_id] = answered(await broker.beat(member_id, epoch)).member_epoch
    assert len(loop._scheduled) <= armed + 1  # type: ignore[attr-defined]
    [group] = broker.groups.active()
    assert len(group._timers) == 20


@simulated
async def test_the_initial_delay_is_waited_for_and_then_answers() -> None:
    settings = replace(SETTINGS, initial_rebalance_delay=3.0)
    broker = await World(settings=settings).broker(1)
    started = asyncio.get_running_loop().time()
    one, two = await asyncio.gather(broker.join(fresh="one"), broker.join(fresh="two"))
    assert asyncio.get_running_loop().time() - started == pytest.approx(6.0, abs=0.1)
    assert one.generation == two.generation == 1


@simulated
async def test_a_group_takes_about_its_size_in_memory() -> None:
    size, groups = 1_000_000, 10
    world = World()
    broker = await world.broker(1)
    tracemalloc.start()
    try:
        for number in range(groups):
            group_id = f"fat {number}"
            joined = await broker.join(group_id=group_id, metadata=bytes(size))
            await broker.sync(joined.member_id, joined.generation, group_id=group_id)
        broker.store.writes.clear()
        for domain in range(DOMAINS):
            world.state.domain(domain, asyncio.get_running_loop().time()).entries.clear()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert groups * size < taken < 1.2 * groups * size


# --- patterns


@simulated
async def test_a_pattern_is_resolved_in_the_background_and_followed() -> None:
    world = World()
    world.topics.make("audit", 1)
    world.topics.make("b", 1)
    broker = await world.broker(1)
    joined = answered(await broker.beat(regex="a.*"))
    assert joined.assignment == {}
    await passing(1)
    told = answered(await broker.beat(epoch=joined.member_epoch))
    assert told.assignment == {world.topics.by_name["audit"].topic_id: frozenset({0})}
    world.topics.make("another", 1)
    await passing(15)
    epoch = told.member_epoch
    for _ in range(3):
        told = answered(await broker.beat(epoch=epoch, owned=None))
        epoch = told.member_epoch
        await passing(1)
    state = await broker.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert state.patterns == {"a.*": frozenset({"audit", "another"})}


@simulated
async def test_a_pattern_is_compiled_away_from_the_loop_once_and_for_members_that_are_taken() -> None:
    world = World(settings=replace(SETTINGS, max_size=1))
    world.topics.make("audit", 1)
    broker = await world.broker(1)
    in_thread, judged = broker.runtime.in_thread, []

    async def watched(function: Any, *arguments: Any) -> Any:
        if function is patterns.fault_of:
            judged.append(arguments)
        return await in_thread(function, *arguments)

    broker.runtime.in_thread = watched  # type: ignore[method-assign]
    answered(await broker.beat(regex="a.*"))
    refused = await broker.beat("m2", regex="b.*")
    assert isinstance(refused, consumer.Refusal)
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert judged == [("a.*",)]
    wrong = await broker.beat("m1", 1, regex="(")
    assert isinstance(wrong, consumer.Refusal)
    assert wrong == (ErrorCode.INVALID_REGULAR_EXPRESSION, "'(' is no pattern: missing ): (")
    assert judged == [("a.*",), ("(",)]


@simulated
async def test_patterns_are_judged_one_at_a_time_with_pauses_by_turns_of_addresses() -> None:
    """RE2 holds the interpreter: thirty at once let the event loop come round every second and a half."""
    world = World()
    broker = await world.broker(1)
    in_thread, judged = broker.runtime.in_thread, []

    async def slow(function: Any, *arguments: Any) -> Any:
        if function is not patterns.fault_of:
            return await in_thread(function, *arguments)
        judged.append((broker.runtime.monotonic(), arguments[0]))
        await passing(1)
        return "it is tried"

    broker.runtime.in_thread = slow  # type: ignore[method-assign]
    crowd = [broker.beat(f"m{at}", regex=f"a{at}", host="/10.0.0.1") for at in range(3)]
    await asyncio.gather(*crowd, broker.beat("other", regex="b", host="/10.0.0.2"))
    assert [pattern for _, pattern in judged] == ["a0", "a1", "b", "a2"]
    began = [at for at, _ in judged]
    assert [round(after - before) for before, after in pairwise(began)] == [4, 4, 4]


@simulated
async def test_patterns_that_could_not_be_stored_come_again() -> None:
    world = World()
    audit = world.topics.make("audit", 1)
    broker = await world.broker(1)
    joined = answered(await broker.beat(regex="a.*"))
    broker.store.trap(Fate.REFUSE, "write", RECORD)
    await passing(0.5)
    assert broker.store.all_sprung()
    await passing(2)
    told = answered(await broker.beat(epoch=joined.member_epoch)).assignment
    assert told == {audit.topic_id: frozenset({0})}


# --- one protocol at a time


@simulated
async def test_a_heartbeat_that_is_refused_converts_nothing() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.commit(5)
    before = world.records()
    for wrong in ({"instance_id": " "}, {"epoch": 3}):
        assert isinstance(await broker.beat("m1", **wrong), Refusal)
        assert isinstance(await broker.groups.state(GROUP), classic.ClassicGroup)
        assert await broker.committed() == 5
    assert world.records() == before


@simulated
async def test_a_group_converts_when_it_is_empty_and_refuses_when_it_is_not() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    member, generation = await broker.stable_group()
    await broker.commit(5, member_id=member, generation=generation)
    refusal = await broker.beat("m1")
    assert isinstance(refusal, Refusal)
    assert refusal.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert await broker.leave(member) is ErrorCode.NONE
    joined = answered(await broker.beat("m1"))
    assert await broker.committed() == 5
    assert (await broker.join()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await broker.sync("m1", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert await broker.classic_beat("m1", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await broker.commit(6, member_id="m1", generation=joined.member_epoch) is ErrorCode.NONE
    assert await broker.commit(7, member_id="m1", generation=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert await refused(broker.groups.offsets(GROUP, "m1", 9)) is ErrorCode.STALE_MEMBER_EPOCH
    assert await broker.delete() is ErrorCode.NON_EMPTY_GROUP
    assert await broker.leave("m1") is ErrorCode.NONE  # as an administrator removes it
    back = await broker.join()
    assert (back.error, back.generation) == (ErrorCode.NONE, 1)
    assert await broker.committed() == 6


@simulated
async def test_a_join_that_is_refused_converts_nothing() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.beat("m1")
    await broker.beat("m1", -1)
    before = world.group_record()
    assert (await broker.join(session_ms=0)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert isinstance(await broker.groups.state(GROUP), ConsumerGroup)
    await broker.stable_group("classic")
    assert isinstance(await broker.beat("m1", 5, group_id="classic"), Refusal)
    assert isinstance(await broker.groups.state("classic"), classic.ClassicGroup)
    assert world.group_record() == before


@simulated
async def test_timers_of_the_other_protocol_mean_nothing() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    # A member id is handed out and never used; meanwhile the group becomes one of the other protocol.
    assert (await broker.join(version=5, session_ms=1000)).error is ErrorCode.MEMBER_ID_REQUIRED
    joined = answered(await broker.beat("fresh"))
    await passing(2)
    assert answered(await broker.beat("fresh", joined.member_epoch)).member_epoch == joined.member_epoch
    assert consumer.GroupState.STABLE is (await broker.groups.state(GROUP)).state  # type: ignore[union-attr]
