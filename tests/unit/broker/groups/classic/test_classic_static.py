"""Static members: back after a restart under a new id, without a rebalance where none is needed."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.classic.harness import (
    DELAY_MS,
    SESSION_MS,
    Coordinator,
    protocols,
    subscription,
)

from dray.broker.groups.classic import (
    GroupState,
    JoinAnswer,
    JoinedMember,
    SyncAnswer,
    TimerKind,
    decode_group,
)
from dray.kafka.protocol import ErrorCode


@pytest.mark.parametrize("version", [5, 8])
def test_a_leader_that_is_back_must_not_take_itself_for_the_leader(version: int) -> None:
    """Before version 9 nothing else keeps it from assigning, and a stable group would not listen."""
    coordinator = Coordinator()
    leader, _ = coordinator.settle("one", "two")
    answer = coordinator.joined(coordinator.join(version=version, instance_id="one"))
    assert answer == JoinAnswer(ErrorCode.NONE, answer.member_id, 1, "consumer", "range", leader)
    assert answer.member_id not in ("", leader)
    assert coordinator.there.leader_id == answer.member_id


def test_from_version_9_on_a_leader_that_is_back_skips_the_assignment() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.settle("one", "two")
    answer = coordinator.joined(coordinator.join(version=9, instance_id="one"))
    assert answer.leader_id == answer.member_id
    assert answer.skip_assignment
    assert answer.members == (
        JoinedMember(answer.member_id, "one", subscription("orders")),
        JoinedMember(follower, "two", subscription("orders")),
    )


@pytest.mark.parametrize("version", [5, 9])
def test_a_follower_that_is_back_is_a_follower(version: int) -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle("one", "two")
    answer = coordinator.joined(coordinator.join(version=version, instance_id="two"))
    assert answer == JoinAnswer(ErrorCode.NONE, answer.member_id, 1, "consumer", "range", leader)


def test_who_is_back_keeps_what_it_had() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle("one", "two")
    writes = coordinator.writes
    back = coordinator.joined(coordinator.join(instance_id="two")).member_id
    assert coordinator.state is GroupState.STABLE
    assert coordinator.writes == writes + 1, "the new id is stored before it is told"
    assert coordinator.stored is not None
    assert decode_group("group", coordinator.stored).static == {"one": leader, "two": back}
    assert coordinator.answer(coordinator.sync(back), SyncAnswer).assignment == b"1"
    assert coordinator.beat(leader) is ErrorCode.NONE
    assert (TimerKind.SESSION, follower) not in coordinator.timers
    assert coordinator.timers[TimerKind.SESSION, back] == coordinator.now_ms + SESSION_MS


def test_the_old_id_is_fenced() -> None:
    coordinator = Coordinator()
    _, old = coordinator.settle("one", "two")
    coordinator.join(instance_id="two")
    assert coordinator.beat(old, instance_id="two") is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.beat(old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(old, 1, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.leave((old, "two")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert coordinator.joined(coordinator.join(old, instance_id="two")) == JoinAnswer(
        ErrorCode.FENCED_INSTANCE_ID, old
    )
    sync = coordinator.sync(old, instance_id="two")
    assert coordinator.answer(sync, SyncAnswer).error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_nobody_has_is_unknown() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle("one", "two")
    assert coordinator.beat(leader, instance_id="three") is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.joined(coordinator.join(leader, instance_id="three")).error is (
        ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_static_member_that_knows_its_id_is_a_member_like_any_other() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.settle("one", "two")
    group = coordinator.group
    assert coordinator.joined(coordinator.join(follower, instance_id="two")).error is ErrorCode.NONE
    assert coordinator.group is group


def test_a_parked_join_is_fenced() -> None:
    coordinator = Coordinator()
    first = coordinator.join(instance_id="one")
    (old,) = coordinator.there.members
    second = coordinator.join(instance_id="one")
    assert coordinator.joined(first) == JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old)
    coordinator.advance(DELAY_MS)
    assert coordinator.joined(second).generation == 1
    assert len(coordinator.there.members) == 1


def test_a_parked_sync_is_fenced_and_the_generation_is_over() -> None:
    """The leader may be assigning to the old id at this moment."""
    coordinator = Coordinator()
    leader, follower, other = coordinator.enrol("one", "two", "three")
    fenced, called_off = coordinator.sync(follower), coordinator.sync(other)
    back = coordinator.join(instance_id="two")
    assert coordinator.answer(fenced, SyncAnswer).error is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.answer(called_off, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.is_parked(back)
    coordinator.join(leader, instance_id="one")
    coordinator.join(other, instance_id="three")
    assert coordinator.joined(back).generation == 2


def test_who_is_back_during_a_rebalance_is_there() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle("one", "two")
    first = coordinator.join(leader, instance_id="one")
    back = coordinator.join(instance_id="two")
    assert coordinator.joined(first).generation == coordinator.joined(back).generation == 2


def test_another_choice_of_protocol_is_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle("one", "two", using=protocols("range", "sticky"))
    back = coordinator.join(instance_id="two", using=protocols("sticky"))
    assert coordinator.is_parked(back)
    first = coordinator.join(leader, instance_id="one", using=protocols("range", "sticky"))
    assert coordinator.joined(first).protocol_name == coordinator.joined(back).protocol_name == "sticky"


def test_other_metadata_alone_is_no_rebalance_but_the_topics_are_known() -> None:
    coordinator = Coordinator()
    coordinator.settle("one", "two")
    answer = coordinator.joined(coordinator.join(instance_id="two", using=protocols(topics=["payments"])))
    assert answer.generation == 1
    assert coordinator.there.subscribed_topics == frozenset({"orders", "payments"})


def test_a_static_member_that_went_away_is_dropped_after_its_session() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle("one", "two")
    coordinator.advance(SESSION_MS - 1)
    coordinator.beat(leader)
    coordinator.advance(1)
    assert follower not in coordinator.there.members
    assert "two" not in coordinator.there.static


def test_who_is_back_still_owes_the_sync_of_its_predecessor() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.enrol("one", "two")
    coordinator.sync(leader)
    back = coordinator.joined(coordinator.join(instance_id="two")).member_id
    assert coordinator.there.owed_syncs == 1
    coordinator.sync(back)
    assert coordinator.there.owed_syncs == 0
