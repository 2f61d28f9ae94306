from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.server import MemoryBudget


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
        MemoryBudget(10).claim(11, lambda: None)


def test_releasing_too_much_is_noticed():
    with pytest.raises(AssertionError):
        MemoryBudget(10).release(1)


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

    for number, size in enumerate(sizes):
        if budget.try_reserve(size):
            assert not waiting
            take(number, size)
        else:
            waiting.append(number)
            budget.claim(size, lambda number=number, size=size: (waiting.remove(number), take(number, size)))
        while held and random.random() < 0.4:
            budget.release(held.pop(random.randrange(len(held))))
    while held:
        budget.release(held.pop())
    assert served == list(range(len(sizes)))
    assert budget.used == 0
    assert budget.peak <= budget.limit
