"""Is a rule that was taken away noticed? Shared by the simulations of the log, of compaction and of clusters.

What counts is a broken promise, or the code's own complaint about what it found. A mutation that does not
fit the code any more breaks too, with a TypeError, say; that says nothing about the rule, and fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

Mutation = Callable[[pytest.MonkeyPatch], None]

STALE = (TypeError, AttributeError, NameError, ImportError)


@contextmanager
def without(mutation: Mutation) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        yield


def check_fits(error: BaseException) -> None:
    """Raises what says that the mutation is out of date, wherever in the chain it stands."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, STALE):
            raise found
        found = found.__cause__ or found.__context__


def is_noticed(mutation: Mutation, simulate: Callable[[int], object], seed: int) -> bool:
    with without(mutation):
        try:
            simulate(seed)
        except Exception as error:  # whatever else it was: the unmutated code passes this seed
            check_fits(error)
            return True
    return False


def first_noticed(
    mutation: Mutation, simulate: Callable[[int], object], first: int, search: int
) -> int | None:
    """Where a search takes long, record its end: `pytest tests/simulation -k notice -rP` prints it."""
    seeds = range(first, first + search)
    found = next((seed for seed in seeds if is_noticed(mutation, simulate, seed)), None)
    print(f"searched from seed {first} on, found by seed {found}")
    return found


def check_schedule_notices(mutation: Mutation, run: Callable[[], object]) -> None:
    """Unmutated, the schedule passes. (What `pytest.raises` says is no `Exception`.)"""
    with without(mutation), pytest.raises((Exception, pytest.fail.Exception)) as raised:
        run()
    check_fits(raised.value)
