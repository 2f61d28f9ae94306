"""One simulated run of a whole cluster, from one seed; and the same as data, for programs that draw it."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

from dray_simulation.checks.history import anomalies
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.administrator import Administrator
from dray_simulation.cluster.builds import check_raised, upgrade
from dray_simulation.cluster.compacted import CompactedProducer, CompactedReader, PolicySwitcher
from dray_simulation.cluster.conditions import ClusterConditions, Role
from dray_simulation.cluster.disasters import play_disasters
from dray_simulation.cluster.ending import calm_down, clean_up, first_trouble, read_everything
from dray_simulation.cluster.identities import check_ids
from dray_simulation.cluster.limits import check_contained, crowd, poison
from dray_simulation.cluster.members import ClassicMember, ConsumerMember
from dray_simulation.cluster.producers import IdempotentProducer, PlainProducer
from dray_simulation.cluster.readers import ReturningReader, SimulatedReader
from dray_simulation.cluster.world import ClusterWorld
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.trace import TraceStep


class Player(Protocol):
    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None: ...

    async def play(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The coverage of a run, and a fingerprint of all that happened in it."""

    counts: Counter[str]
    operations: Counter[str]
    errors: Counter[str]
    faults: Counter[str]
    fingerprint: str


class RunFailed(Exception):
    """A promise was broken; with what led to it."""

    def __init__(self, conditions: ClusterConditions, at: float, trace: list[str]) -> None:
        super().__init__(f"seed {conditions.seed} at {at:.3f} s")
        self.conditions = conditions
        self.at = at
        self.trace = trace


def simulate_cluster(
    seed: int, conditions: ClusterConditions | None = None, recorded: list[TraceStep] | None = None
) -> ClusterReport:
    """Raises `RunFailed`, from what was found; else says what was covered. `recorded` is filled with the
    steps of the run, however it ends."""
    # A run is short and makes much: collecting garbage in the middle of it takes a fifth of its time.
    collected = gc.isenabled()
    gc.disable()
    try:
        return run(_simulate(conditions or ClusterConditions.choose(seed), recorded))
    finally:
        if collected:
            gc.enable()


# The counts that every run has, however little happens in its time.
LEAST_OPERATIONS, LEAST_FAULTS, LEAST_REBALANCES, LEAST_SWAPS = 300, 10, 1, 1
_MORE_SECONDS, _MOST_SECONDS = 1.0, 60.0
_MOST_POISONED_SECONDS = 25.0  # by when another stream must have been compacted


async def _simulate(conditions: ClusterConditions, recorded: list[TraceStep] | None) -> ClusterReport:
    world = ClusterWorld(deepcopy(conditions))  # chance and weather are used up by a run
    world.conditions.weather.unexpected_errors = conditions.unexpected_errors
    try:
        await (type(conditions).script or _play)(world)
    except Exception as error:
        raise RunFailed(conditions, world.now(), world.trace.lines()) from _first_found(error)
    finally:
        if recorded is not None:
            recorded += world.trace.steps()
        for runtime in [each.runtime for each in world.brokers] + [each.runtime for each in world.compactors]:
            runtime.kill()
    return ClusterReport(world.counts, world.operations, world.errors, world.faults(), world.fingerprint())


def _first_found(error: Exception) -> Exception:
    """Of what tasks of one group met at the same moment: a broken promise, if there is one."""
    if not isinstance(error, ExceptionGroup):
        return error
    found = [_first_found(each) for each in error.exceptions]
    return next((each for each in found if isinstance(each, Violation)), found[0])


def _is_enough(world: ClusterWorld) -> bool:
    return (
        world.counts["operations"] >= LEAST_OPERATIONS
        and world.counts["rebalances"] >= LEAST_REBALANCES
        and world.counts["index swaps"] >= (LEAST_SWAPS if world.compactors else 0)
        and world.faults().total() - world.faults()["hint lost"] >= LEAST_FAULTS
    )


async def _play(world: ClusterWorld) -> None:
    conditions = world.conditions
    await world.start()
    await world.create_topics()
    crowd(world)
    poison(world)
    for compactor in world.compactors:
        compactor.start()
    clients = [asyncio.ensure_future(player) for player in players(world, frozenset(Role) - MEMBERS)]
    members = [asyncio.ensure_future(member) for member in players(world, MEMBERS)]
    disasters = asyncio.ensure_future(play_disasters(world))
    if conditions.newer_formats:
        clients.append(asyncio.ensure_future(world.builds.rewrite_topics()))
    try:
        playing = [*clients, *members, disasters]
        await first_trouble(world, playing, conditions.seconds)
        most = _MOST_POISONED_SECONDS if conditions.poisons_a_stream else _MOST_SECONDS
        while conditions.fills_up and not _is_enough(world) and world.now() < most:
            await first_trouble(world, [task for task in playing if not task.done()], _MORE_SECONDS)
        await _end(clients)
        check_contained(world)
        if not world.builds.upgraded:
            await upgrade(world, disasters)
        await calm_down(world, [*members, disasters])
        if conditions.level_wait is not None:
            await check_raised(world)
        if conditions.automatic_ids:
            await check_ids(world)
    finally:
        await _end([*clients, *members, disasters])
    await read_everything(world)
    if found := anomalies(world.complete_history()):
        raise Violation(f"{len(found)} anomalies, first {found[0]}")
    await clean_up(world)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


KINDS: dict[Role, type[Player]] = {
    Role.IDEMPOTENT_PRODUCER: IdempotentProducer,
    Role.PLAIN_PRODUCER: PlainProducer,
    Role.READER: SimulatedReader,
    Role.ADMINISTRATOR: Administrator,
    Role.CLASSIC_MEMBER: ClassicMember,
    Role.CONSUMER_MEMBER: ConsumerMember,
    Role.RETURNING_READER: ReturningReader,
    Role.COMPACTED_PRODUCER: CompactedProducer,
    Role.COMPACTED_READER: CompactedReader,
    Role.POLICY_SWITCHER: PolicySwitcher,
}


MEMBERS = frozenset({Role.CLASSIC_MEMBER, Role.CONSUMER_MEMBER})


def players(world: ClusterWorld, roles: frozenset[Role]) -> list[Coroutine[Any, Any, None]]:
    seed = world.conditions.seed * 1000
    return [
        KINDS[role](world, f"{role.value} {number}", seed + number).play()
        for number, role in world.conditions.clients()
        if role in roles
    ]


# --- a run as data


@dataclass(frozen=True, slots=True)
class RecordedRun:
    seed: int
    broken: str | None
    """The promise, in the words of its check; None where all were kept."""
    seconds: float
    """Of simulated time."""
    fingerprint: str
    counts: Mapping[str, int]
    faults: Mapping[str, int]
    steps: Sequence[TraceStep]
    """The last of them, in order: a run keeps only so many."""


def record_run(seed: int, conditions: ClusterConditions | None = None) -> RecordedRun:
    steps: list[TraceStep] = []
    try:
        report = simulate_cluster(seed, conditions, recorded=steps)
    except RunFailed as failure:
        return RecordedRun(seed, repr(failure.__cause__), failure.at, "", {}, {}, steps)
    ended = steps[-1].at if steps else 0.0
    return RecordedRun(seed, None, ended, report.fingerprint, dict(report.counts), dict(report.faults), steps)
