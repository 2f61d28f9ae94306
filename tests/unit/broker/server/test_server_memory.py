from __future__ import annotations

from functools import partial
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.broker.server import MemoryBudget
from dray.broker.server.limits.memory import Claim, MemoryShare


def nothing() -> None:
    pass


def test_reserves_up_to_the_limit_and_no_further():
    budget = MemoryBudget(10)
    assert budget.try_reserve(10)
    assert not budget.try_reserve(1)
    budget.release(10)
    assert budget.try_reserve(1)


def test_nobody_overtakes_the_one_who_waits():
    budget = MemoryBudget(10)
    assert budget.try_reserve(6)
    granted: list[str] = []
    budget.claim(8, lambda: granted.append("large"))
    assert not budget.try_reserve(1), "there is room for 1, but the large one came first"
    budget.claim(1, lambda: granted.append("small"))
    budget.release(6)
    assert granted == ["large", "small"]
    assert budget.used == 9


def test_withdrawing_lets_the_next_one_in():
    budget = MemoryBudget(10)
    assert budget.try_reserve(6)
    granted: list[str] = []
    large = budget.claim(8, lambda: granted.append("large"))
    budget.claim(4, lambda: granted.append("small"))
    budget.withdraw(large)
    assert granted == ["small"]
    assert budget.waiting == 0


def test_what_can_never_fit_is_refused():
    with pytest.raises(ValueError, match="never fit"):
        MemoryBudget(10).claim(11, nothing)
    with pytest.raises(ValueError, match="never fit"):
        MemoryBudget(10, 2).begin(9, nothing)


@pytest.mark.parametrize("share", [MemoryShare.BULK, MemoryShare.SMALL])
def test_releasing_too_much_is_noticed(share):
    with pytest.raises(AssertionError):
        MemoryBudget(10, 5).release(1, share)


@given(st.lists(st.integers(0, 40), max_size=60), st.randoms(use_true_random=False))
def test_any_history_stays_within_the_limit_and_serves_in_order(sizes, random):
    budget = MemoryBudget(40)
    held: list[int] = []
    served: list[int] = []
    waiting: list[int] = []

    def take(number: int, size: int):
        served.append(number)
        held.append(size)
        assert budget.used == sum(held) <= budget.limit

    def serve(number: int, size: int) -> None:
        waiting.remove(number)
        take(number, size)

    for number, size in enumerate(sizes):
        if budget.try_reserve(size):
            assert not waiting
            take(number, size)
        else:
            waiting.append(number)
            budget.claim(size, partial(serve, number, size))
        while held and random.random() < 0.4:
            budget.release(held.pop(random.randrange(len(held))))
    while held:
        budget.release(held.pop())
    assert served == list(range(len(sizes)))
    assert budget.used == 0
    assert budget.peak <= budget.limit


# --- small requests


def test_small_requests_have_a_share_of_their_own():
    budget = MemoryBudget(100, 10)
    assert budget.try_reserve(90) == MemoryShare.BULK
    budget.claim(50, nothing)
    assert budget.try_reserve(10, small=True) == MemoryShare.SMALL, "though producers wait"
    assert budget.used == budget.limit


def test_a_full_small_share_leaves_the_other_to_small_requests():
    budget = MemoryBudget(100, 10)
    assert budget.try_reserve(10, small=True) == MemoryShare.SMALL
    assert budget.try_reserve(10, small=True) == MemoryShare.BULK
    assert budget.try_reserve(81) == MemoryShare.NONE
    budget.release(10)
    budget.release(10, MemoryShare.SMALL)
    assert budget.used == 0


