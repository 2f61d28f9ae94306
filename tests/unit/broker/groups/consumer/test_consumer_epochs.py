"""What gives a group a new epoch, who decides the targets, and what ends a membership."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, listed, parts

from dray.broker.groups.consumer import (
    ConsumerGroupSettings,
    GroupState,
    TimerFired,
    TimerKind,
    decode_group,
    encode_group,
    timers_after_load,
)

ALL = parts(a=[0, 1, 2, 3])


def test_the_first_member_starts_the_group_at_epoch_1() -> None:
    coordinator = Coordinator()
    assert coordinator.join("m1").member_epoch == 1
    assert (coordinator.state.epoch, coordinator.state.assignment_epoch) == (1, 1)
    assert coordinator.state.state is GroupState.STABLE


def test_a_new_member_is_a_new_epoch() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    coordinator.join("m2")
    assert (coordinator.state.epoch, coordinator.state.assignment_epoch) == (2, 2)


def test_another_subscription_is_a_new_epoch_and_the_same_in_another_order_is_none() -> None:
    coordinator = Coordinator(topics={"a": 1, "b": 1})
    coordinator.join("m1", "a", "b")
    coordinator.beat("m1", 1, topic_names=["b", "a"])
    assert coordinator.state.epoch == 1
    coordinator.beat("m1", 1, topic_names=["b"])
    assert coordinator.state.epoch == 2


def test_another_assignor_alone_is_no_new_epoch() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    coordinator.beat("m1", 1, server_assignor="range")
    assert coordinator.state.epoch == 1


class TestTopics:
    def test_that_grow_are_a_new_epoch_for_their_subscribers(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.set_topics(a=5)
        answer = coordinator.beat("m1", 1)
        assert (answer.member_epoch, answer.assignment) == (2, parts(a=[0, 1, 2, 3, 4]))

    def test_that_appear_are_a_new_epoch(self) -> None:
        coordinator = Coordinator(topics={})
        assert coordinator.join("m1").assignment == {}
        coordinator.set_topics(a=4)
        assert coordinator.beat("m1", 1).assignment == ALL

    def test_that_go_are_a_new_epoch_and_are_given_up(self) -> None:
        coordinator = Coordinator(topics={"a": 1, "b": 1})
        coordinator.join("m1", "a", "b")
        coordinator.set_topics(a=1)
        answer = coordinator.beat("m1", 1)
        assert (answer.member_epoch, answer.assignment) == (1, parts(a=[0]))
        assert coordinator.beat("m1", 1, owned=listed(parts(a=[0]))).member_epoch == 2

    def test_that_are_made_anew_under_the_same_name_are_others(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.set_topics()
        coordinator.set_topics(a=4)
        assert coordinator.beat("m1", 1).assignment == {}
        answer = coordinator.beat("m1", 1, owned=[])
        assert (answer.member_epoch, answer.assignment) == (2, {coordinator.ids["a"]: frozenset(range(4))})

    def test_that_nobody_subscribes_to_change_nothing(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.set_topics(a=4, b=7)
        assert not coordinator.send("m1", 1).persist
        before = coordinator.group
        coordinator.send("m1", 1)
        assert coordinator.group is before, "one look at each version of the topics is enough"

    def test_are_looked_at_again_by_the_next_coordinator(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.topics = {"a": 5}  # another broker's view: its numbers mean nothing here
        coordinator.beat("m1", 1)
        assert coordinator.state.epoch == 1
        coordinator.group = decode_group("group", encode_group(coordinator.state))
        coordinator.beat("m1", 1)
        assert coordinator.state.epoch == 2


class TestTheAssignor:
    def targets(self, coordinator: Coordinator) -> list[dict[str, list[int]]]:
        names = {topic_id: name for name, topic_id in coordinator.ids.items()}
        members = coordinator.state.members
        return [
            {names[topic_id]: sorted(held) for topic_id, held in members[member_id].target.items()}
            for member_id in sorted(members)
        ]

    @pytest.mark.parametrize(
        ("votes", "chosen"),
        [
            ([None, None, None], "uniform"),
            (["range", None, None], "range"),
            (["range", "uniform", None], "uniform"),
            (["range", "range", "uniform"], "range"),
        ],
    )
    def test_is_the_one_that_most_members_name(self, votes: list[str | None], chosen: str) -> None:
        coordinator = Coordinator(topics={"a": 4, "b": 4})
        for number, vote in enumerate(votes, start=1):
            coordinator.join(f"m{number}", "a", "b", server_assignor=vote)
        sizes = sorted(sum(map(len, target.values())) for target in self.targets(coordinator))
        assert sizes == ([2, 3, 3] if chosen == "uniform" else [2, 2, 4])

    def test_is_the_first_configured_where_nobody_names_one(self) -> None:
        settings = ConsumerGroupSettings(assignors=("range", "uniform"))
        coordinator = Coordinator(topics={"a": 1, "b": 1}, settings=settings)
        coordinator.join("m1", "a", "b")
        coordinator.join("m2", "a", "b")
        assert self.targets(coordinator) == [{"a": [0], "b": [0]}, {}]

    def test_is_never_one_that_is_configured_no_longer(self) -> None:
        coordinator = Coordinator(topics={"a": 1, "b": 1})
        coordinator.join("m1", "a", "b", server_assignor="uniform")
        coordinator.settings = ConsumerGroupSettings(assignors=("range",))
        coordinator.join("m2", "a", "b")
        assert self.targets(coordinator) == [{"a": [0], "b": [0]}, {}]

    @pytest.mark.parametrize(
        ("subscriptions", "alike"),
        [
            ([{"names": "ab"}, {"names": "ab"}], True),
            ([{"names": "ab"}, {"names": "abz"}], False),
            ([{"regex": "[ab]"}, {"regex": "[ab]"}], True),
            ([{"regex": "[ab]"}, {"names": "ab"}], False),
            ([{"regex": "[ab]"}, {"regex": "[ab]", "names": "a"}], False),
        ],
    )
    def test_hears_whether_all_asked_for_the_same_in_the_same_way(
        self, subscriptions: list[dict[str, str]], alike: bool
    ) -> None:
        """Told by the hand-out of `uniform`: in runs where all asked alike, else one by one."""
        coordinator = Coordinator(
            topics={"a": 2, "b": 2}, settings=ConsumerGroupSettings(regex_refresh_pause_ms=0)
        )
        coordinator.join("m0", "d")
        for number, subscription in enumerate(subscriptions, start=1):
            names = subscription.get("names", "")
            coordinator.join(f"m{number}", topic_names=[*names], topic_regex=subscription.get("regex"))
        coordinator.send("m0", -1)
        if coordinator.asked is not None:
            coordinator.resolve(ab="ab")
        coordinator.group = replace(
            coordinator.state,
            members={key: replace(member, target={}) for key, member in coordinator.state.members.items()},
        )
        coordinator.beat("m1", coordinator.state.members["m1"].epoch)
        runs = [{"a": [0, 1]}, {"b": [0, 1]}]
        assert (self.targets(coordinator) == runs) is alike


class TestSessions:
    def test_start_anew_with_every_heartbeat(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.now_ms += 5_000
        coordinator.beat("m1", 1)
        assert coordinator.timers[TimerKind.SESSION, "m1"].at_ms == coordinator.now_ms + 45_000

    def test_have_the_length_that_is_set_for_the_group(self) -> None:
        coordinator = Coordinator(settings=ConsumerGroupSettings().for_group(session_timeout_ms=50_000))
        coordinator.join("m1")
        assert coordinator.timers[TimerKind.SESSION, "m1"].at_ms == coordinator.now_ms + 50_000

    def test_that_end_remove_the_member_and_free_what_it_had(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.join("m2")
        result = coordinator.expire(TimerKind.SESSION, "m1")
        assert result.persist
        assert result.answer is None
        assert coordinator.state.epoch == 3
        assert coordinator.beat("m2", 2).assignment == ALL

    def test_of_someone_gone_change_nothing(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        assert not coordinator.handle(TimerFired(TimerKind.SESSION, "m2", 1)).persist
        assert coordinator.state.epoch == 1
        assert Coordinator().handle(TimerFired(TimerKind.SESSION, "m2", 1)) == (None, (), False, ())

    def test_start_anew_under_the_next_coordinator_and_so_do_revocations(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.join("m2")
        coordinator.beat("m1", 1, rebalance_timeout_ms=7_000)
        loaded = decode_group("group", encode_group(coordinator.state))
        timers = timers_after_load(loaded, 100, coordinator.settings)
        assert {(timer[0], timer[1], timer[2], timer[3]) for timer in timers} == {  # type: ignore[misc]
            (TimerKind.SESSION, "m1", 45_100, 1),
            (TimerKind.SESSION, "m2", 45_100, 2),
            (TimerKind.REBALANCE, "m1", 7_100, 1),
        }


class TestLeaving:
    def test_frees_what_the_member_had(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.join("m2")
        answer = coordinator.beat("m1", -1)
        assert answer == ("m1", -1, 0, None)
        assert coordinator.timers.keys() == {(TimerKind.SESSION, "m2")}
        assert coordinator.beat("m2", 2).assignment == ALL

    def test_of_the_last_leaves_an_empty_group_whose_epoch_goes_on(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.beat("m1", -1)
        assert coordinator.state.state is GroupState.EMPTY
        assert (coordinator.state.epoch, coordinator.state.topics) == (2, {})
        assert coordinator.join("m2").member_epoch == 3

    def test_is_assigned_when_another_member_comes_by(self) -> None:
        coordinator = Coordinator()
        coordinator.join("m1")
        coordinator.join("m2")
        coordinator.beat("m1", -1)
        assert coordinator.state.state is GroupState.ASSIGNING
        assert coordinator.state.assignment_epoch == 2


class TestSettings:
    def test_for_a_group_are_held_between_minimum_and_maximum(self) -> None:
        settings = ConsumerGroupSettings()
        assert settings.for_group() is settings
        low = settings.for_group(session_timeout_ms=1, heartbeat_interval_ms=1)
        assert (low.session_timeout_ms, low.heartbeat_interval_ms) == (45_000, 5_000)
        high = settings.for_group(session_timeout_ms=10**9, heartbeat_interval_ms=10**9)
        assert (high.session_timeout_ms, high.heartbeat_interval_ms) == (60_000, 15_000)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"assignors": ()},
            {"assignors": ("sticky",)},
            {"session_timeout_ms": 1},
            {"session_timeout_ms": 60_001},
            {"heartbeat_interval_ms": 1},
            {"heartbeat_interval_ms": 15_001},
            {"session_timeout_ms": 5_000, "session_timeout_minimum_ms": 5_000},
            {"largest_group": 0},
        ],
    )
    def test_that_cannot_work_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"assignors|not between|more than one|room"):
            ConsumerGroupSettings(**wrong)  # type: ignore[arg-type]
