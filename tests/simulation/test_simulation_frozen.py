"""Runs are those of `tests/frozen/fingerprints.json`: a move of code changes none of them."""

from __future__ import annotations

import os

import pytest
from tools.fingerprints import FAILED, KINDS, fingerprint, fingerprints, read

SAMPLE = 3
MEANT = "A change that is meant is written down with: python -m tools.fingerprints --kind"


def test_every_kind_of_run_is_frozen() -> None:
    assert set(read()) == set(KINDS)


def test_no_run_that_broke_a_promise_is_frozen() -> None:
    broken = {
        kind: [seed for seed, found in enumerate(runs) if found == FAILED] for kind, runs in read().items()
    }
    assert not any(broken.values()), broken


@pytest.mark.parametrize("kind", KINDS)
def test_some_runs_are_as_they_were(kind: str) -> None:
    """Each in a process in which others ran before, in another order than when they were written down."""
    frozen = read()[kind]
    seeds = range(len(frozen) - 1, -1, -(len(frozen) // SAMPLE))[:SAMPLE]
    changed = [seed for seed in seeds if fingerprint(kind, seed) != frozen[seed]]
    assert not changed, f"{MEANT} {kind!r}"


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_all_runs_are_as_they_were(kind: str) -> None:
    frozen = read()[kind]
    found = fingerprints(kind, range(len(frozen)), os.cpu_count() or 1)
    changed = [seed for seed, (now, then) in enumerate(zip(found, frozen, strict=True)) if now != then]
    assert not changed, f"{MEANT} {kind!r}"