def test_small_requests_that_wait_are_served_in_order_from_whatever_is_given_back():
    budget = MemoryBudget(100, 10)
    assert budget.try_reserve(90)
    assert budget.try_reserve(7, small=True)
    granted: list[str] = []
    first = budget.claim(8, lambda: granted.append("first"), small=True)
    second = budget.claim(8, lambda: granted.append("second"), small=True)
    assert not budget.try_reserve(1, small=True), "nobody overtakes them"
    budget.release(7, MemoryShare.SMALL)
    assert granted == ["first"]
    budget.release(90)
    assert granted == ["first", "second"]
    assert (first.share, second.share) == (MemoryShare.SMALL, MemoryShare.BULK)
    for claim in first, second:
        budget.release(8, claim.share)
    assert budget.used == 0


def test_bulk_is_not_starved_by_small_requests():
    budget = MemoryBudget(100, 10)
    assert budget.try_reserve(90)
    granted: list[str] = []
    budget.claim(80, lambda: granted.append("bulk"))
    assert budget.try_reserve(10, small=True) == MemoryShare.SMALL
    budget.release(50)
    assert budget.try_reserve(10, small=True) == MemoryShare.NONE, (
        "50 are free, and are the producer's who waits"
    )
    budget.release(40)
    assert granted == ["bulk"]


# --- frames that grow


def test_what_is_announced_and_not_sent_is_kept_from_others_once_only():
    budget = MemoryBudget(256)
    for _ in range(8):
        assert budget.grow(budget.begin(85, nothing), 1)
    assert budget.used == 8
    for _ in range(100):
        assert budget.try_reserve(100)
        budget.release(100)


def test_the_oldest_can_always_be_completed():
    budget = MemoryBudget(50)
    granted: list[str] = []
    oldest = budget.begin(40, lambda: granted.append("oldest"))
    assert budget.grow(oldest, 5)
    assert budget.try_reserve(10)
    assert not budget.try_reserve(6), "5 are free, 35 are the oldest one's"
    assert budget.grow(oldest, 40)
    budget.release(40)
    budget.release(10)
    assert budget.used == 0


def test_frames_that_grow_leave_room_for_the_largest_of_them():
    """Else the oldest would end, and the others be left with each other's memory."""
    budget = MemoryBudget(50)
    first, second, third = budget.begin(10, nothing), budget.begin(40, nothing), budget.begin(40, nothing)
    assert budget.grow(first, 1)
    assert budget.grow(second, 10)
    assert not budget.grow(third, 1)
    assert budget.grow(first, 10)
    budget.release(10)
    assert budget.grow(second, 40)
    budget.release(40)
    assert third.held == 1
    assert budget.grow(third, 40)


def test_a_frame_that_waits_in_the_middle_is_not_overtaken():
    budget = MemoryBudget(110, 10)
    assert budget.grow(budget.begin(40, nothing), 1)
    assert budget.try_reserve(50)
    assert budget.try_reserve(10, small=True)
    granted: list[str] = []
    second = budget.begin(30, lambda: granted.append("second"))
    assert not budget.grow(second, 30)
    assert not budget.grow(budget.begin(5, lambda: granted.append("third")), 5), "10 are free, but not its"
    assert not budget.try_reserve(5, small=True)
    budget.release(50)
    assert granted == ["second", "third"]


def test_a_frame_that_will_not_come_gives_back_what_it_held():
    budget = MemoryBudget(50)
    granted: list[str] = []
    oldest, next_one = budget.begin(50, nothing), budget.begin(20, lambda: granted.append("next"))
    assert budget.grow(oldest, 30)
    assert not budget.grow(next_one, 20)
    assert budget.unfinished == 50
    budget.withdraw(oldest)
    assert granted == ["next"]
    budget.withdraw(next_one)
    assert (budget.used, budget.unfinished, budget.waiting) == (0, 0, 0)


