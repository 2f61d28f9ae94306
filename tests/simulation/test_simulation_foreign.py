"""A log that began elsewhere, in every weather: it keeps its promises, and broken rules are noticed."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.foreign_fault_mutations import MUTATIONS as FAULT_MUTATIONS
from tests.simulation.foreign_mutations import CHOICE_MUTATIONS, MUTATIONS
from tests.simulation.log.foreign_faults import simulate_faulty_source
from tests.simulation.log.foreign_world import simulate_foreign
from tests.simulation.noticing import first_noticed
from tests.simulation.unfinished_segments import simulate_unfinished

SEEDS = 12
SECONDS = 5.0
SEARCH = 60
SOAK_SEEDS = 600
CHOICES = 6


def test_a_log_that_began_elsewhere_keeps_its_promises() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += simulate_foreign(seed, SECONDS).counts
    expected = {"acknowledged": 50, "consumed": 500, "crashes": 10, "switches": 8, "adopted": 2}
    assert {what: seen[what] for what in expected if seen[what] < expected[what]} == {}


@pytest.mark.parametrize("seed", [283, 570, 688])
def test_what_was_dropped_from_memory_is_served_with_its_epoch(seed: int) -> None:
    """The epoch was guessed where the stream was dropped while an entry of it was looked for."""
    simulate_foreign(seed)


@pytest.mark.parametrize("name", MUTATIONS)
def test_it_is_noticed(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, lambda seed: simulate_foreign(seed, SECONDS), first, SEARCH)
    assert found is not None, f"not noticed by the seeds from {first} on"


def test_a_foreign_store_that_fails_costs_nothing_but_time() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += simulate_faulty_source(seed).counts
    expected = {
        "consumed": 500,
        "read beside": 50,
        "reads refused": 2,
        "! foreign store was slow": 10,
        "! foreign store did not answer": 3,
        "! foreign object was away": 3,
        "! foreign bytes were damaged": 3,
    }
    assert {what: seen[what] for what in expected if seen[what] < expected[what]} == {}


@pytest.mark.parametrize("name", FAULT_MUTATIONS)
def test_a_failing_store_notices(name: str) -> None:
    mutation, first = FAULT_MUTATIONS[name]
    found = first_noticed(mutation, simulate_faulty_source, first, SEARCH)
    assert found is not None, f"not noticed by the seeds from {first} on"


def test_copies_that_were_not_finished_are_left_out() -> None:
    for seed in range(CHOICES):
        simulate_unfinished(seed)


@pytest.mark.parametrize("name", CHOICE_MUTATIONS)
def test_a_wrong_choice_is_noticed(name: str) -> None:
    mutation, first = CHOICE_MUTATIONS[name]
    assert first_noticed(mutation, simulate_unfinished, first, CHOICES) is not None


@pytest.mark.soak
def test_a_log_that_began_elsewhere_keeps_its_promises_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_foreign(seed)
            simulate_faulty_source(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
