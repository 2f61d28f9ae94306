"""Classic groups as they are stored: every format ever written is read for ever, and damage is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.groups.classic.harness import Coordinator, protocols

from dray.broker.groups.classic import ClassicGroup, GroupState, Member, Protocol, decode_group, encode_group
from dray.metadata.values import FormatTooNew, ValueCorrupt

STABLE = ClassicGroup(
    "payments",
    1_700_000_000_123,
    GroupState.STABLE,
    7,
    "consumer",
    "range",
    "consumer-1-8e1a",
    subscribed_topics=frozenset({"orders", "refunds"}),
).with_members(
    [
        Member(
            "consumer-1-8e1a",
            None,
            "consumer-1",
            "/10.0.0.1",
            45_000,
            300_000,
            (
                Protocol("range", bytes.fromhex("000100000001") + b"\0\6orders" + b"\xff" * 4 + b"\0" * 4),
                Protocol("sticky", b""),
            ),
            b"\0\0assignment",
        ),
        Member(
            "eins-5f2c",
            "eins",
            "",
            "/10.0.0.2",
            10_000,
            -1,
            (Protocol("range", bytes.fromhex("000000000001") + b"\0\7refunds" + b"\xff" * 4),),
        ),
    ]
)
STABLE_V1 = bytes.fromhex(
    "0103000000070000018bcfe5687b09636f6e73756d65720672616e676510636f6e73756d65722d312d3865316103"
    "10636f6e73756d65722d312d38653161000b636f6e73756d65722d310a2f31302e302e302e310000afc8000493e0"
    "030672616e6765170001000000010006"
    "6f7264657273ffffffff0000000007737469636b79010d000061737369676e6d656e74"
    "0a65696e732d356632630565696e73010a2f31302e302e302e3200002710ffffffff020672616e676514"
    "0000000000010007726566756e6473ffffffff01"
)
SIMPLE = ClassicGroup("simple", 1_700_000_000_000)
SIMPLE_V1 = bytes.fromhex("0100000000000000018bcfe56800000000" + "01")


@pytest.mark.parametrize(("group", "stored"), [(STABLE, STABLE_V1), (SIMPLE, SIMPLE_V1)])
def test_what_version_1_wrote_still_reads(group: ClassicGroup, stored: bytes) -> None:
    assert decode_group(group.group_id, stored) == group
    assert encode_group(group) == stored


def test_what_only_the_running_coordinator_knows_is_not_stored() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, "static")
    settled = encode_group(coordinator.there)
    coordinator.join()
    assert encode_group(coordinator.there) == settled
    coordinator.join(leader, using=protocols())
    loaded = decode_group("group", encode_group(coordinator.there))
    assert loaded.state is GroupState.PREPARING
    assert loaded.members.keys() == {leader, follower}
    assert not loaded.pending
    assert not loaded.parked_joins


def test_a_generation_without_assignments_expects_everyone() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    coordinator.sync(follower)
    loaded = decode_group("group", encode_group(coordinator.there))
    assert loaded.state is GroupState.COMPLETING
    assert loaded.owed_syncs == 2
    assert loaded.leader_id == leader


@pytest.mark.parametrize("size", range(len(STABLE_V1)))
def test_a_value_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ValueCorrupt, match="unreadable"):
        decode_group("payments", STABLE_V1[:size])


def test_a_value_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueCorrupt, match="1 bytes follow"):
        decode_group("payments", STABLE_V1 + b"\0")


def test_a_format_of_the_future_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match="classic group 'payments' is stored in format 2"):
        decode_group("payments", b"\2" + STABLE_V1[1:])


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueCorrupt, match="no state 4"):
        decode_group("payments", STABLE_V1[:1] + b"\4" + STABLE_V1[2:])


def test_a_leader_that_is_no_member_is_refused() -> None:
    for leader in ("nobody", None):
        with pytest.raises(ValueCorrupt, match="leader"):
            decode_group("payments", encode_group(replace(STABLE, leader_id=leader)))


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    try:
        decode_group("group", b"\1" + garbage)
    except ValueCorrupt:
        return


texts = st.text(max_size=20)
members = st.builds(
    Member,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    session_timeout_ms=st.integers(0, 2**31 - 1),
    rebalance_timeout_ms=st.integers(-(2**31), 2**31 - 1),
    protocols=st.lists(st.builds(Protocol, texts, st.binary(max_size=300)), max_size=4).map(tuple),
    assignment=st.binary(max_size=300),
)


@given(
    st.lists(members, max_size=5, unique_by=(lambda m: m.member_id, lambda m: m.instance_id or m.member_id)),
    st.sampled_from([GroupState.EMPTY, GroupState.PREPARING, GroupState.STABLE]),
    st.integers(0, 2**31 - 1),
    st.none() | texts,
)
def test_what_is_written_reads_back(
    table: list[Member], state: GroupState, generation: int, protocol: str | None
) -> None:
    leader = table[0].member_id if table else None
    group = ClassicGroup("group", 12345, state, generation, "other", protocol, leader).with_members(table)
    assert decode_group("group", encode_group(group)) == group
