"""A coordinator dies, and another one goes on from what is stored."""

from __future__ import annotations

from tests.unit.broker.groups.classic.harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    protocols,
)

from dray.broker.groups.classic import (
    ClassicGroupSettings,
    GroupState,
    SyncAnswer,
    TakenOver,
    TimerKind,
    decode_group,
    encode_group,
)
from dray.kafka.protocol import ErrorCode


def test_members_of_a_stable_group_go_on() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, "static")
    coordinator.advance(SESSION_MS - 1)
    coordinator.take_over()
    assert coordinator.state is GroupState.STABLE
    for member in (leader, follower):
        assert coordinator.timers[TimerKind.SESSION, member] == coordinator.now_ms + SESSION_MS
        assert coordinator.beat(member) is ErrorCode.NONE
        assert coordinator.commit(member, 1) is ErrorCode.NONE
    assert coordinator.answer(coordinator.sync(follower), SyncAnswer).assignment == b"1"
    assert coordinator.there.is_subscribed_to("orders")
    assert not coordinator.there.is_subscribed_to("payments")


def test_members_that_do_not_come_back_are_dropped() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.take_over()
    coordinator.advance(SESSION_MS - 1)
    coordinator.beat(follower)
    coordinator.advance(1)
    assert leader not in coordinator.there.members
    assert coordinator.joined(coordinator.join(follower)).leader_id == follower


def test_a_rebalance_that_had_only_begun_is_begun_again_by_the_members() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    parked = coordinator.join(leader)
    newcomer = coordinator.join(version=3)
    (newcomer_id,) = coordinator.there.members.keys() - {leader, follower}
    coordinator.take_over()
    assert coordinator.joined(parked).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.joined(newcomer).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.beat(follower, 1) is ErrorCode.NONE, "the last generation goes on"
    assert coordinator.joined(coordinator.join(newcomer_id)).error is ErrorCode.UNKNOWN_MEMBER_ID
    first = coordinator.join(leader)
    assert coordinator.beat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    second = coordinator.join(follower)
    assert coordinator.joined(first).generation == coordinator.joined(second).generation == 2


def test_a_settled_generation_gets_its_assignments_from_the_next_coordinator() -> None:
    coordinator = Coordinator()
    leader, follower, third = coordinator.enrol(None, None, None)
    parked = coordinator.sync(follower)
    coordinator.take_over()
    assert coordinator.answer(parked, SyncAnswer).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.state is GroupState.COMPLETING
    assert coordinator.timers[TimerKind.SYNC, ""] == coordinator.now_ms + REBALANCE_MS
    again = coordinator.sync(follower)
    coordinator.sync(leader, assignments=[(follower, b"A")])
    assert coordinator.answer(again, SyncAnswer).assignment == b"A"
    assert coordinator.joined(coordinator.join(third)).generation == 1


def test_an_answer_to_a_join_that_was_lost_is_given_again() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    coordinator.take_over()
    assert len(coordinator.joined(coordinator.join(leader)).members) == 2
    assert coordinator.joined(coordinator.join(follower)).generation == 1


def test_members_that_owe_a_sync_are_dropped_by_the_next_coordinator_too() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    coordinator.take_over()
    coordinator.sync(leader)
    for _ in range(REBALANCE_MS // 5_000):
        coordinator.beat(follower, 1)
        coordinator.beat(leader, 1)
        coordinator.advance(5_000)
    assert set(coordinator.there.members) == {leader}


def test_a_generation_is_never_used_twice() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(leader)
    coordinator.join(follower)
    assert coordinator.there.generation == 2
    coordinator.take_over()
    assert coordinator.there.generation == 2
    coordinator.leave(follower)
    assert coordinator.joined(coordinator.join(leader)).generation == 3


def test_who_waited_for_the_first_generation_starts_anew() -> None:
    coordinator = Coordinator()
    parked = coordinator.join(version=3)
    (nobody,) = coordinator.there.members
    coordinator.take_over()
    assert coordinator.joined(parked).error is ErrorCode.NOT_COORDINATOR
    assert coordinator.state is GroupState.EMPTY
    again = coordinator.join(version=3)
    coordinator.advance(DELAY_MS)
    answer = coordinator.joined(again)
    assert [member.member_id for member in answer.members] == [answer.member_id]
    assert nobody != answer.member_id


def test_an_id_that_was_handed_out_is_unknown_to_the_next() -> None:
    coordinator = Coordinator()
    pending = coordinator.joined(coordinator.join()).member_id
    coordinator.take_over()
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.joined(coordinator.join(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_emptied_group_stays_empty_and_as_old_as_it_is() -> None:
    coordinator = Coordinator()
    coordinator.leave(*coordinator.settle(None))
    emptied = coordinator.now_ms
    coordinator.advance(50_000)
    coordinator.take_over()
    assert coordinator.there.since_ms == emptied
    assert not coordinator.timers


def test_a_static_member_that_was_replaced_stays_replaced() -> None:
    coordinator = Coordinator()
    _, old = coordinator.settle("one", "two")
    back = coordinator.joined(coordinator.join(instance_id="two")).member_id
    coordinator.take_over()
    assert coordinator.beat(old, 1, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.beat(back, 1, "two") is ErrorCode.NONE


def test_a_group_that_has_become_too_large_shrinks() -> None:
    coordinator = Coordinator()
    first, second, third = coordinator.settle(None, None, None)
    coordinator.settings = ClassicGroupSettings(largest_group=2)
    coordinator.take_over()
    assert coordinator.beat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [coordinator.join(member) for member in (first, second, third)]
    errors = [coordinator.joined(token).error for token in tokens]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_group_that_is_just_full_goes_on() -> None:
    coordinator = Coordinator(ClassicGroupSettings(largest_group=2))
    members = coordinator.settle(None, None)
    coordinator.take_over()
    assert [coordinator.beat(member, 1) for member in members] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_rebalance_that_was_stored_is_gone_on_with() -> None:
    """Nothing here stores one, but whoever does finds that its members are called to join again."""
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(leader)
    coordinator.stored = encode_group(coordinator.there)
    coordinator.take_over()
    assert coordinator.state is GroupState.PREPARING
    assert coordinator.beat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    first, second = coordinator.join(leader), coordinator.join(follower)
    assert coordinator.joined(first).generation == coordinator.joined(second).generation == 2


def test_nobody_takes_over_a_group_that_is_not_there() -> None:
    coordinator = Coordinator()
    assert coordinator.handle(TakenOver()).group is None


def test_what_could_not_be_stored_did_not_happen() -> None:
    """A state is never changed, so the one before is still whole."""
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    before = coordinator.there
    copy = decode_group("group", encode_group(before))
    coordinator.join(leader, using=protocols(topics=["x"]))
    coordinator.join(follower)
    coordinator.advance(DELAY_MS)
    assert encode_group(before) == encode_group(copy)
    assert before.state is GroupState.STABLE
    assert not before.parked_joins
