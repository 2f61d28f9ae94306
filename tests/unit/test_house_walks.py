"""The way of a request through the code is no longer than `tools/budgets.json` says."""

from __future__ import annotations

from tools import walks
from tools.counts import read_walks


async def test_no_walk_is_longer_than_its_budget() -> None:
    """`python -m tools.walks "tail fetch"` lists the functions of one."""
    found = await walks.walks()
    own = {name: len(walk.own) for name, walk in found.items()}
    budget = read_walks()
    assert set(own) == set(budget)
    assert min(own.values()) > 40, "nothing was walked"
    assert {name: count for name, count in own.items() if count > budget[name]} == {}
