"""One bucket, several metadata stores: nothing of its owner is deleted by another, or by its own past."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.bucket_mutations import MUTATIONS
from tests.simulation.noticing import first_noticed
from tests.simulation.shared_bucket import simulate_shared_bucket

SEEDS = 20
SEARCH = 60
SOAK_SEEDS = 500
SOAK_SEARCH = 300


def test_a_bucket_keeps_what_its_owner_needs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += simulate_shared_bucket(seed).counts
    assert seen["strangers refused"] == seen["buckets without an owner"] == seen["restored"] == SEEDS
    assert seen["rounds held"] > 10 * SEEDS
    assert 0 < seen["restored and braked"] < SEEDS, "metadata from long before, and from shortly before"
    assert seen["deleted by the restored"], "what it knows to be garbage goes"


def test_one_seed_is_one_run_at_a_shared_bucket() -> None:
    assert simulate_shared_bucket(3) == simulate_shared_bucket(3)
    assert simulate_shared_bucket(4).fingerprint != simulate_shared_bucket(3).fingerprint


@pytest.mark.parametrize("name", MUTATIONS)
def test_strangers_and_the_past_notice(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, simulate_shared_bucket, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.soak
def test_a_bucket_keeps_what_its_owner_needs_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_shared_bucket(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTATIONS)
def test_strangers_and_the_past_notice_from_anywhere(name: str) -> None:
    base = SystemRandom().randrange(1 << 40)
    found = first_noticed(MUTATIONS[name][0], simulate_shared_bucket, base, SOAK_SEARCH)
    assert found is not None, f"not noticed by the seeds from {base} on"
