"""JoinGroup: who is refused, who has to come again, and what a rejoin does in each state."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.classic.harness import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    protocols,
    subscription,
)

from dray.broker.groups.classic import ClassicGroupSettings, GroupState, JoinAnswer, JoinedMember, TimerKind
from dray.kafka.protocol import ErrorCode

# Refused before there is a group


def test_a_group_has_a_name() -> None:
    coordinator = Coordinator()
    token = coordinator.join("me", group_id="")
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.INVALID_GROUP_ID, "me")


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_is_neither_too_short_nor_too_long(session_ms: int) -> None:
    coordinator = Coordinator()
    token = coordinator.join("me", session_ms=session_ms)
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, "me")
    assert coordinator.group is None


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_a_session_at_the_bounds_is_good(session_ms: int) -> None:
    coordinator = Coordinator()
    token = coordinator.join(session_ms=session_ms)
    assert coordinator.joined(token).error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_of_an_unknown_group_is_unknown() -> None:
    coordinator = Coordinator()
    token = coordinator.join("me")
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "me")
    assert coordinator.group is None
    assert not coordinator.writes


@pytest.mark.parametrize(("protocol_type", "names"), [("", ["range"]), ("consumer", [])])
@pytest.mark.parametrize("is_known", [False, True])
def test_the_first_member_brings_a_protocol(protocol_type: str, names: list[str], is_known: bool) -> None:
    coordinator = Coordinator()
    if is_known:
        coordinator.commit()
    group, writes = coordinator.group, coordinator.writes
    token = coordinator.join(protocol_type=protocol_type, using=[(name, b"") for name in names])
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert coordinator.group is group
    assert coordinator.writes == writes


# Member ids


@pytest.mark.parametrize("version", [4, 9])
def test_a_client_has_to_come_again_with_the_id_it_is_given(version: int) -> None:
    coordinator = Coordinator()
    first = coordinator.joined(coordinator.join(version=version))
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.writes == 1, "a new group is stored"
    token = coordinator.join(first.member_id, version=version)
    coordinator.advance(DELAY_MS)
    assert coordinator.joined(token).error is ErrorCode.NONE
    assert coordinator.joined(token).member_id == first.member_id


@pytest.mark.parametrize("version", [0, 1, 3])
def test_older_clients_are_let_in_at_once(version: int) -> None:
    coordinator = Coordinator()
    token = coordinator.join(version=version)
    assert coordinator.is_parked(token)
    coordinator.advance(DELAY_MS)
    assert coordinator.joined(token).error is ErrorCode.NONE


def test_the_oldest_clients_have_one_timeout_for_both() -> None:
    coordinator = Coordinator()
    coordinator.join(version=0, rebalance_ms=-1)
    (member,) = coordinator.there.members.values()
    assert member.rebalance_timeout_ms == SESSION_MS


def test_from_version_1_on_clients_say_how_long_a_rebalance_may_take() -> None:
    coordinator = Coordinator()
    coordinator.join(version=1)
    (member,) = coordinator.there.members.values()
    assert member.rebalance_timeout_ms == REBALANCE_MS


def test_an_id_that_is_not_used_is_forgotten_after_a_session() -> None:
    coordinator = Coordinator()
    member = coordinator.joined(coordinator.join()).member_id
    coordinator.advance(SESSION_MS - 1)
    assert member in coordinator.there.pending
    coordinator.advance(1)
    assert member not in coordinator.there.pending
    assert coordinator.there.generation == 0, "that is no rebalance of an empty group"
    assert coordinator.joined(coordinator.join(member)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_handed_out_belongs_to_no_instance() -> None:
    coordinator = Coordinator()
    member = coordinator.joined(coordinator.join()).member_id
    token = coordinator.join(member, instance_id="one")
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, member)


def test_a_member_id_nobody_has_is_unknown() -> None:
    coordinator = Coordinator()
    coordinator.settle(None)
    assert coordinator.joined(coordinator.join("nobody")) == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "nobody")


# Protocols


@pytest.mark.parametrize("is_member", [False, True])
def test_the_protocol_type_of_a_group_is_one(is_member: bool) -> None:
    coordinator = Coordinator()
    _, follower = coordinator.settle(None, None)
    group = coordinator.group
    member = follower if is_member else ""
    token = coordinator.join(member, protocol_type="connect")
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member)
    assert coordinator.group is group


@pytest.mark.parametrize("is_member", [False, True])
def test_one_protocol_must_be_common_to_all(is_member: bool) -> None:
    coordinator = Coordinator()
    _, follower = coordinator.settle(None, None, using=protocols("range", "sticky"))
    member = follower if is_member else ""
    token = coordinator.join(member, using=protocols("roundrobin"))
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member)


def test_one_protocol_in_common_is_enough() -> None:
    coordinator = Coordinator()
    coordinator.settle(None, None, using=protocols("range", "sticky"))
    token = coordinator.join(version=3, using=protocols("roundrobin", "sticky"))
    assert coordinator.is_parked(token)


def test_an_empty_group_takes_any_protocol_type() -> None:
    coordinator = Coordinator()
    coordinator.leave(*coordinator.settle(None))
    assert coordinator.there.protocol_type == "consumer"
    coordinator.enrol(None, protocol_type="connect", using=[("default", b"")])
    assert coordinator.there.protocol_type == "connect"


def test_a_protocol_named_twice_counts_once() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.enrol(None, using=[("range", b"first"), ("range", b"second")])
    assert coordinator.member(member).metadata("range") == b"first"


# A rejoin, by state


def test_a_follower_that_asks_again_gets_the_generation_it_has() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    group, writes = coordinator.group, coordinator.writes
    answer = coordinator.joined(coordinator.join(follower))
    assert answer == JoinAnswer(ErrorCode.NONE, follower, 1, "consumer", "range", leader)
    assert coordinator.group is group
    assert coordinator.writes == writes


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    token = coordinator.join(leader)
    assert coordinator.is_parked(token)
    assert coordinator.state is GroupState.PREPARING
    assert coordinator.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_with_other_metadata_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    token = coordinator.join(follower, using=protocols("range", topics=["payments"]))
    assert coordinator.is_parked(token)
    coordinator.join(leader)
    answer = coordinator.joined(token)
    assert (answer.generation, answer.leader_id) == (2, leader)


def test_the_order_of_protocols_is_metadata_too() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.settle(None, None, using=protocols("range", "sticky"))
    coordinator.join(follower, using=protocols("sticky", "range"))
    assert coordinator.state is GroupState.PREPARING


def test_while_assignments_are_awaited_a_lost_answer_is_given_again() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    group = coordinator.group
    answer = coordinator.joined(coordinator.join(leader))
    assert answer.generation == 1
    assert answer.members == tuple(
        JoinedMember(member, None, subscription("orders")) for member in (leader, follower)
    )
    assert coordinator.joined(coordinator.join(follower)).members == ()
    assert coordinator.group is group


def test_while_assignments_are_awaited_other_metadata_starts_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    parked = coordinator.sync(follower)
    token = coordinator.join(leader, using=protocols("range", topics=["payments"]))
    assert coordinator.is_parked(token)
    assert coordinator.answers[parked].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.state is GroupState.PREPARING


def test_a_join_that_is_sent_again_replaces_the_first() -> None:
    coordinator = Coordinator()
    coordinator.enrol(None)
    first = coordinator.join(version=3)
    (member,) = [member for member in coordinator.there.members.values() if member.parked_join == first]
    second = coordinator.join(member.member_id, version=3)
    assert coordinator.joined(first) == JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    assert coordinator.is_parked(second)


def test_a_rejoin_brings_new_timeouts() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle(None, None)
    coordinator.join(leader, session_ms=20_000, rebalance_ms=90_000)
    assert coordinator.member(leader).session_timeout_ms == 20_000
    assert coordinator.timers[TimerKind.JOIN, ""] == coordinator.now_ms + 90_000


def test_who_left_starts_anew() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    coordinator.leave(member)
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.joined(coordinator.join(member)).error is ErrorCode.UNKNOWN_MEMBER_ID


# Large groups


def crowded(*instances: str | None) -> tuple[Coordinator, list[str]]:
    coordinator = Coordinator(ClassicGroupSettings(largest_group=len(instances)))
    return coordinator, coordinator.settle(*instances)


def test_a_full_group_takes_no_newcomer() -> None:
    coordinator, members = crowded(None, None)
    for instance in (None, "static"):
        token = coordinator.join(instance_id=instance)
        assert coordinator.joined(token) == JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert coordinator.joined(coordinator.join(members[1])).error is ErrorCode.NONE


def test_a_full_group_forgets_the_id_it_handed_out() -> None:
    coordinator = Coordinator(ClassicGroupSettings(largest_group=1))
    late = coordinator.joined(coordinator.join()).member_id
    coordinator.settle(None)
    assert coordinator.joined(coordinator.join(late)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not coordinator.there.pending


def test_of_those_who_rejoin_the_last_drop_out() -> None:
    coordinator = Coordinator()
    first, second, third = coordinator.settle(None, None, None)
    coordinator.settings = ClassicGroupSettings(largest_group=2)
    tokens = [coordinator.join(member) for member in (first, second, third)]
    assert [coordinator.joined(token).error for token in tokens] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert set(coordinator.there.members) == {first, second}


def test_who_waits_already_may_ask_again() -> None:
    coordinator = Coordinator()
    first, _ = coordinator.settle(None, None)
    coordinator.settings = ClassicGroupSettings(largest_group=1)
    coordinator.join(first)
    assert coordinator.is_parked(coordinator.join(first))


def test_an_empty_group_is_never_full() -> None:
    coordinator = Coordinator(ClassicGroupSettings(largest_group=1))
    tokens = [coordinator.join() for _ in range(3)]
    assert {coordinator.joined(token).error for token in tokens} == {ErrorCode.MEMBER_ID_REQUIRED}


def test_events_name_the_group_they_found() -> None:
    coordinator = Coordinator()
    coordinator.join()
    assert coordinator.there.group_id == GROUP
    assert coordinator.there.rebalance_timeout_ms == 0
    coordinator.join(version=3)
    assert coordinator.there.rebalance_timeout_ms == REBALANCE_MS


# Fat members


def fat(size: int) -> list[tuple[str, bytes]]:
    return [("range", bytes(size))]


def test_a_member_says_no_more_than_kafka_could_store() -> None:
    coordinator = Coordinator()
    many = [(f"protocol {number}", bytes(200_000)) for number in range(6)]
    for wrong in (fat(1 << 20), many):
        refused = coordinator.joined(coordinator.join(using=wrong))
        assert refused.error is ErrorCode.INVALID_REQUEST
        assert coordinator.group is None
    assert coordinator.joined(coordinator.join(using=fat(1_000_000))).error is (ErrorCode.MEMBER_ID_REQUIRED)


@pytest.mark.parametrize("stable", [True, False], ids=["stable", "in its first round"])
def test_a_group_takes_no_more_than_the_store_holds(stable: bool) -> None:
    coordinator = Coordinator(ClassicGroupSettings().held_by(2_000))
    if stable:
        [member] = coordinator.settle(None)
    else:
        member = coordinator.joined(coordinator.join()).member_id
        assert coordinator.is_parked(coordinator.join(member))
    refused = coordinator.joined(coordinator.join(instance_id="static", using=fat(1_500)))
    assert refused == JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    coordinator.join(instance_id="static", using=fat(800))
    assert "static" in coordinator.there.static
    coordinator.join(instance_id="static", using=fat(1_000))  # in the place of the one before
    held = coordinator.there.members[coordinator.there.static["static"]]
    assert len(held.protocols[0].metadata) == 1_000
    assert coordinator.there.size <= 2_000


def test_ids_that_nobody_comes_for_have_a_bound() -> None:
    coordinator = Coordinator(ClassicGroupSettings().held_by(10_000))
    answers = [coordinator.joined(coordinator.join()).error for _ in range(100)]
    handed_out = answers.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert 20 < handed_out < 40
    assert answers[handed_out:] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * (100 - handed_out)
    coordinator.advance(SESSION_MS)
    assert (coordinator.there.size, coordinator.there.pending) == (0, frozenset())
