"""The rounds of a group: the initial delay, who is waited for and how long, who leads, and the vote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.broker.groups.classic.harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    protocols,
    subscription,
)

from dray.broker.groups.classic import (
    ClassicGroupSettings,
    GroupState,
    Join,
    JoinAnswer,
    JoinedMember,
    SyncAnswer,
    TimerFired,
    TimerKind,
    handle,
)
from dray.kafka.protocol import ErrorCode

# The initial delay


def test_the_first_member_waits_for_others() -> None:
    coordinator = Coordinator()
    token = coordinator.join(version=3)
    coordinator.advance(DELAY_MS - 1)
    assert coordinator.is_parked(token)
    coordinator.advance(1)
    answer = coordinator.joined(token)
    assert (answer.generation, answer.leader_id) == (1, answer.member_id)


def test_whoever_comes_extends_the_delay() -> None:
    coordinator = Coordinator()
    first = coordinator.join(version=3)
    coordinator.advance(DELAY_MS - 1)
    second = coordinator.join(version=3)
    coordinator.advance(DELAY_MS)
    assert coordinator.is_parked(first, second)
    coordinator.advance(1)
    assert coordinator.joined(first).generation == coordinator.joined(second).generation == 1


def test_the_delay_is_never_longer_than_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    start = coordinator.now_ms
    first = coordinator.join(version=3, rebalance_ms=10_000)
    while coordinator.is_parked(first):
        coordinator.advance(500)
        if coordinator.is_parked(first):
            coordinator.join(version=3, rebalance_ms=10_000)
    assert coordinator.now_ms - start == 10_000


def test_a_rebalance_timeout_shorter_than_the_delay_does_not_shorten_it() -> None:
    coordinator = Coordinator()
    first = coordinator.join(version=3, rebalance_ms=1_000)
    coordinator.advance(500)
    coordinator.join(version=3, rebalance_ms=1_000)
    coordinator.advance(DELAY_MS - 501)
    assert coordinator.is_parked(first)
    coordinator.advance(1)
    assert not coordinator.is_parked(first)


def test_everyone_being_here_does_not_end_the_delay() -> None:
    coordinator = Coordinator()
    pending = coordinator.joined(coordinator.join()).member_id
    token = coordinator.join(version=3)
    coordinator.leave(pending)
    assert coordinator.is_parked(token)


def test_everyone_may_leave_during_the_delay() -> None:
    coordinator = Coordinator()
    token = coordinator.join(version=3)
    (member,) = coordinator.there.members
    coordinator.leave(member)
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")
    coordinator.advance(DELAY_MS)
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.there.generation == 1


def test_without_a_delay_the_group_starts_at_once() -> None:
    coordinator = Coordinator(ClassicGroupSettings(initial_rebalance_delay_ms=0))
    token = coordinator.join(version=3)
    coordinator.advance(0)
    assert coordinator.joined(token).generation == 1


def test_a_group_that_was_emptied_starts_with_a_delay_again() -> None:
    coordinator = Coordinator()
    coordinator.leave(*coordinator.settle(None))
    token = coordinator.join(version=3)
    coordinator.advance(DELAY_MS - 1)
    assert coordinator.is_parked(token)
    coordinator.advance(1)
    assert coordinator.joined(token).generation == 3


# Who is waited for


def test_a_rebalance_is_over_when_everyone_is_here() -> None:
    coordinator = Coordinator()
    members = coordinator.settle(None, None)
    newcomer = coordinator.join(version=3)
    first = coordinator.join(members[0])
    assert coordinator.is_parked(newcomer, first)
    last = coordinator.join(members[1])
    assert {coordinator.joined(token).generation for token in (newcomer, first, last)} == {2}
    assert coordinator.state is GroupState.COMPLETING
    assert coordinator.stored is not None, "a settled generation is stored before anyone is told"


def test_an_id_that_was_handed_out_is_waited_for() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    pending = coordinator.joined(coordinator.join()).member_id
    token = coordinator.join(member)
    assert coordinator.is_parked(token)
    coordinator.join(pending)
    assert coordinator.joined(token).generation == 2


def test_an_id_that_is_not_used_is_waited_for_no_longer_than_its_session() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    coordinator.join()
    token = coordinator.join(member)
    coordinator.advance(SESSION_MS)
    assert coordinator.joined(token).generation == 2


def test_at_the_rebalance_timeout_dynamic_members_that_are_not_here_are_dropped() -> None:
    coordinator = Coordinator()
    first, second, third = coordinator.settle(None, None, None)
    tokens = [coordinator.join(first), coordinator.join(second, using=protocols(topics=["x"]))]
    for _ in range(REBALANCE_MS // 5_000 - 1):
        coordinator.advance(5_000)
        assert coordinator.beat(third) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.is_parked(*tokens)
    coordinator.advance(5_000)
    assert [coordinator.joined(token).generation for token in tokens] == [2, 2]
    assert set(coordinator.there.members) == {first, second}
    assert coordinator.beat(third) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_slowest_member_says_how_long_is_waited() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(version=3, rebalance_ms=timeout) for timeout in (20_000, 50_000, 30_000)]
    coordinator.advance(2 * DELAY_MS)
    leader = coordinator.joined(tokens[0]).leader_id
    coordinator.join(leader, using=protocols(topics=["x"]), rebalance_ms=20_000)
    assert coordinator.timers[TimerKind.JOIN, ""] == coordinator.now_ms + 50_000


def test_at_the_rebalance_timeout_static_members_stay() -> None:
    coordinator = Coordinator()
    first, second = coordinator.settle("one", "two", session_ms=100_000)
    token = coordinator.join(first, instance_id="one", session_ms=100_000)
    coordinator.advance(REBALANCE_MS)
    answer = coordinator.joined(token)
    assert answer.generation == 2
    assert [member.member_id for member in answer.members] == [first, second]


def test_when_only_static_members_are_left_and_none_is_here_the_group_waits_on() -> None:
    coordinator = Coordinator()
    leader, static = coordinator.settle(None, "static", session_ms=100_000, rebalance_ms=30_000)
    coordinator.leave(leader)
    generation = coordinator.there.generation
    coordinator.advance(30_000)
    assert coordinator.state is GroupState.PREPARING
    assert coordinator.there.generation == generation
    token = coordinator.join(static, instance_id="static")
    assert coordinator.joined(token).generation == generation + 1


def test_when_nobody_comes_at_all_the_group_is_empty() -> None:
    coordinator = Coordinator()
    coordinator.settle(None, "static", rebalance_ms=30_000)
    coordinator.advance(200_000)
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.there.since_ms < coordinator.now_ms


# Who leads, and with what


def test_the_leader_alone_is_told_who_is_in() -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(version=3), coordinator.join(version=7, instance_id="static")]
    coordinator.advance(2 * DELAY_MS)
    leader, follower = (coordinator.joined(token) for token in tokens)
    assert leader.members == (
        JoinedMember(leader.member_id, None, subscription("orders")),
        JoinedMember(follower.member_id, "static", subscription("orders")),
    )
    assert follower == JoinAnswer(
        ErrorCode.NONE, follower.member_id, 1, "consumer", "range", leader.member_id
    )


def test_the_leader_stays_the_leader() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(follower, using=protocols(topics=["x"]))
    coordinator.join(leader)
    assert coordinator.there.leader_id == leader


def test_the_leader_need_not_be_the_one_who_was_first() -> None:
    coordinator = Coordinator()
    first, second = coordinator.settle("first", None, session_ms=100_000)
    elected = coordinator.join(second, using=protocols(topics=["x"]), session_ms=100_000)
    coordinator.advance(REBALANCE_MS)
    assert coordinator.joined(elected).leader_id == second
    coordinator.join(first, instance_id="first", using=protocols(topics=["y"]))
    coordinator.join(second, using=protocols(topics=["x"]))
    assert coordinator.there.generation == 3
    assert coordinator.there.leader_id == second


def test_a_leader_that_does_not_come_is_replaced_by_one_who_did() -> None:
    coordinator = Coordinator()
    _, absent, follower = coordinator.settle("leader", "absent", None, session_ms=100_000)
    token = coordinator.join(follower, using=protocols(topics=["x"]), session_ms=100_000)
    coordinator.advance(REBALANCE_MS)
    answer = coordinator.joined(token)
    assert answer.leader_id == follower
    assert len(answer.members) == 3
    assert absent in coordinator.there.members


@pytest.mark.parametrize(
    ("choices", "winner"),
    [
        (["range sticky", "range sticky", "sticky range"], "range"),
        (["range sticky", "sticky range", "sticky range"], "sticky"),
        (["range sticky", "range sticky", "sticky"], "sticky"),
        (["fancy range sticky", "sticky range", "range sticky"], "range"),
    ],
)
def test_each_member_votes_for_its_first_choice_among_the_common_ones(
    choices: list[str], winner: str
) -> None:
    coordinator = Coordinator()
    tokens = [coordinator.join(version=3, using=protocols(*choice.split())) for choice in choices]
    coordinator.advance(2 * DELAY_MS)
    assert {coordinator.joined(token).protocol_name for token in tokens} == {winner}


@pytest.mark.parametrize(
    ("one", "other", "winner"),
    [
        # As Apache Kafka 4.2 answered.
        ("range", "roundrobin", "range"),
        ("range", "sticky", "sticky"),
        ("roundrobin", "sticky", "sticky"),
        ("cooperative-sticky", "range", "range"),
        ("a", "b", "a"),
        ("a", "zz", "zz"),
    ],
)
def test_a_tie_is_broken_as_kafka_breaks_it(one: str, other: str, winner: str) -> None:
    for choices in ((one, other), (other, one)):
        coordinator = Coordinator()
        coordinator.join(version=3, using=protocols(*choices))
        coordinator.join(version=3, using=protocols(*reversed(choices)))
        coordinator.advance(2 * DELAY_MS)
        assert coordinator.there.protocol_name == winner


@pytest.mark.parametrize(("names", "winner"), [("0ABCDEFGHIJK", "0"), ("0ABCDEFGHIJKL", "A")])
def test_java_s_hash_map_grows_with_the_thirteenth_protocol(names: str, winner: str) -> None:
    """Of 16 buckets, `0` is in number 0 and `A` in number 1; of 32, `0` is in number 16."""
    coordinator = Coordinator()
    for turn in range(len(names)):
        coordinator.join(version=3, using=protocols(*names[turn:], *names[:turn]))
    coordinator.advance(2 * DELAY_MS)
    assert coordinator.there.protocol_name == winner


# Sessions


def test_a_member_that_is_not_heard_of_is_dropped() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle(None, None)
    coordinator.advance(SESSION_MS - 1)
    assert coordinator.beat(leader) is ErrorCode.NONE
    coordinator.advance(1)
    assert set(coordinator.there.members) == {leader}
    assert coordinator.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.joined(coordinator.join(leader)).generation == 2


def test_who_waits_for_the_others_need_not_send_heartbeats() -> None:
    coordinator = Coordinator()
    first, second = coordinator.settle(None, None)
    token = coordinator.join(first)
    for _ in range(10):
        coordinator.advance(5_000)
        coordinator.beat(second)
    assert coordinator.is_parked(token)
    assert first in coordinator.there.members


def test_who_waits_for_its_assignment_need_not_send_heartbeats() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    token = coordinator.sync(follower)
    for _ in range(10):
        coordinator.advance(5_000)
        coordinator.beat(leader)
    assert coordinator.is_parked(token)


def test_a_newcomer_is_not_parked_for_ever() -> None:
    """Its client may have given up and come again under another id."""
    coordinator = Coordinator(ClassicGroupSettings(new_member_join_timeout_ms=20_000))
    (member,) = coordinator.settle(None)
    token = coordinator.join(version=3)
    for _ in range(3):
        coordinator.advance(5_000)
        coordinator.beat(member)
    assert coordinator.is_parked(token)
    coordinator.advance(5_000)
    assert coordinator.joined(token) == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert set(coordinator.there.members) == {member}


def test_a_leader_that_dies_before_it_assigns_costs_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    token = coordinator.sync(follower)
    coordinator.advance(SESSION_MS)
    assert leader not in coordinator.there.members
    assert coordinator.answer(token, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("kind", list(TimerKind))
def test_a_timer_that_comes_too_late_does_nothing(kind: TimerKind) -> None:
    coordinator = Coordinator()
    assert coordinator.handle(TimerFired(kind, "nobody")).group is None
    coordinator.settle(None, None)
    group = coordinator.group
    result = coordinator.handle(TimerFired(kind, "nobody"))
    assert result.group is group
    assert not result.persist


def test_generations_start_again_before_they_leave_the_wire_format() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    last = replace(coordinator.there, generation=2**31 - 1)
    rejoin = Join(0, "group", member, 7, SESSION_MS, REBALANCE_MS, "consumer", protocols())
    result = handle(last, rejoin, coordinator.now_ms, coordinator.settings)
    assert result.group is not None
    assert result.group.generation == 0
