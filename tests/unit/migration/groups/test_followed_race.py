"""A consumer starts here while its last member leaves the source: in bad weather, with two migrators.

It begins exactly where the one at the source had stopped, and what it commits here is never taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from uuid import UUID

import pytest
from tests.unit.broker.groups.coordinator.harness import DOMAINS, GROUP
from tests.unit.broker.groups.coordinator.players import Broken, Client, Cluster
from tests.unit.migration.groups.followed_world import (
    UPSTREAM,
    FakeGroupSource,
    GroupAtSource,
    Links,
)

from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import ANY, MetadataError, Put
from dray.migration.groups import follower
from dray.migration.groups.copies import GroupCopies
from dray.migration.groups.copy import CopiedTopic, CopyState, GroupCopy, decode_copy, encode_copy
from dray.migration.groups.follower import GroupAct, GroupFollower
from dray.migration.groups.gate import GroupGate
from dray_simulation.kernel.faults import FaultyStore
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

SECONDS = 40.0


class ConsumerHere(Client):
    """Asks for its place until it has one, then commits from there on."""

    def __init__(self, cluster: Cluster, source: GroupAtSource) -> None:
        super().__init__(cluster, GROUP, "here")
        self.source = source
        self.began_at: int | None = None
        self.acknowledged = self.sent = -1

    async def live(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 0.4)
            broker = await self.broker()
            if self.began_at is None:
                joined = await self.answer(broker, partial(broker.commit, -1, partition=1))
                if joined is not ErrorCode.NONE:
                    continue
            place = await self.answer(broker, self._place)
            if place is None:
                continue
            if self.began_at is None:
                left_at = self.source.committed["a", 0][0]
                if self.source.members or place != left_at:
                    raise Broken(f"it begins at {place}, and the source was at {left_at}")
                self.began_at = self.acknowledged = self.sent = place
            elif not self.acknowledged <= place <= self.sent:
                raise Broken(f"{place} is fetched, {self.acknowledged} was acknowledged, {self.sent} sent")
            self.sent += 1
            offset = self.sent
            if await self.answer(broker, partial(broker.commit, offset)) is ErrorCode.NONE:
                self.acknowledged = offset

    async def _place(self) -> int:
        found = await (await self.broker()).committed()
        return -1 if found is None else found


async def at_the_source(group: GroupAtSource, links: Links, random: Random) -> None:
    """It commits, comes and goes, and leaves for good some time after the switch."""
    switch_at, leaves_at = 5 + random.random() * 10, 10 + random.random() * 12
    loop = asyncio.get_running_loop()
    begin = loop.time()
    offset = 0
    while loop.time() - begin < leaves_at or not links.topics["a"].is_switched:
        await asyncio.sleep(random.random() * 0.5)
        if loop.time() - begin > switch_at:
            links.switch(boundary=10_000)
        offset += random.randrange(3)
        group.commit(offset)
        # Restarts before the switch only: afterwards the last one to leave leaves for good.
        group.members = 1 if links.topics["a"].is_switched else random.randrange(2)
    group.commit(offset + 1)
    group.members = 0


async def follow(cluster: Cluster, source: FakeGroupSource, links: Links, seed: int) -> None:
    runtime = SimulatedRuntime(seed)
    random = Random(seed)
    store = FaultyStore(cluster.state, cluster.apply, runtime, cluster.weather)
    follower = GroupFollower(source, GroupCopies(store, runtime, DOMAINS, UPSTREAM), links.read)

    async def look() -> None:
        await asyncio.sleep(random.random() * (3.0 if random.random() < 0.1 else 0.05))

    while True:
        source.before = {name: [look] * 4 for name in ("members", "committed", "listed")}
        with suppress(MetadataError):
            await follower.run_once()
        await asyncio.sleep(random.random())


def _is_known(cluster: Cluster, later: bool) -> bool:
    found = [decode_copy(GROUP, each.value) for each in cluster.records(keys.FOLLOWED_GROUPS)]
    return any(copy.later is not None or not later for copy in found)


async def play(seed: int, later: bool = False) -> int:
    """How many commits were acknowledged here. `later`: the group has moved before, with another topic."""
    cluster = Cluster(seed=seed)
    links, group = Links(cluster, a=2), GroupAtSource(members=1)
    group.commit(0)
    if later:
        came = GroupCopy(CopyState.MOVED, UPSTREAM, {"z": CopiedTopic(UUID(int=9), ())}, taken_in=True)
        put = Put(keys.followed_group(GROUP), encode_copy(came))
        cluster.apply(keys.domain_of_group(GROUP, DOMAINS), [put])
    sources = [FakeGroupSource({GROUP: group}) for _ in range(2)]
    here = ConsumerHere(cluster, group)
    migrators = [
        asyncio.create_task(follow(cluster, source, links, seed * 10 + number))
        for number, source in enumerate(sources)
    ]
    async with asyncio.timeout(SECONDS):  # the topic is not shown before its groups are known
        for _ in iter(lambda: _is_known(cluster, later), True):
            await asyncio.sleep(0.1)
    for number in (1, 2):
        await cluster.start_broker(number)
    tasks = [
        *migrators,
        asyncio.create_task(at_the_source(group, links, Random(seed))),
        asyncio.create_task(here.live()),
        asyncio.create_task(cluster.trouble(SECONDS)),
    ]
    done, _ = await asyncio.wait(tasks, timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    await cluster.calm()
    done, _ = await asyncio.wait(tasks[:2] + tasks[3:4], timeout=20, return_when=asyncio.FIRST_EXCEPTION)
    for task in (*tasks, *done):
        if task.done():
            task.result()
        task.cancel()
    if here.began_at is None:
        raise Broken("it never began")
    return here.acknowledged - here.began_at


@pytest.mark.parametrize("later", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("seed", range(5))
def test_it_goes_on_where_it_was(seed: int, later: bool) -> None:
    assert run(play(seed, later)) > 5


@pytest.mark.soak
@pytest.mark.parametrize("later", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_it_goes_on_where_it_was_for_long(seed: int, later: bool) -> None:
    run(play(seed, later))


def copied_after_it_moved(patch: pytest.MonkeyPatch) -> None:
    """No version keeps a late migrator from writing."""
    put = GroupCopies._put

    def unconditional(self: GroupCopies, *arguments: object) -> Put:
        found = put(self, *arguments)  # type: ignore[arg-type]
        return Put(found.key, found.value, ANY)

    patch.setattr(GroupCopies, "_put", unconditional)


def handed_over_with_members(patch: pytest.MonkeyPatch) -> None:
    def always(kept: object, seen: object, *, is_switched: bool) -> GroupAct:
        return GroupAct.COPY_AND_HAND_OVER if is_switched else GroupAct.COPY

    patch.setattr(follower, "next_act", always)
    patch.setattr(follower, "WITHOUT_MEMBERS", ("Stable", "Empty", ""))

    async def none(self: object, group_ids: list[str], report: object) -> dict[str, int]:
        return dict.fromkeys(group_ids, 0)

    patch.setattr(GroupFollower, "_members", none)


def let_in_before_it_moved(patch: pytest.MonkeyPatch) -> None:
    async def look(self: GroupGate, group_id: str) -> object:
        return await self._read(group_id)

    patch.setattr(GroupGate, "_look", look)


def taken_in_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dray.migration.groups.gate._taken", lambda copy: copy)


def later_topic_not_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCopy, "awaited", frozenset())


MUTATIONS = [
    (copied_after_it_moved, False),
    (handed_over_with_members, False),
    (let_in_before_it_moved, False),
    (taken_in_again, False),
    (later_topic_not_awaited, True),
]


@pytest.mark.parametrize(("mutate", "later"), MUTATIONS)
def test_every_rule_is_needed(mutate: Callable[[pytest.MonkeyPatch], None], later: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        for seed in range(12):
            try:
                run(play(seed, later))
            except Broken:
                return
    pytest.fail("no seed noticed it")
