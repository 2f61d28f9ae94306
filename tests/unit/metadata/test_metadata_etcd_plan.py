"""Writes as etcd transactions, against an etcd in a dozen lines. The conformance suite asks the real one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.metadata.contract import ABSENT, ANY, Delete, DeleteRange, Operation, Outcome, Put
from dray.metadata.etcd.keys import (
    DamagedValue,
    Keyspace,
    place_and_value,
    revision_and_place,
    stored_value,
    value_bounds,
    version_of,
)
from dray.metadata.etcd.plan import TransactionPlan
from dray.metadata.etcd.wire import etcd_pb2 as wire

KEYSPACE = Keyspace("p/")
KEYS = st.sampled_from(["/a", "/a/1", "/b", "/b0", "/c"])


class SmallEtcd:
    """Keys with revisions; all comparisons of a transaction are judged before anything is changed, a key is
    changed at most once, and the limits of operations are kept, as the real one does."""

    def __init__(self, most: int) -> None:
        self.content: dict[bytes, tuple[int, bytes]] = {}
        self.revision = 1
        self._most = most

    def apply(self, request: wire.TxnRequest) -> wire.TxnResponse:
        check_limit(request, self._most)
        before = dict(self.content)
        changed: list[bytes] = []
        response = self._transaction(request, before, changed)
        assert len(changed) == len(set(changed)), "duplicate key given in txn request"
        if self.content != before or changed:
            self.revision += 1
        response.header.revision = self.revision
        return response

    def _transaction(
        self, request: wire.TxnRequest, before: dict[bytes, tuple[int, bytes]], changed: list[bytes]
    ) -> wire.TxnResponse:
        succeeded = all(self._holds(compare, before) for compare in request.compare)
        response = wire.TxnResponse(succeeded=succeeded)
        for operation in request.success if succeeded else request.failure:
            answer = response.responses.add()
            if operation.HasField("request_txn"):
                nested = self._transaction(operation.request_txn, before, changed)
                answer.response_txn.CopyFrom(nested)
            elif operation.HasField("request_put"):
                put = operation.request_put
                changed.append(put.key)
                self.content[put.key] = (self.revision + 1, put.value)
                answer.response_put.SetInParent()
            else:
                removal = operation.request_delete_range
                for key in [key for key in self.content if within(key, removal)]:
                    changed.append(key)
                    del self.content[key]
                answer.response_delete_range.SetInParent()
        return response

    def _holds(self, compare: wire.Compare, before: dict[bytes, tuple[int, bytes]]) -> bool:
        found = before.get(compare.key)
        if compare.target == wire.Compare.CREATE:
            return (found is None) == (compare.create_revision == 0)
        if found is None:
            return False
        if compare.target == wire.Compare.MOD:
            return found[0] == compare.mod_revision
        if compare.result == wire.Compare.GREATER:
            return found[1] > compare.value
        return found[1] < compare.value


def within(key: bytes, removal: wire.DeleteRangeRequest) -> bool:
    return removal.key <= key < removal.range_end if removal.range_end else key == removal.key


def check_limit(request: wire.TxnRequest, most: int) -> None:
    used = max(len(request.compare), len(request.success), len(request.failure))
    assert used <= most, "too many operations in txn request"
    for operation in (*request.success, *request.failure):
        if operation.HasField("request_txn"):
            check_limit(operation.request_txn, most - used)


def operations() -> st.SearchStrategy[list[Operation]]:
    # Versions of revisions 2 to 5, at the first places: they hit.
    versions = st.builds(version_of, st.integers(0, 5), st.integers(0, 3))
    return st.lists(
        st.one_of(
            st.builds(Put, KEYS, st.binary(max_size=2), st.one_of(st.just(ANY), st.just(ABSENT), versions)),
            st.builds(Delete, KEYS, st.one_of(st.just(ANY), versions)),
            st.builds(DeleteRange, KEYS, KEYS),
        ),
        max_size=8,
    )


def played(
    content: dict[str, tuple[int, bytes]], operations: Sequence[Operation], revision: int
) -> list[Outcome]:
    """What the contract says, one operation after the other. A version that the write itself makes is known
    to nobody before it: a guess that would hit it does not count."""
    outcomes = []
    for place, operation in enumerate(operations):
        if isinstance(operation, DeleteRange):
            for key in [key for key in content if operation.start <= key < operation.end]:
                del content[key]
            outcomes.append(Outcome(True))
            continue
        found = content.get(operation.key)
        if operation.expect == ANY:
            meets = True
        elif operation.expect == ABSENT:
            meets = found is None
        else:
            meets = found is not None and found[0] == operation.expect < version_of(revision, 0)
        if not meets:
            outcomes.append(Outcome(False))
        elif isinstance(operation, Delete):
            content.pop(operation.key, None)
            outcomes.append(Outcome(True))
        else:
            version = version_of(revision, place)
            content[operation.key] = (version, operation.value)
            outcomes.append(Outcome(True, version))
    return outcomes


@given(st.lists(operations(), max_size=6))
def test_a_plan_does_what_its_operations_would_one_by_one(writes: list[list[Operation]]) -> None:
    etcd = SmallEtcd(128)
    model: dict[str, tuple[int, bytes]] = {}
    seen: set[tuple[str, int]] = set()
    for write in writes:
        plan = TransactionPlan(3, write, KEYSPACE, 0, 128)
        outcomes = plan.outcomes(etcd.apply(plan.request))
        assert outcomes == played(model, write, etcd.revision)
        kept = {
            KEYSPACE.bare(3, key): (
                version_of(revision, place_and_value(value)[0]),
                place_and_value(value)[1],
            )
            for key, (revision, value) in etcd.content.items()
            if key != KEYSPACE.tick
        }
        assert kept == model
        for operation, outcome in zip(write, outcomes, strict=True):
            if isinstance(operation, Put) and outcome.applied:
                assert (operation.key, outcome.version) not in seen, "a version came again"
                seen.add((operation.key, outcome.version))


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000, 1100])
@pytest.mark.parametrize("expect", [ANY, ABSENT])
def test_a_thousand_operations_fit_into_the_default_limit(count: int, expect: str) -> None:
    write = [Put(f"/{number:04d}", b"", expect) for number in range(count)]  # type: ignore[arg-type]
    etcd = SmallEtcd(128)
    plan = TransactionPlan(0, write, KEYSPACE, 0, 128)
    outcomes = plan.outcomes(etcd.apply(plan.request))
    assert [outcome.version for outcome in outcomes] == [version_of(2, place) for place in range(count)]


def test_compare_and_sets_of_a_thousand_keys_fit_too() -> None:
    etcd = SmallEtcd(128)
    first = TransactionPlan(0, [Put(f"/{number:04d}", b"") for number in range(1100)], KEYSPACE, 0, 128)
    versions = [outcome.version for outcome in first.outcomes(etcd.apply(first.request))]
    write = [Put(f"/{number:04d}", b"x", version) for number, version in enumerate(versions)]
    second = TransactionPlan(0, write, KEYSPACE, 0, 128)
    assert all(outcome.applied for outcome in second.outcomes(etcd.apply(second.request)))


def test_more_than_fits_is_refused_here_and_not_by_the_server() -> None:
    with pytest.raises(ValueError, match="too much for one transaction"):
        TransactionPlan(0, [Put(f"/{number:05d}", b"") for number in range(5000)], KEYSPACE, 0, 128)


def test_a_lease_is_on_every_put() -> None:
    plan = TransactionPlan(0, [Put("/a", b""), Put("/b", b"", ABSENT)], KEYSPACE, 77, 128)
    plain, conditional = plan.request.success
    assert plain.request_put.lease == 77
    assert conditional.request_txn.success[0].request_put.lease == 77


@given(st.integers(0, 65535), st.binary(max_size=4), st.integers(0, 65535))
def test_the_bounds_of_a_place_hold_its_values_and_no_others(place: int, value: bytes, other: int) -> None:
    below, above = value_bounds(place)
    assert (below < stored_value(value, other) < above) == (place == other)
    assert place_and_value(stored_value(value, place)) == (place, value)


@given(st.integers(1, 2**40), st.integers(0, 65535))
def test_versions_grow_with_revision_and_place(revision: int, place: int) -> None:
    version = version_of(revision, place)
    assert revision_and_place(version) == (revision, place)
    assert version < version_of(revision + 1, 0)
    assert 0 < version < 2**63


@pytest.mark.parametrize("stored", [b"", b"\1\0\0", b"\2\0\0\0value", b"\1\0\0\1value", b"something else"])
def test_a_value_that_is_not_ours_is_told(stored: bytes) -> None:
    with pytest.raises(DamagedValue, match="did not write"):
        place_and_value(stored)


def test_domains_lie_side_by_side() -> None:
    for domain in (0, 9, 15, 16, 255, 2**31 - 1):
        start, end = KEYSPACE.domain(domain), KEYSPACE.domain_end(domain)
        assert start < KEYSPACE.key(domain, "!") < KEYSPACE.key(domain, "~~") < end
        assert end <= KEYSPACE.domain(domain + 1)
        assert not start <= KEYSPACE.tick < end
        assert KEYSPACE.bare(domain, KEYSPACE.key(domain, "/x")) == "/x"
