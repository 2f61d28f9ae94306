"""Dataclasses that mypy alone keeps frozen."""

from __future__ import annotations

import dataclasses

from dray.base.runtime.lean_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lean:
    number: int
    text: str = ""


@dataclass(slots=True)
class Open:
    number: int


def test_they_compare_and_hash_by_their_fields() -> None:
    assert Lean(1, "a") == Lean(1, "a") != Lean(1)
    assert {Lean(1), Lean(1), Lean(2)} == {Lean(2), Lean(1)}
    assert dataclasses.replace(Lean(1), text="b") == Lean(1, "b")


def test_what_may_change_is_no_key() -> None:
    assert Open.__hash__ is None
