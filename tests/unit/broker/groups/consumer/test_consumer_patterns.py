"""Subscriptions to patterns: when they are resolved, and what that changes."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, first_heartbeat, listed, parts

from dray.broker.groups.consumer import (
    PATTERN_UNJUDGED,
    ConsumerGroupSettings,
    GroupState,
    MemberState,
    PatternsResolved,
    ResolvePatterns,
    TimerKind,
)
from dray.kafka.protocol import ErrorCode


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(topics={"a": 2, "b": 2})


def settled(coordinator: Coordinator) -> Coordinator:
    """m1 subscribes to [ab], which stands for both topics, and has them all."""
    coordinator.join("m1", topic_regex="[ab]")
    coordinator.resolve(ab="ab")
    assert coordinator.beat("m1", 1).assignment == parts(a=[0, 1], b=[0, 1])
    coordinator.now_ms += 10_001
    return coordinator


def test_a_new_pattern_is_asked_for_and_waited_for(coordinator: Coordinator) -> None:
    answer = coordinator.join("m1", topic_regex="[ab]")
    assert (answer.member_epoch, answer.assignment) == (1, {})
    assert coordinator.asked == ResolvePatterns(frozenset(["[ab]"]))
    coordinator.beat("m1", 1)
    assert coordinator.state.epoch == 1


def test_what_it_stands_for_is_a_new_epoch(coordinator: Coordinator) -> None:
    coordinator.join("m1", topic_regex="[ab]")
    result = coordinator.resolve(ab="ab")
    assert result.persist
    assert coordinator.state.epoch == 2
    assert coordinator.state.state is GroupState.ASSIGNING
    answer = coordinator.beat("m1", 1)
    assert (answer.member_epoch, answer.assignment) == (2, parts(a=[0, 1], b=[0, 1]))


def test_a_pattern_that_matches_nothing_is_no_new_epoch(coordinator: Coordinator) -> None:
    coordinator.join("m1", topic_regex="[ab]")
    coordinator.resolve()
    assert coordinator.state.epoch == 1
    assert coordinator.state.patterns == {"[ab]": frozenset()}


def test_names_and_a_pattern_add_up(coordinator: Coordinator) -> None:
    coordinator.join("m1", "a", topic_regex="[bc]")
    coordinator.resolve(bc="b")
    assert coordinator.beat("m1", 1).assignment == parts(a=[0, 1], b=[0, 1])


def test_one_that_is_no_pattern_is_refused(coordinator: Coordinator) -> None:
    refused = coordinator.try_join("m1", topic_regex="[a", regex_fault="missing ]")
    assert coordinator.refused(refused) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert coordinator.group is None
    coordinator.join("m1")
    refused = coordinator.send("m1", 1, topic_regex="[a", regex_fault="missing ]")
    assert coordinator.refused(refused) is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_who_is_not_known_hears_that_before_its_pattern_is_looked_at(coordinator: Coordinator) -> None:
    coordinator.join("m1")
    refused = coordinator.send("m2", 1, topic_regex="[a", regex_fault="missing ]")
    assert coordinator.refused(refused) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pattern_is_judged_only_for_a_member_that_would_be_taken() -> None:
    coordinator = Coordinator(settings=ConsumerGroupSettings(largest_group=1))
    question = coordinator.try_join("m1", topic_regex="[ab]", regex_is_judged=False)
    assert question.answer is PATTERN_UNJUDGED
    coordinator.join("m1", topic_regex="[ab]")
    coordinator.join("m1", topic_regex="[ab]", regex_is_judged=False)  # the group has it already
    for refused, code in (
        (("m2", 0), ErrorCode.GROUP_MAX_SIZE_REACHED),
        (("m1", 7), ErrorCode.FENCED_MEMBER_EPOCH),
        (("m1", -3), ErrorCode.INVALID_REQUEST),
    ):
        beat = first_heartbeat(refused[0], topic_regex="[b]", regex_is_judged=False)
        result = coordinator.handle(beat._replace(member_epoch=refused[1]))
        assert result.answer is not PATTERN_UNJUDGED
        assert coordinator.refused(result) is code
    assert coordinator.send("m1", 1, topic_regex="[b]", regex_is_judged=False).answer is PATTERN_UNJUDGED
    assert coordinator.state.members["m1"].topic_regex == "[ab]"


def test_a_pattern_that_is_resolved_already_is_a_new_epoch_at_once(coordinator: Coordinator) -> None:
    settled(coordinator)
    answer = coordinator.join("m2", topic_regex="[ab]")
    assert answer.member_epoch == 3
    assert coordinator.state.members["m2"].target != {}


def test_a_pattern_that_others_wait_for_is_waited_for(coordinator: Coordinator) -> None:
    coordinator.join("m1", topic_regex="[ab]")
    answer = coordinator.join("m2", topic_regex="[ab]")
    assert (answer.member_epoch, coordinator.state.epoch) == (1, 1)
    coordinator.resolve(ab="ab")
    assert coordinator.state.epoch == 2


def test_leaving_out_the_pattern_keeps_it_and_an_empty_one_ends_it(coordinator: Coordinator) -> None:
    settled(coordinator)
    coordinator.beat("m1", 2, topic_names=["a"])
    assert coordinator.state.members["m1"].topic_regex == "[ab]"
    assert coordinator.state.epoch == 3
    answer = coordinator.beat("m1", 3, topic_regex="")
    assert coordinator.state.epoch == 4
    assert coordinator.state.patterns == {}
    assert answer.assignment == parts(a=[0, 1])


def test_a_pattern_that_nobody_uses_any_more_is_forgotten(coordinator: Coordinator) -> None:
    settled(coordinator)
    coordinator.join("m2", topic_regex="[ab]")
    coordinator.send("m1", -1)
    assert coordinator.state.patterns == {"[ab]": frozenset("ab")}
    coordinator.send("m2", -1)
    assert coordinator.state.patterns == {}
    assert coordinator.state.topics == {}


def test_who_changes_to_a_pattern_nobody_knows_yet_gives_up_what_it_no_longer_asks_for(
    coordinator: Coordinator,
) -> None:
    settled(coordinator)
    answer = coordinator.beat("m1", 2, topic_regex="[b]", topic_names=[])
    assert (answer.member_epoch, answer.assignment) == (2, {})
    member = coordinator.state.members["m1"]
    assert (member.state, member.pending) == (MemberState.UNREVOKED, parts(a=[0, 1], b=[0, 1]))
    assert (TimerKind.REBALANCE, "m1") in coordinator.timers
    assert coordinator.state.epoch == 2, "targets wait until the pattern is resolved"
    answer = coordinator.beat("m1", 2, owned=[])
    assert (answer.member_epoch, answer.assignment) == (2, None)
    member = coordinator.state.members["m1"]
    assert (member.state, member.assigned) == (MemberState.STABLE, {}), "its target still has them"
    coordinator.resolve(b="b")
    assert coordinator.beat("m1", 2).assignment == parts(b=[0, 1])


def test_what_it_no_longer_asks_for_is_no_change_of_topics(coordinator: Coordinator) -> None:
    settled(coordinator)
    coordinator.set_topics(a=2, b=2, z=1)
    coordinator.beat("m1", 2, topic_regex="[b]")
    assert coordinator.state.epoch == 2
    coordinator.set_topics(a=3, b=2, z=1)
    coordinator.beat("m1", 2)
    assert coordinator.state.epoch == 2


def test_who_held_none_of_it_gives_it_up_without_being_asked(coordinator: Coordinator) -> None:
    settled(coordinator)
    answer = coordinator.beat("m1", 2, topic_regex="[b]", topic_names=[], owned=[])
    assert (answer.member_epoch, answer.assignment) == (2, {})
    assert coordinator.state.members["m1"].state is MemberState.STABLE


def test_who_is_giving_up_already_gives_up_the_more(coordinator: Coordinator) -> None:
    settled(coordinator)
    coordinator.join("m2", topic_regex="[ab]")
    kept = coordinator.beat("m1", 2).assignment
    assert kept is not None
    answer = coordinator.beat("m1", 2, topic_regex="[c]")
    assert (answer.member_epoch, answer.assignment) == (2, {})
    assert coordinator.state.members["m1"].pending == parts(a=[0, 1], b=[0, 1])
    assert coordinator.beat("m1", 2, owned=listed(kept)).member_epoch == 2
    assert coordinator.beat("m1", 2, owned=[]).member_epoch == 3


class TestWhenPatternsAreResolvedAgain:
    def test_only_one_question_at_a_time(self, coordinator: Coordinator) -> None:
        coordinator.join("m1", topic_regex="[ab]")
        coordinator.join("m2", topic_regex="[bc]")  # the harness fails at a second question
        coordinator.resolve(ab="ab")
        coordinator.now_ms += 10_001
        coordinator.beat("m1", 1)
        assert coordinator.asked == ResolvePatterns(frozenset(["[ab]", "[bc]"]))

    def test_not_within_the_pause(self, coordinator: Coordinator) -> None:
        coordinator.join("m1", topic_regex="[ab]")
        coordinator.resolve(ab="ab")
        coordinator.now_ms += 9_500
        coordinator.join("m2", topic_regex="[bc]")
        assert coordinator.asked is None
        coordinator.now_ms += 1
        coordinator.beat("m1", 1)
        assert coordinator.asked is not None

    def test_at_the_second_heartbeat_after_it_though_the_first_one_was_served_late(
        self, coordinator: Coordinator
    ) -> None:
        """A member counts from when it sent; the lease of its group had to be taken, and its state read."""
        sent_ms = coordinator.now_ms
        coordinator.now_ms += 250
        coordinator.join("m1", topic_regex="[abc]")
        coordinator.now_ms += 5
        coordinator.resolve(abc="ab")
        coordinator.now_ms = sent_ms + 5_000
        coordinator.beat("m1", 1)
        coordinator.set_topics(a=2, b=2, c=1)
        coordinator.now_ms = sent_ms + 10_000
        coordinator.beat("m1", 2)
        assert coordinator.asked is not None

    def test_the_pause_begins_with_the_question_however_long_the_answer_takes(
        self, coordinator: Coordinator
    ) -> None:
        coordinator.join("m1", topic_regex="[abc]")
        coordinator.now_ms += 4_000
        coordinator.resolve(abc="ab")
        coordinator.set_topics(a=2, b=2, c=1)
        coordinator.now_ms += 5_501
        coordinator.beat("m1", 1)
        assert coordinator.asked is not None

    def test_when_topics_changed(self, coordinator: Coordinator) -> None:
        settled(coordinator)
        coordinator.beat("m1", 2)
        assert coordinator.asked is None
        coordinator.set_topics(a=2, b=2, c=1)
        coordinator.beat("m1", 2)
        assert coordinator.asked is not None

    def test_when_it_was_long_ago(self, coordinator: Coordinator) -> None:
        settled(coordinator)
        coordinator.now_ms += 600_000 - 10_001
        coordinator.beat("m1", 2)
        assert coordinator.asked is None
        coordinator.now_ms += 1
        coordinator.beat("m1", 2)
        assert coordinator.asked is not None

    def test_when_it_failed(self, coordinator: Coordinator) -> None:
        coordinator.join("m1", topic_regex="[ab]")
        coordinator.asked = None
        assert not coordinator.handle(PatternsResolved({}, coordinator.version)).persist
        coordinator.now_ms += 10_001
        coordinator.beat("m1", 1)
        assert coordinator.asked is not None

    def test_as_settings_say(self) -> None:
        settings = ConsumerGroupSettings(regex_refresh_pause_ms=5, regex_refresh_interval_ms=20)
        coordinator = Coordinator(topics={"a": 2, "b": 2}, settings=settings)
        coordinator.join("m1", topic_regex="[ab]")
        coordinator.resolve(ab="ab")
        coordinator.now_ms += 20
        coordinator.beat("m1", 1)
        assert coordinator.asked is None
        coordinator.now_ms += 1
        coordinator.beat("m1", 2)
        assert coordinator.asked is not None

    def test_the_same_answer_changes_nothing(self, coordinator: Coordinator) -> None:
        settled(coordinator)
        coordinator.set_topics(a=2, b=2, c=1)
        coordinator.beat("m1", 2)
        assert not coordinator.resolve(ab="ab").persist

    def test_one_more_topic_is_a_new_epoch(self, coordinator: Coordinator) -> None:
        settled(coordinator)
        coordinator.set_topics(a=2, b=2, c=1)
        coordinator.beat("m1", 2)
        coordinator.resolve(ab="abc")
        assert coordinator.state.epoch == 3

    def test_a_topic_that_went_is_one_epoch_not_two(self, coordinator: Coordinator) -> None:
        settled(coordinator)
        coordinator.set_topics(a=2)
        coordinator.beat("m1", 2)
        assert coordinator.state.epoch == 3
        coordinator.resolve(ab="a")
        assert coordinator.state.epoch == 3

    def test_an_answer_about_a_pattern_that_is_gone_is_dropped(self, coordinator: Coordinator) -> None:
        settled(coordinator)
        coordinator.set_topics(a=2, b=2, c=1)
        coordinator.beat("m1", 2)
        coordinator.beat("m1", 2, topic_regex="", topic_names=["a"])
        assert not coordinator.resolve(ab="abc").persist
        assert coordinator.state.patterns == {}

    def test_an_answer_for_no_group_is_dropped(self, coordinator: Coordinator) -> None:
        assert coordinator.handle(PatternsResolved({"[ab]": frozenset("a")}, 1)) == (None, (), False, ())
