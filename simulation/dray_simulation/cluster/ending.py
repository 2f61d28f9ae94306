"""How a run of a cluster ends: the weather calms, groups settle, all is read again, nothing is left over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from dray.broker.cluster.bucket_owner import OWNER
from dray.broker.topics import Topics
from dray.daemons.assembly.settings import log_settings
from dray.log import Collector, Log
from dray.log.life.retention import Retention, WaitsForTable
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.client import Unanswered
from dray_simulation.cluster.compacted import check_state
from dray_simulation.cluster.conditions import MAIN, Place, Role
from dray_simulation.cluster.members import ClassicMember, ConsumerMember
from dray_simulation.cluster.readers import EARLIEST, SimulatedReader
from dray_simulation.cluster.world import ClusterWorld
from dray_simulation.kernel.loop import hear
from dray_simulation.kernel.weather import check_fitting

T = TypeVar("T")

_SETTLED_WITHIN: Final = 40.0
_LOOK_EVERY: Final = 0.5
_ATTEMPTS: Final = 40
_QUIET_ROUNDS: Final = 3
_MOST_ROUNDS: Final = 60
_GROUPS: Final = {Role.CLASSIC_MEMBER: ClassicMember.group, Role.CONSUMER_MEMBER: ConsumerMember.group}


async def first_trouble(world: ClusterWorld, tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Go on until the time is over, or the world or a player complains."""
    playing: list[asyncio.Future[None]] = [world.violation, *tasks]
    for task in playing:
        task.add_done_callback(hear)
    deadline = world.now() + seconds
    while (left := deadline - world.now()) > 0:
        ended, _ = await asyncio.wait(playing, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in playing:
            if task in ended:
                task.result()
        playing = [task for task in playing if task not in ended]


async def calm_down(world: ClusterWorld, playing: Sequence[asyncio.Task[None]]) -> None:
    """Nothing goes wrong any more: what is late arrives, brokers come back, and groups share everything."""
    world.calm = True
    world.conditions.weather.calm()
    world.conditions.network.calm()
    world.trace("weather", "calms")
    deadline = world.now() + _SETTLED_WITHIN
    while not _is_settled(world):
        if world.now() > deadline:
            raise Violation(f"the cluster does not settle: {_unsettled(world)}")
        await first_trouble(world, [task for task in playing if not task.done()], _LOOK_EVERY)
    for broker in world.brokers:
        broker.check()
    for compactor in world.compactors:
        compactor.check()
    check_fitting(world.conditions.weather)


def _is_settled(world: ClusterWorld) -> bool:
    return (
        not world.conditions.weather.pending
        and all(broker.serving and not broker.runtime.standing_still for broker in world.brokers)
        and not _unsettled(world)
    )


def _unsettled(world: ClusterWorld) -> dict[str, object]:
    """The groups in which a partition has no owner."""
    partitions = set(range(world.conditions.partitions))
    groups = {_GROUPS[role] for _, role in world.conditions.clients() if role in _GROUPS}
    owned = {group: world.owners(group).owners(world.now()) for group in sorted(groups)}
    return {group: owners for group, owners in owned.items() if set(owners) != partitions}


# --- everything once more


async def read_everything(world: ClusterWorld) -> None:
    """Every record that is there, and every offset that is committed, by a client that comes anew."""
    last = SimulatedReader(world, "last reader", world.conditions.seed)
    everything = range(world.conditions.partitions)
    await _insist(lambda: last.look_around(MAIN))
    for partition in range(world.conditions.partitions):
        await _read_all(last, (MAIN, partition))
    readers = [
        f"alone-{role.value} {number}" for number, role in world.conditions.clients() if role is Role.READER
    ]
    for group in (*_GROUPS.values(), *readers):
        await _insist(lambda group=group: last.committed(group, everything))  # type: ignore[misc]
    last.disconnect()


async def _read_all(reader: SimulatedReader, place: Place) -> None:
    position: int | None = None
    while True:
        if position is None:  # at first, and where records were deleted meanwhile
            position = (await _insist(lambda: reader.list_offset(place, EARLIEST)))[0]
            reader.sought.add(place)
        if position >= reader.world.truth.bounds(*place).end:
            return
        following = await _insist(lambda at=position: reader.poll({place: at}))  # type: ignore[misc]
        position = following[place]


async def _insist(asking: Callable[[], Awaitable[T | None]]) -> T:
    """The answer, however often one has to ask."""
    for _ in range(_ATTEMPTS):
        try:
            answer = await asking()
        except Unanswered:
            continue
        if answer is not None:
            return answer
        await asyncio.sleep(0.1)
    raise Violation("all is calm, and no answer comes")


# --- nothing is left over


async def clean_up(world: ClusterWorld) -> None:
    """The brokers die; the collectors find all that they left, and nothing that is needed."""
    for broker in world.brokers:
        broker.kill()
    for compactor in world.compactors:
        compactor.kill()
    await asyncio.sleep(2.5)  # their sessions end
    last = world.brokers[0]
    last.clock.mend(world.now())
    last.begin()
    assert last.store is not None
    assert last.objects is not None
    config = world.conditions.settings(0, last.host, last.port)
    settings = log_settings(config)
    domains = world.conditions.domains
    store = StreamStore(last.store, domains, settings.producer_expiry_ms)
    guard = world.guard(last.objects)
    collector = Collector(store, last.objects, last.runtime, settings, may_delete=guard)
    retention = Retention(store, last.runtime, settings)
    log = Log(last.store, last.objects, last.runtime, domains, settings)
    topics = Topics(last.store, last.runtime, log, replace(config.topics, sweep_grace=0.0))
    finisher = world.compactors[0].last() if world.compactors else None
    quiet = 0
    for _ in range(_MOST_ROUNDS):
        try:
            await topics.sweep_deleted()
            if finisher is not None:
                await finisher.run_cycle(everything=True)
            await _finish_streams(world, retention, log)
            await collector.run()
            quiet = 0 if world.conditions.weather.pending else quiet + 1
        except WaitsForTable:
            quiet = 0  # a late commit of the table came first: the next cycle goes on
        except (MetadataError, ObjectError, LogError) as error:
            raise Violation(f"calm, but {error}") from error
        if quiet == _QUIET_ROUNDS:
            break
        await asyncio.sleep(settings.orphan_ttl + settings.collect_grace)
    world.truth.log.check_leftovers(
        _needed_by_the_log(world),
        world.keys(keys.REFERENCES),
        world.keys(keys.STAGING),
        world.keys(keys.OBJECTS),
    )
    if finisher is not None:
        _check_tables(world)
    await check_state(world, log)
    if left := world.keys(keys.DELETED_TOPICS):
        raise Violation(f"deleted topics are not forgotten: {left}")
    check_fitting(world.conditions.weather)
    if world.violation.done():
        world.violation.result()


def _needed_by_the_log(world: ClusterWorld) -> set[str]:
    """The objects that are there, without those that only a table needs: files may outlive their place in
    the index there."""
    log = world.truth.log
    live = {entry.path for stream in log.streams for entry in log.live_entries(stream) if entry.path}
    tables = {path for table in world.catalog.tables.values() for path in table.newest.files}
    return set(world.bucket.objects) - (tables - live) - {OWNER}


def _check_tables(world: ClusterWorld) -> None:
    """Every topic has one, with all that the log holds; those of deleted topics are gone."""
    for name, table in world.catalog.tables.items():
        if world.truth.named.get(name) != table.topic.topic_id:
            raise Violation(f"the table of {name} is left over")
        world.truth.check_whole_table(name, table.newest.files.values())


async def _finish_streams(world: ClusterWorld, retention: Retention, log: Log) -> None:
    """Finish jobs that are left, and remove what late writes bring back."""
    for stream, truth in world.truth.log.streams.items():
        if truth.closed:
            await log.sweep_streams([stream])
        else:
            await retention.raise_start(stream, truth.start)
