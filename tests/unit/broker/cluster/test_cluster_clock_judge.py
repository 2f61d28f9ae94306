"""Which clocks are believed: evidence in, a verdict out."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.cluster.clock_judge import (
    FRESH_BEATS,
    GONE_BEATS,
    STEP_SECONDS,
    ClockBeat,
    ClockJudge,
    ClockVerdict,
)

TOLERANCE = 300.0
BEAT = 30.0
DAY = 24 * 3600.0
EPOCH_MS = 1_700_000_000_000


@dataclass
class World:
    """Machines whose clocks are ahead by so many seconds; the first one's judge is asked."""

    ahead: list[float]
    machines: list[str] = field(default_factory=list)
    store_ahead: float | None = None
    now: float = 1000.0
    version: int = 0

    def __post_init__(self) -> None:
        self.machines = self.machines or [f"machine {number}" for number in range(len(self.ahead))]
        self.judge = ClockJudge(
            self.machines[0], TOLERANCE, BEAT, has_store_clock=self.store_ahead is not None
        )
        self.silent: set[int] = set()
        self.stepped: set[int] = set()
        self._beats: dict[int, ClockBeat] = {}

    def wall_ms(self, ahead: float) -> int:
        return EPOCH_MS + round((self.now + ahead) * 1000)

    def beat(self) -> None:
        for number, ahead in enumerate(self.ahead):
            if number and number not in self.silent:
                self.version += 1
                self._beats[number] = ClockBeat(
                    f"process {number}",
                    self.machines[number],
                    self.version,
                    self.wall_ms(ahead),
                    number in self.stepped,
                )

    def look(self, pause: float = BEAT) -> None:
        """Everybody beats at some time in the pause, and then the first one looks."""
        self.now += pause / 2
        self.beat()
        self.now += pause / 2
        if self.store_ahead is not None:
            self.judge.probed(self.now - 0.1, self.now, self.wall_ms(self.store_ahead) - 50)
        self.judge.looked(self.now - 0.1, self.now, list(self._beats.values()))

    def verdict(self) -> ClockVerdict:
        return self.judge.judge(self.now, self.wall_ms(self.ahead[0]))

    def settle(self) -> ClockVerdict:
        self.look()
        self.look()
        return self.verdict()


# --- with others


def test_nothing_is_believed_before_the_second_look() -> None:
    world = World([0.0])
    assert not world.verdict().believed
    world.look()
    assert not world.verdict().believed
    world.look()
    assert world.verdict().believed


def test_clocks_that_agree_are_believed() -> None:
    assert World([0.0, 10.0, -10.0]).settle().believed


@pytest.mark.parametrize("ahead", [8 * DAY, -8 * DAY, 400.0])
def test_a_minority_doubts_itself_and_the_majority_does_not(ahead: float) -> None:
    wrong = World([ahead, 0.0, 0.0]).settle()
    assert not wrong.believed
    assert wrong.certain
    assert wrong.ahead_ms == pytest.approx(ahead * 1000, abs=(BEAT + 1) * 1000)
    assert ("ahead of" if ahead > 0 else "behind") in wrong.reason
    assert World([0.0, ahead, 0.0]).settle().believed


def test_of_two_that_disagree_both_doubt() -> None:
    assert not World([8 * DAY, 0.0]).settle().believed
    assert not World([0.0, 8 * DAY]).settle().believed


def test_the_object_store_decides_between_two() -> None:
    assert not World([8 * DAY, 0.0], store_ahead=0.0).settle().believed
    assert World([0.0, 8 * DAY], store_ahead=0.0).settle().believed


def test_against_the_object_store_no_majority_helps() -> None:
    verdict = World([8 * DAY] * 5, store_ahead=0.0).settle()
    assert not verdict.believed
    assert "object store" in verdict.reason


def test_an_object_store_that_cannot_be_asked_is_missed() -> None:
    world = World([0.0, 0.0], store_ahead=0.0)
    assert world.settle().believed
    world.store_ahead = None
    for _ in range(FRESH_BEATS + 1):
        world.look()
    assert "object store" in world.verdict().reason


def test_processes_of_one_machine_have_one_vote() -> None:
    """Three brokers on a machine with a bad clock, two machines with good ones."""
    machines = ["bad", "bad", "bad", "good 1", "good 2"]
    wrong = World([8 * DAY, 8 * DAY, 8 * DAY, 0.0, 0.0], machines)
    assert not wrong.settle().believed
    right = World([0.0, 8 * DAY, 8 * DAY, 8 * DAY, 0.0], ["good 1", "bad", "bad", "bad", "good 2"])
    assert right.settle().believed


def test_processes_of_ones_own_machine_prove_nothing() -> None:
    assert not World([8 * DAY, 8 * DAY, 8 * DAY, 0.0], ["here", "here", "here", "there"]).settle().believed


def test_a_jump_is_noticed_at_the_next_question() -> None:
    world = World([0.0, 0.0, 0.0])
    assert world.settle().believed
    world.ahead[0] = 8 * DAY
    assert not world.verdict().believed
    world.ahead[0] = 0.0
    assert world.verdict().believed


def test_evidence_grows_old() -> None:
    world = World([0.0, 0.0, 0.0])
    world.settle()
    world.now += (FRESH_BEATS + 1) * BEAT
    assert not world.verdict().believed
    assert not world.verdict().certain