class Peer:
    """Sends one frame, in steps; its request is answered some time after it is whole."""

    def __init__(self, budget: MemoryBudget, size: int, step: int, kind: str) -> None:
        self.budget = budget
        self.size = size
        self.step = step
        self.kind = kind
        self.claim: Claim | None = None
        self.share = MemoryShare.NONE
        self.state = "idle"

    def act(self) -> None:
        budget, claim = self.budget, self.claim
        if self.state == "whole":
            budget.release(self.size, self.share)
            self.state = "answered"
        elif self.kind != "large":
            small = self.kind == "small"
            self.share = budget.try_reserve(self.size, small)
            self.state = "whole" if self.share else "waiting"
            if not self.share:
                self.claim = budget.claim(self.size, self.granted, small)
        elif claim is None:
            self.claim = budget.begin(self.size, self.granted)
            self.share = MemoryShare.BULK
            self.state = "sending"
        else:
            self.state = "waiting"
            if budget.grow(claim, min(self.size, claim.held + self.step)):
                self.granted()

    def granted(self) -> None:
        assert self.claim is not None
        assert self.state == "waiting", "and only once"
        if self.kind == "small":
            self.share = self.claim.share
        self.state = "whole" if self.claim.held == self.size else "sending"

    def leave(self) -> None:
        if self.state in ("sending", "waiting"):
            assert self.claim is not None
            self.budget.withdraw(self.claim)
        elif self.state == "whole":
            self.budget.release(self.size, self.share)
        self.state = "answered"

    @property
    def held(self) -> int:
        if self.state in ("idle", "answered"):
            return 0
        return self.size if self.claim is None else self.claim.held


KINDS = ["large", "large", "bulk", "small"]
frame_lists = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 20), st.sampled_from(KINDS)), min_size=1, max_size=25
)


@settings(max_examples=300, deadline=None)
@given(frame_lists, st.integers(0, 1 << 30))
@example([(10, 1, "large"), (40, 5, "large"), (40, 5, "large"), (60, 5, "large")], 1)
def test_any_mix_of_frames_stays_within_the_limit_and_all_of_them_are_answered(frames, seed):
    """Never exceeded, never deadlocked, and everything given back: whatever the order of events."""
    random = Random(seed)
    budget = MemoryBudget(70, 10)
    peers = [
        Peer(budget, min(size, 10) if kind == "small" else size, step, kind) for size, step, kind in frames
    ]
    while left := [peer for peer in peers if peer.state != "answered"]:
        able = [peer for peer in left if peer.state != "waiting"]
        assert able, "all wait for each other"
        peer = random.choice(able)
        if random.random() < 0.03:
            peer.leave()
        else:
            peer.act()
        assert budget.used == sum(peer.held for peer in peers) <= budget.limit
    assert (budget.used, budget.waiting, budget.unfinished) == (0, 0, 0)
    assert budget.peak <= budget.limit


@settings(max_examples=100, deadline=None)
@given(frame_lists, st.integers(0, 1 << 30), st.sampled_from(["large", "bulk", "small"]))
def test_nobody_waits_for_ever_while_others_keep_coming(frames, seed, kind):
    random = Random(seed)
    budget = MemoryBudget(70, 10)
    others = [
        Peer(budget, min(size, 10) if kind == "small" else size, step, kind) for size, step, kind in frames
    ]
    ours = Peer(budget, 10 if kind == "small" else 60, 7, kind)
    for turn in range(2000):
        everybody = [*others, ours] if turn > 20 else others.copy()
        random.shuffle(everybody)
        for peer in everybody:
            if peer.state == "answered":
                peer.claim, peer.state = None, "idle"
            elif peer.state != "waiting" and random.random() < 0.7:
                peer.act()
            if ours.state == "answered":
                return
    raise AssertionError("it waited for 2000 rounds")


def test_frames_that_have_left_are_not_remembered():
    budget = MemoryBudget(1000)
    long = budget.begin(500, nothing)
    assert budget.grow(long, 1)
    for _ in range(5000):
        frame = budget.begin(100, nothing)
        assert budget.grow(frame, 100)
        budget.release(100)
    assert len(budget._sizes) < 1000
