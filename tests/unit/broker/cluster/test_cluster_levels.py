"""The level of a cluster: the rule by itself, who is asked, and a record that older builds refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import LevelKeeper, LevelTooNew, open_cluster
from dray.broker.cluster.clock_guard import MIGRATOR, ProcessDescription, StoredBeat, encode_beat
from dray.broker.cluster.identity import ClusterInfo, decode_cluster, encode_cluster
from dray.broker.cluster.level_keeper import read_readers, write_level
from dray.broker.cluster.levels import (
    BASE,
    LEVELS,
    NEWEST,
    ClusterLevel,
    Reader,
    check_level,
    looked_at,
    lowered,
    read_by_all,
    stops_writing,
    writes_above,
)
from dray.broker.cluster.membership import AdvertisedListener, Broker, encode_broker
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryState, MemoryStore
from dray.metadata.values import ValueCorrupt, seal_json, unseal_json

DAY_MS = 24 * 3_600_000
CLUSTER = ClusterInfo("C49vZI8OTAqdDjp8H14tEQ", 4, 1_700_000_000_000)


def test_levels_are_numbers_one_above_the_other() -> None:
    assert [level.number for level in LEVELS] == list(range(BASE, NEWEST + 1))


# --- the rule


def test_a_level_that_all_read_is_raised_a_day_later() -> None:
    seen = looked_at(ClusterLevel(1), 2, 1000, DAY_MS)
    assert seen == ClusterLevel(1, next=2, since_ms=1000)
    assert looked_at(seen, 2, 999 + DAY_MS, DAY_MS) == seen
    assert looked_at(seen, 2, 1000 + DAY_MS, DAY_MS) == ClusterLevel(2)


def test_somebody_who_does_not_read_it_begins_the_day_anew() -> None:
    seen = ClusterLevel(1, next=2, since_ms=1000)
    assert looked_at(seen, 1, 2000, DAY_MS) == ClusterLevel(1)
    further = looked_at(seen, 3, 2000, DAY_MS)
    assert further == ClusterLevel(1, next=3, since_ms=2000), "another level, another day"


def test_a_doubted_clock_raises_nothing() -> None:
    seen = ClusterLevel(1, next=2, since_ms=1000)
    assert looked_at(seen, 2, None, DAY_MS) == seen
    assert looked_at(ClusterLevel(1), 2, None, DAY_MS) == ClusterLevel(1)


def test_a_ceiling_keeps_the_level_where_it_is() -> None:
    held = ClusterLevel(1, ceiling=1)
    assert looked_at(held, 2, 1000, 0) == held
    assert looked_at(looked_at(held, 2, 1000, 0), 2, 2000, 0) == held


def test_a_level_is_lowered_in_two_steps() -> None:
    stopping = stops_writing(ClusterLevel(2), 1)
    assert (stopping.number, stopping.writes) == (2, 1), "written no more, and stored still"
    done = lowered(stopping)
    assert (done.number, done.writes, done.ceiling) == (1, 1, 1)


def test_who_has_not_said_what_it_reads_reads_the_base_level() -> None:
    assert read_by_all([Reader("a", 2), Reader("b", 3)]) == 2
    assert read_by_all([Reader("a", 2), Reader("b", None)]) == BASE
    assert read_by_all([]) == BASE
    assert not Reader("b", None).can_read(BASE + 1)


def test_who_writes_above_a_level() -> None:
    readers = [Reader("a", 2, 2), Reader("b", 2, 1), Reader("compactor", 2)]
    assert [each.name for each in writes_above(readers, 1)] == ["a"]


def test_a_build_that_is_older_than_the_level_says_so_in_one_line() -> None:
    check_level(ClusterLevel(2), reads=2)
    with pytest.raises(
        LevelTooNew, match=r"is at level 2, and this build reads levels up to 1: start a newer"
    ):
        check_level(ClusterLevel(2), reads=1)


# --- the record


def test_a_record_at_the_base_level_is_the_one_of_builds_before_levels() -> None:
    plain = {"id": CLUSTER.cluster_id, "domains": 4, "created_ms": CLUSTER.created_ms}
    assert encode_cluster(CLUSTER) == seal_json(1, plain)
    assert decode_cluster(seal_json(1, plain)).level == ClusterLevel(BASE)


def test_above_it_builds_from_before_levels_refuse_the_record() -> None:
    above = replace(CLUSTER, level=ClusterLevel(2))
    version, fields = unseal_json("the record", encode_cluster(above), 2)
    assert (version, fields["level"]) == (2, {"number": 2})
    assert decode_cluster(encode_cluster(above)) == above


@pytest.mark.parametrize("value", [(2, {}), (2, {"level": {"number": 1}}), (1, {"level": {"number": 2}})])
def test_a_level_in_the_wrong_format_is_corrupt(value: tuple[int, dict[str, object]]) -> None:
    version, level = value
    plain = {"id": CLUSTER.cluster_id, "domains": 4, "created_ms": CLUSTER.created_ms}
    with pytest.raises(ValueCorrupt, match="does not fit its level"):
        decode_cluster(seal_json(version, plain | level))


@pytest.mark.parametrize("level", [ClusterLevel(1, next=2, since_ms=5), ClusterLevel(1, ceiling=1)])
def test_what_is_noted_at_the_base_level_is_read_past_by_them(level: ClusterLevel) -> None:
    value = encode_cluster(replace(CLUSTER, level=level))
    assert value[0] == 1
    assert decode_cluster(value).level == level


def test_a_level_of_the_future_is_read_as_a_number() -> None:
    value = encode_cluster(replace(CLUSTER, level=ClusterLevel(NEWEST + 7)))
    assert decode_cluster(value).level.number == NEWEST + 7


async def test_a_new_cluster_begins_at_the_newest_level() -> None:
    runtime = SystemRuntime()
    cluster = await open_cluster(MemoryStore(runtime), runtime, 4)
    assert cluster.level == ClusterLevel(NEWEST)


# --- who is asked, and who raises


class World:
    def __init__(self) -> None:
        self.runtime = SystemRuntime()
        self.state = MemoryState()
        self.store = MemoryStore(self.runtime, self.state)
        self.now_ms: int | None = 0
        self.may_raise = True
        self.followed: list[ClusterLevel] = []

    def keeper(self, reads: int = NEWEST) -> LevelKeeper:
        return LevelKeeper(
            self.store,
            self.runtime,
            reads=reads,
            look_seconds=1.0,
            wait_seconds=60.0,
            may_raise=lambda: self.may_raise,
            now_ms=lambda: self.now_ms,
            followed=self.followed.append,
        )

    async def put(self, key: str, value: bytes) -> None:
        await self.store.write(keys.CLUSTER_DOMAIN, [Put(key, value)])

    async def broker(self, number: int, reads: int | None = NEWEST) -> None:
        listeners = (AdvertisedListener("PLAINTEXT", "h", 1),)
        await self.put(keys.broker(number), encode_broker(Broker(number, listeners, build="b", reads=reads)))

    async def beat(self, name: str, reads: int | None, role: str | None = None) -> None:
        process = None if role is None else ProcessDescription(role, "b")
        await self.put(keys.clock(name), encode_beat(StoredBeat("m", 1, False, process, reads)))

    async def level(self) -> ClusterLevel:
        record = await self.store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        assert record is not None
        return decode_cluster(record.value).level


async def test_a_cluster_from_before_levels_is_raised_after_the_wait() -> None:
    world = World()
    await world.put(keys.CLUSTER, encode_cluster(CLUSTER))
    await world.broker(0)
    keeper = world.keeper()
    await keeper.look()
    assert (await world.level()).next == NEWEST
    world.now_ms = 59_999
    await keeper.look()
    assert world.followed[-1].writes == BASE
    world.now_ms = 60_000
    await keeper.look()
    assert await world.level() == world.followed[-1] == ClusterLevel(NEWEST)


@pytest.mark.parametrize("who", ["broker", "beat", "unreadable beat", "unreadable broker", "migrator"])
async def test_nobody_is_left_out_who_has_not_said_it(who: str) -> None:
    world = World()
    await world.put(keys.CLUSTER, encode_cluster(CLUSTER))
    await world.broker(0)
    match who:
        case "broker":
            await world.broker(1, None)
        case "beat":
            await world.beat("old", None, "compactor")
        case "unreadable beat":
            await world.put(keys.clock("old"), b"\xc8")
        case "unreadable broker":
            await world.put(keys.broker(1), b"\xc8")
        case _:
            await world.put(keys.migration_lease("t"), b"\x01{}")
    for world.now_ms in (0, 60_000, 120_000):
        await world.keeper().look()
    assert await world.level() == ClusterLevel(BASE)


async def test_a_migrator_that_beats_speaks_for_its_lease() -> None:
    world = World()
    await world.broker(0)
    await world.put(keys.migration_lease("t"), b"\x01{}")
    await world.beat("new", NEWEST, MIGRATOR)
    assert read_by_all(await read_readers(world.store)) == NEWEST


async def test_one_broker_raises_and_the_others_follow() -> None:
    world = World()
    await world.put(keys.CLUSTER, encode_cluster(replace(CLUSTER, level=ClusterLevel(1, next=2, since_ms=0))))
    await world.broker(0)
    world.may_raise, world.now_ms = False, 60_000
    await world.keeper().look()
    assert (await world.level()).number == BASE
    world.may_raise = True
    await world.keeper().look()
    await world.keeper().look()
    assert [level.number for level in world.followed] == [BASE, NEWEST, NEWEST]


async def test_no_broker_raises_above_what_it_reads_itself() -> None:
    world = World()
    await world.put(keys.CLUSTER, encode_cluster(CLUSTER))
    await world.broker(0)
    for world.now_ms in (0, 60_000, 120_000):
        await world.keeper(reads=BASE).look()
    assert await world.level() == ClusterLevel(BASE)
    await world.broker(0, NEWEST + 1)
    for world.now_ms in (0, 60_000, 120_000):
        await world.keeper().look()
    assert await world.level() == ClusterLevel(NEWEST)


async def test_a_broker_whose_cluster_was_raised_above_it_says_so() -> None:
    world = World()
    await world.put(keys.CLUSTER, encode_cluster(replace(CLUSTER, level=ClusterLevel(2))))
    with pytest.raises(LevelTooNew):
        await world.keeper(reads=1).look()
    assert world.followed == []


async def test_a_record_that_was_changed_meanwhile_is_left_alone() -> None:
    world = World()
    await world.put(keys.CLUSTER, encode_cluster(CLUSTER))
    record = await world.store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
    assert record is not None
    await world.put(keys.CLUSTER, encode_cluster(replace(CLUSTER, level=ClusterLevel(1, ceiling=1))))
    assert not await write_level(world.store, CLUSTER, ClusterLevel(2), record.version)
    assert (await world.level()).ceiling == 1
