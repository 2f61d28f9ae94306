"""Patterns of topic names: RE2's syntax, whole names, and no thinking for ever."""

from __future__ import annotations

import pytest
from tests.services.cpu import best_seconds

from dray.groups.coordinator.patterns import InvalidPattern, compiled, fault_of, resolve


@pytest.mark.parametrize("pattern", ["a(", "[", "*", r"(a)\1", "(?=a)a", "(?<!b)a", "a{1001}", "\\"])
def test_what_is_no_pattern(pattern: str) -> None:
    assert fault_of(pattern)
    with pytest.raises(InvalidPattern):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["a.*", "^a$", "(?i)A", "[[:alpha:]]+", r"\pL+", "a|b", "über.*"])
def test_what_is_one(pattern: str) -> None:
    assert fault_of(pattern) is None


def test_whole_names_match() -> None:
    names = ["a", "ab", "ba", "b", "a.b", "über"]
    assert resolve(["a", "a.*", "a|b", ".*b", "ü.*", "none"], names) == {
        "a": {"a"},
        "a.*": {"a", "ab", "a.b"},
        "a|b": {"a", "b"},
        ".*b": {"ab", "b", "a.b"},
        "ü.*": {"über"},
        "none": set(),
    }


def test_a_pattern_cannot_keep_a_broker_busy() -> None:
    patterns, names = ["(a*)*b", "(a|a)*c", "(x+x+)+y"], ["a" * 249, "x" * 249]
    assert best_seconds(lambda: resolve(patterns, names), 1) < 1
