"""One write as one request: Oxia's order of applying operations gives the contract's result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.metadata.oxia_fake import FakeShard

from dray.metadata.contract import ABSENT, ANY, Delete, DeleteRange, Operation, Outcome, Put, SessionEnded
from dray.metadata.oxia.keys import partition_key, stored_key
from dray.metadata.oxia.plan import RequestPlan
from dray.metadata.oxia.wire import client_pb2 as wire

DOMAIN = 3
KEYS = st.sampled_from(["/a", "/b", "/b.1", "/b/1", "/c"])
BEFORE = 4
"""Versions up to here are handed out before the write: each may be a key's now, or have been."""
NEVER = 1_000_000
EXPECTATIONS = st.one_of(st.just(ANY), st.just(ABSENT), st.integers(-1, BEFORE), st.just(NEVER))
VERSIONS = st.one_of(st.just(ANY), st.integers(-1, BEFORE), st.just(NEVER))
OPERATIONS = st.lists(
    st.one_of(
        st.builds(Put, KEYS, st.binary(max_size=2), EXPECTATIONS),
        st.builds(Delete, KEYS, VERSIONS),
        st.builds(DeleteRange, KEYS, st.sampled_from(["/a", "/b", "/b.1", "/b/1", "/c", "/d"])),
    ),
    max_size=8,
)


def one_by_one(shard: FakeShard, operations: list[Operation]) -> list[bool]:
    """Each operation as a request of its own: what the contract says, but for the one step."""
    applied = []
    for operation in operations:
        plan = RequestPlan(0, DOMAIN, [operation])
        applied += [outcome.applied for outcome in plan.outcomes(shard.apply(plan.request))]
    return applied


def filled(present: list[str]) -> FakeShard:
    shard = FakeShard()
    plan = RequestPlan(0, DOMAIN, [Put(key, b"old") for key in present])
    plan.outcomes(shard.apply(plan.request))
    shard.last_version = BEFORE - 1
    return shard


@given(st.lists(KEYS, unique=True), OPERATIONS)
def test_one_request_does_what_the_operations_do_in_their_order(
    present: list[str], operations: list[Operation]
) -> None:
    expected, shard = filled(present), filled(present)
    applied = one_by_one(expected, operations)
    plan = RequestPlan(0, DOMAIN, operations)
    outcomes = plan.outcomes(shard.apply(plan.request))
    assert [outcome.applied for outcome in outcomes] == applied
    assert {key: record.value for key, record in shard.records.items()} == {
        key: record.value for key, record in expected.records.items()
    }
    last: dict[str, int] = {}
    for operation, outcome in zip(operations, outcomes, strict=True):
        if isinstance(operation, Put) and outcome.applied:
            assert outcome.version > max(last.get(operation.key, 0), BEFORE), "a version came again"
            last[operation.key] = outcome.version
        else:
            assert outcome.version == 0


@given(st.lists(KEYS, unique=True), OPERATIONS)
def test_the_version_that_stays_is_the_one_told_last(present: list[str], operations: list[Operation]) -> None:
    shard = filled(present)
    before = {key: record.version.version_id for key, record in shard.records.items()}
    plan = RequestPlan(0, DOMAIN, operations)
    outcomes = plan.outcomes(shard.apply(plan.request))
    told = {
        stored_key(DOMAIN, operation.key): outcome.version - 1
        for operation, outcome in zip(operations, outcomes, strict=True)
        if isinstance(operation, Put) and outcome.applied
    }
    for key, record in shard.records.items():
        assert record.version.version_id == told.get(key, before.get(key))


def test_each_key_once_is_sent_as_it_is() -> None:
    plan = RequestPlan(
        7, DOMAIN, [Put("/a", b"1", ABSENT), Delete("/b", 5), Put("/c", b"2", 9), Put("/d", b"")]
    )
    puts = [(put.key, put.value, put.expected_version_id) for put in plan.request.puts]
    stored = [stored_key(DOMAIN, key) for key in ("/a", "/b", "/c", "/d")]
    assert puts == [(stored[0], b"1", -1), (stored[2], b"2", 8), (stored[3], b"", 0)]
    assert not plan.request.puts[2].HasField("expected_version_id")
    assert {put.partition_key for put in plan.request.puts} == {partition_key(DOMAIN)}
    assert [(delete.key, delete.expected_version_id) for delete in plan.request.deletes] == [(stored[1], 4)]
    assert plan.request.shard == 7


@pytest.mark.parametrize("expect", [0, -1])
def test_a_version_that_cannot_be_is_not_sent(expect: int) -> None:
    """Oxia would take it for "absent"."""
    plan = RequestPlan(0, DOMAIN, [Put("/a", b"", expect), Delete("/b", expect)])
    assert not plan.request.puts
    assert not plan.request.deletes
    assert plan.outcomes(wire.WriteResponse()) == [Outcome(False), Outcome(False)]


def test_a_session_that_is_over_ends_the_whole_write() -> None:
    plan = RequestPlan(0, DOMAIN, [Put("/a", b""), Put("/b", b"")], session=12)
    assert [put.session_id for put in plan.request.puts] == [12, 12]
    response = wire.WriteResponse(
        puts=[
            wire.PutResponse(status=wire.UNEXPECTED_VERSION_ID),
            wire.PutResponse(status=wire.SESSION_DOES_NOT_EXIST),
        ]
    )
    with pytest.raises(SessionEnded):
        plan.outcomes(response)
