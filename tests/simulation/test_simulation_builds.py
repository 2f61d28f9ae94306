"""Two builds in one cluster, and brokers that must give up their id: nothing is lost, or it is noticed."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from tests.simulation.builds_mutations import (
    LEVEL_MUTATIONS,
    MUTATIONS,
    an_automatic_id_is_claimed_for_ever,
)
from tests.simulation.noticing import first_noticed

from dray.broker.groups.coordinator.storage import GroupKind, GroupRecord, encode_record
from dray.broker.groups.offsets import CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import Delete, Put
from dray.metadata.memory import MemoryState
from dray_simulation.campaign import fresh_seed
from dray_simulation.checks.group_truth import CommittedOffsets
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.builds import Builds, older_by_a_level, two_builds
from dray_simulation.cluster.identities import automatic_ids
from dray_simulation.cluster.run import ClusterReport, simulate_cluster

SEEDS = 8
LEVEL_SEEDS = 4
SEARCH = 40
SOAK_SEEDS = 200


def run_two_builds(seed: int) -> ClusterReport:
    return simulate_cluster(seed, two_builds(seed))


def run_automatic_ids(seed: int) -> ClusterReport:
    return simulate_cluster(seed, automatic_ids(seed))


def run_older_by_a_level(seed: int) -> ClusterReport:
    return simulate_cluster(seed, older_by_a_level(seed))


def test_two_builds_lose_nothing_of_each_other() -> None:
    reports = [run_two_builds(seed) for seed in range(1, SEEDS + 1)]
    for report in reports:
        assert report.counts["unreadable values"] > 0, "older processes met none"
    for what in ("commits", "acknowledged", "table commits", "topics deleted"):
        assert any(report.counts[what] for report in reports), what


def test_an_unclear_commit_that_arrives_late_goes_with_its_group() -> None:
    """The sweep had found the group empty and marked it; nobody was told of the commit."""
    run_two_builds(12)


def test_an_offset_that_a_client_knows_goes_neither_with_its_group_nor_without() -> None:
    committed, state, topic_id = CommittedOffsets(), MemoryState(), UUID(int=1)
    world = SimpleNamespace(
        state=state,
        committed=committed,
        now=lambda: 0.0,
        truth=SimpleNamespace(named={"t": topic_id}),
        conditions=two_builds(12),
    )
    builds = Builds(world)  # type: ignore[arg-type]

    def check_deletion(group_id: str, kind: GroupKind, *, acknowledged: bool) -> None:
        commit = committed.sending((group_id, 0), 5, now=0)
        if acknowledged:
            committed.acknowledged(commit, now=0)
        offset = CommittedOffset(5, -1, commit.name, 0, topic_id=topic_id)
        group, place = keys.group(group_id), keys.group_offset(group_id, "t", 0)
        stored = [Put(group, encode_record(GroupRecord(kind, 1, b""))), Put(place, offset.encode())]
        outcomes = state.apply(0, stored, None, 0.0)
        builds.check_deletions(0, [Delete(place, outcomes[1].version)])

    check_deletion("marked", GroupKind.DELETED, acknowledged=False)
    with pytest.raises(Violation, match="a client knows it"):
        check_deletion("marked and known", GroupKind.DELETED, acknowledged=True)
    with pytest.raises(Violation, match="its topic is there"):
        check_deletion("there", GroupKind.CLASSIC, acknowledged=False)


def test_one_seed_is_one_run_of_two_builds() -> None:
    assert run_two_builds(3) == run_two_builds(3)


@pytest.mark.parametrize("name", MUTATIONS)
def test_deletions_for_want_of_reading_are_noticed(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, run_two_builds, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


def test_the_level_is_raised_once_every_process_reads_the_next_one() -> None:
    """Not before: entries that are carried while an older process is there are a broken promise."""
    for seed in range(LEVEL_SEEDS):
        run_older_by_a_level(seed)


@pytest.mark.parametrize("name", LEVEL_MUTATIONS)
def test_a_gate_of_the_level_that_is_taken_away_is_noticed(name: str) -> None:
    mutation, first = LEVEL_MUTATIONS[name]
    assert first_noticed(mutation, run_older_by_a_level, first, SEARCH) is not None


def test_brokers_with_automatic_ids_never_share_one() -> None:
    for seed in range(SEEDS):
        run_automatic_ids(seed)


def test_an_id_that_is_claimed_for_ever_is_noticed() -> None:
    assert first_noticed(an_automatic_id_is_claimed_for_ever, run_automatic_ids, 5, SEARCH) is not None


@pytest.mark.soak
def test_two_builds_lose_nothing_of_each_other_for_long() -> None:
    base = fresh_seed()
    for seed in range(base, base + SOAK_SEEDS):
        run_two_builds(seed)
        run_older_by_a_level(seed)
        run_automatic_ids(seed)
