"""What one step of a group's coordinator gives: the next state, and what goes out with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

State_co = TypeVar("State_co", covariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)


class Reply(NamedTuple):
    token: Any
    """What the caller knows the request by."""

    answer: Any


class Result(NamedTuple, Generic[State_co, Effect_co]):
    group: State_co
    """The state from now on; None while there is no group."""

    replies: Sequence[Reply] = ()
    """One for each request that is answered by this step. A step may answer many requests, or none."""

    persist: bool = False
    """Whether the new state must be stored before the replies leave and the effects happen; where it is None,
    the group must be deleted from the store."""

    effects: Sequence[Effect_co] = ()
