"""Clusters over an object store whose answers are wrong: no client hears of it, and why is seen."""

from __future__ import annotations

from array import array
from collections import Counter
from struct import pack_into
from typing import Final

import pytest
from tests.simulation.keeping_mutations import (
    believe_one_bad_answer,
    believe_the_store_that_an_object_is_gone,
)
from tests.simulation.noticing import Mutation, first_noticed

from dray.log.read import segments
from dray_simulation.campaign import fresh_seed
from dray_simulation.cluster.run import ClusterReport, simulate_cluster
from dray_simulation.kinds import over_lies

SEEDS = 6
SEARCH = 30
SOAK_SEEDS = 200


def simulate(seed: int) -> ClusterReport:
    return simulate_cluster(seed, over_lies(seed))


def serve_what_the_store_says(patch: pytest.MonkeyPatch) -> None:
    """The bytes of batches, whatever their checksum is."""

    def restore(buffer: bytearray, places: array[int], epoch: int) -> int:
        for first in range(0, len(places), 3):
            position, _, base_offset = places[first : first + 3]
            pack_into(">q", buffer, position, base_offset)
            pack_into(">i", buffer, position + 12, epoch)
        return -1

    patch.setattr(segments, "restore", restore)


MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    "one bad answer is believed": (believe_one_bad_answer, 0),
    "one answer that an object is gone is believed": (believe_the_store_that_an_object_is_gone, 0),
    "what is read is not checked": (serve_what_the_store_says, 4),
}


@pytest.fixture(scope="module")
def reports() -> dict[int, ClusterReport]:
    return {seed: simulate(seed) for seed in range(SEEDS)}


def test_no_client_hears_of_lies(reports: dict[int, ClusterReport]) -> None:
    """Of damage, which there is none of: a reader that is told CORRUPT_MESSAGE fails the run."""
    assert len(reports) == SEEDS


def test_the_store_lies_in_every_way(reports: dict[int, ClusterReport]) -> None:
    told: Counter[str] = sum((report.faults for report in reports.values()), start=Counter())
    lies = [f"object told {how}" for how in ("missing", "hidden", "short", "flipped")]
    lies += ["object left out of a list", "object hidden from a look"]
    lies += ["object: the reply was lost", "object: the request timed out", "object changed twice"]
    assert [what for what in lies if not told[what]] == []


def test_clients_are_told_to_wait(reports: dict[int, ClusterReport]) -> None:
    errors: Counter[str] = sum((report.errors for report in reports.values()), start=Counter())
    assert errors["FetchRequest: KAFKA_STORAGE_ERROR"]


@pytest.mark.parametrize("name", MUTATIONS)
def test_clients_notice_lies(name: str) -> None:
    mutation, first = MUTATIONS[name]
    assert first_noticed(mutation, simulate, first, SEARCH) is not None


@pytest.mark.soak
def test_no_client_hears_of_lies_for_long() -> None:
    base = fresh_seed()
    for seed in range(base, base + SOAK_SEEDS):
        simulate(seed)