def test_dead_processes_have_no_vote() -> None:
    """What they left behind looks like clocks that are behind, until their silence shows."""
    world = World([0.0, 0.0, 0.0])
    world.beat()
    world.silent = {1, 2}
    world.now += DAY
    world.look()
    world.look(1.0)
    assert not world.verdict().believed
    assert not world.verdict().certain
    for _ in range(GONE_BEATS + 1):
        world.look()
    assert world.verdict().believed


def test_what_was_seen_once_is_no_agreement() -> None:
    """It may be from a process that is dead, of the same machine before it was started again."""
    world = World([0.0, 5.0])
    world.beat()
    world.silent = {1}
    world.look(2.0)
    world.look(2.0)
    assert not world.verdict().believed
    assert not world.verdict().certain
    world.silent = set()
    world.look(2.0)
    assert world.verdict().believed


def test_what_was_seen_once_and_is_ahead_contradicts() -> None:
    """A clock only goes on from what it showed."""
    world = World([-8 * DAY, 0.0])
    world.beat()
    world.silent = {1}
    world.look(2.0)
    world.look(2.0)
    assert not world.verdict().believed
    assert world.verdict().certain


def test_a_look_that_takes_long_makes_nobody_silent() -> None:
    """What others did since it began, it could not show."""
    world = World([8 * DAY, 0.0, 0.0])
    world.look()
    world.look()
    began = world.now + (GONE_BEATS - 1) * BEAT
    world.now = began + 2 * BEAT
    world.judge.looked(began, world.now, list(world._beats.values()))
    assert "ahead of others" in world.verdict().reason


def test_a_value_that_this_build_cannot_read_is_no_agreement() -> None:
    world = World([0.0, 0.0])
    world.settle()
    world.now += BEAT
    world.judge.looked(world.now, world.now, [ClockBeat("process 1", "machine 1", 99, None)])
    assert not world.verdict().believed
    assert "not known" in world.verdict().reason


def test_looks_that_are_far_apart_prove_nothing() -> None:
    """The other one wrote at some time in between: that fits a clock that is wrong by as much."""
    world = World([500.0, 0.0])
    world.look(1000.0)
    world.look(1000.0)
    assert not world.verdict().believed
    world.look()
    assert not world.verdict().believed


# --- alone


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY])
def test_alone_a_jump_is_doubted_until_it_is_mended(jump: float) -> None:
    world = World([0.0])
    assert world.settle().believed
    world.ahead[0] = jump
    assert not world.verdict().believed
    assert world.judge.has_stepped
    world.look()
    assert not world.verdict().believed
    world.ahead[0] = 0.0
    assert world.verdict().believed
    assert not world.judge.has_stepped


def test_alone_a_jump_is_believed_when_it_stood_for_long() -> None:
    world = World([0.0])
    world.settle()
    world.ahead[0] = 8 * DAY
    assert not world.verdict().believed
    began = world.now
    while world.now - began < STEP_SECONDS - BEAT:
        world.look()
        assert not world.verdict().believed
    world.look()
    world.look()
    assert world.verdict().believed


def test_a_second_jump_begins_the_wait_anew() -> None:
    world = World([0.0])
    world.settle()
    for jump in (8 * DAY, 16 * DAY):
        world.ahead[0] = jump
        assert not world.verdict().believed
        began = world.now
        while world.now - began < STEP_SECONDS / 2 + BEAT:
            world.look()
            assert not world.verdict().believed


def test_a_process_that_starts_after_the_jump_takes_the_word_of_its_neighbour() -> None:
    world = World([8 * DAY, 8 * DAY], ["here", "here"])
    world.stepped = {1}
    assert not world.settle().believed
    world.stepped = set()
    world.look()
    assert world.verdict().believed


def test_others_who_agree_with_a_clock_that_jumped_settle_it() -> None:
    """This machine was wrong about the time, until it was set right, and others said so."""
    world = World([-8 * DAY, 0.0, 0.0])
    world.silent = {1, 2}
    assert world.settle().believed
    world.silent = set()
    world.ahead[0] = 0.0
    world.look()
    assert world.verdict().believed
    world.silent = {1, 2}
    for _ in range(GONE_BEATS + 1):
        world.look()
    assert world.verdict().believed


# --- any cluster

offsets = st.one_of(
    st.floats(-60.0, 60.0), st.floats(2 * TOLERANCE, 10 * DAY), st.floats(-10 * DAY, -2 * TOLERANCE)
)


@given(st.lists(offsets, min_size=1, max_size=7), st.booleans(), st.integers(2, 6), st.floats(5.0, 60.0))
def test_whoever_is_believed_agrees_with_more_than_half(
    ahead: list[float], has_store: bool, looks: int, pause: float
) -> None:
    """And whoever agrees with more than half is believed; clocks are right or far off here."""
    world = World(ahead, store_ahead=0.0 if has_store else None)
    for _ in range(looks):
        world.look(pause)
    mine = ahead[0]
    voters = [*ahead[1:], *([0.0] if has_store else [])]
    agreeing = sum(abs(mine - other) <= TOLERANCE for other in voters)
    contradicted = has_store and abs(mine) > TOLERANCE
    clear = all(abs(mine - other) <= 120.0 or abs(mine - other) > TOLERANCE + 2 * 60.0 for other in voters)
    if clear:
        assert world.verdict().believed is (not contradicted and 2 * (agreeing + 1) > len(voters) + 1)


@given(st.lists(st.floats(-60.0, 60.0), min_size=3, max_size=7), st.floats(2 * TOLERANCE, 10 * DAY))
def test_one_bad_clock_never_stops_the_others(ahead: list[float], bad: float) -> None:
    assert World([*ahead, bad]).settle().believed
    assert not World([bad, *ahead]).settle().believed
