"""Random schedules: actors take turns, crash, sleep and come back as zombies; late writes land in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tests.model.broker import broker, sealer
from tests.model.collector import collector
from tests.model.jobs import worker
from tests.model.packer import packer
from tests.model.rules import AHEAD, CLEANING, SEVERAL, WITH_CARRYING
from tests.model.store import Violation
from tests.model.world import Steps, World

STEPS = 700
_CHECK_EVERY = 7


def run(
    seed: int,
    without: Collection[str] = (),
    steps: int = STEPS,
    carries: bool | None = None,
    ahead: bool | None = None,
    cleans: bool | None = None,
    several: bool | None = None,
) -> World:
    """One schedule; with carried appends and packers, with marks staged ahead, with compaction by key,
    with files written ahead of their jobs, or without: None is as the rules that are taken out need it.
    Raises `Violation` where a promise is broken."""
    if carries is None:
        carries = not WITH_CARRYING.keys().isdisjoint(without)
    if ahead is None:
        ahead = not AHEAD.keys().isdisjoint(without)
    if cleans is None:
        cleans = not CLEANING.keys().isdisjoint(without)
    if several is None:
        several = not SEVERAL.keys().isdisjoint(without)
    world = World(seed, without, carries=carries, stages_ahead=ahead, cleans=cleans, several=several)
    brokers = world.random.choice((1, 2, 3, 4))
    kinds = [broker] * brokers
    if carries:
        kinds += [packer] * world.random.choice((1, 2, 3, 4))
    ending = len(kinds)
    kinds += [worker] * (world.random.choice((2, 3, 4)) if carries else 4) + [collector] * 2 + [sealer]
    return play(world, kinds, ending, steps)


Kind = Callable[[World], Steps[None]]


def play(
    world: World, kinds: Sequence[Kind], ending: int, steps: int, last: Sequence[Kind] = (worker, collector)
) -> World:
    """Let actors of these kinds take turns. Those from `ending` on see the end; `last` tidy up."""
    actors = [kind(world) for kind in kinds]
    asleep = [0] * len(actors)
    for step in range(steps):
        world.now += 1
        ripe = world.due() if world.chance(0.25) else []
        if ripe:
            world.land(world.random.choice(ripe))
        else:
            chosen = world.random.randrange(len(actors))
            if asleep[chosen] > world.now:
                continue
            fate = world.random.random()
            if fate < 0.008:
                actors[chosen] = kinds[chosen](world)  # crashed, wherever it was
                world.counts["crashes"] += 1
            elif fate < 0.016:
                asleep[chosen] = world.now + world.random.randint(20, 150)
            else:
                next(actors[chosen])
        if step % _CHECK_EVERY == 0:
            world.check()
    _end(world, actors[ending:], last)
    return world


def _end(world: World, actors: list[Steps[None]], last: Sequence[Kind]) -> None:
    """Brokers and packers are gone, late writes land while the others work, then all quiesces."""
    world.reliable = True
    while world.late:
        world.now += 1
        if world.chance(0.06):
            world.land(world.random.randrange(len(world.late)))
        else:
            next(world.random.choice(actors))
    world.check()
    world.finishing = True
    finishing = [kind(world) for kind in last]
    for _ in range(12):
        for actor in finishing:
            for _ in range(60):
                next(actor)
        world.now += world.orphan_steps
    world.check()
    world.check_the_end()


@dataclass(slots=True)
class Campaign:
    schedules: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)  # the first seed of each kind of violation
    counts: Counter[str] = field(default_factory=Counter)


def campaign(
    seeds: range,
    without: Collection[str] = (),
    stop_at: int | None = None,
    steps: int = STEPS,
    carries: bool | None = None,
    ahead: bool | None = None,
    cleans: bool | None = None,
    several: bool | None = None,
) -> Campaign:
    result = Campaign()
    for seed in seeds:
        result.schedules += 1
        try:
            result.counts += run(seed, without, steps, carries, ahead, cleans, several).counts
        except (Violation, KeyError, IndexError) as error:
            # Without a rule the model itself may stumble over what it finds; with all of them it must not.
            if not without and not isinstance(error, Violation):
                raise
            kind = str(error) if isinstance(error, Violation) else "corrupt"
            result.broken[kind] += 1
            result.first.setdefault(kind, seed)
            if stop_at is not None and result.broken.total() >= stop_at:
                break
    return result
