"""The rules of carrying and packing, taken out of the code one by one: the simulations notice."""

from __future__ import annotations

from random import SystemRandom

import pytest
from tests.simulation.carry_mutations import MUTATIONS
from tests.simulation.carry_schedules import SCHEDULES
from tests.simulation.log.run import simulate_log
from tests.simulation.log_schedules import Schedule
from tests.simulation.noticing import check_schedule_notices, first_noticed

from dray_simulation.kernel.loop import run

# Where the search for each of them starts: the seed that found it when it was last recorded.
FOUND_BY_CHANCE: dict[str, int] = {
    "the previous head is filed bare": 0,
    "a head is sealed bare": 1,
    "a head is put bare": 0,
    "unclear carried appends go as objects": 1,
    "carried appends are known by their range": 3,
    "carried entries are not folded": 1,
    "objects do not wait for what is carried": 4,
    "carry beside objects of the stream": 43,
    "carried layouts are kept by stream": 0,
    "hints are known by stream": 11,
    "hints are known before they are put": 48,
    "hints go at any version": 16,
    "pack without staging": 0,
    "a pack aims again after a clear no": 17,
    "pack without a job": 5,
    "a job that moved is not ours": 398,
    "pack covered entries": 3,
    "abandon a pack": 0,
    "abandon a pack with its reference": 0,
    "merged entries without the snapshot": 1,
    "merged entries unseen": 1,
    "ask the index only": 146,
}
# Only a compaction of the merged entry in between makes this one matter: the model has that.
LEFT_TO_THE_MODEL = {"merged entries over any version"}
SEARCH = 200
SOAK_SEARCH = 1500


def test_the_log_carries_and_packs_in_the_simulation() -> None:
    counts = sum((simulate_log(seed).counts for seed in range(30, 36)), start=simulate_log(36).counts)
    assert counts["carried entries"] > 50
    assert counts["packs"] > 10


@pytest.mark.parametrize("name", FOUND_BY_CHANCE)
def test_chance_notices(name: str) -> None:
    first = FOUND_BY_CHANCE[name]
    found = first_noticed(MUTATIONS[name], simulate_log, first, SEARCH)
    assert found is not None, f"not noticed by the seeds from {first} on"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.__name__)
def test_schedule(schedule: Schedule) -> None:
    run(schedule())


@pytest.mark.parametrize(
    ("schedule", "name"),
    [(schedule, name) for schedule, names in SCHEDULES.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_schedule_notices(schedule: Schedule, name: str) -> None:
    check_schedule_notices(MUTATIONS[name], lambda: run(schedule()))


def test_every_mutation_is_noticed_by_something() -> None:
    noticed = {*FOUND_BY_CHANCE, *[name for names in SCHEDULES.values() for name in names]}
    assert noticed | LEFT_TO_THE_MODEL == set(MUTATIONS)


@pytest.mark.soak
@pytest.mark.parametrize("name", FOUND_BY_CHANCE)
def test_chance_notices_from_anywhere(name: str) -> None:
    base = SystemRandom().randrange(1 << 40)
    found = first_noticed(MUTATIONS[name], simulate_log, base, SOAK_SEARCH)
    assert found is not None, f"not noticed by the seeds from {base} on"
