"""Patterns of topic names: RE2's syntax, whole names, and no thinking for ever."""

from __future__ import annotations

import pytest
from tests.services.cpu import best_seconds

from dray.broker.groups.coordinator.patterns import LONGEST, InvalidPattern, compiled, fault_of, resolve


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


@pytest.mark.parametrize("pattern", [r"\pL{330}", r"\pL" * 333, "(?i)" + r"[\pL\pN]" * 110])
def test_one_that_takes_much_memory_is_refused_soon(pattern: str) -> None:
    assert fault_of(pattern) == "pattern too large - compile failed"
    assert best_seconds(lambda: fault_of(pattern), 3) < 0.1


def test_one_that_is_long_is_refused_without_a_look() -> None:
    assert fault_of("." * LONGEST) is None
    assert fault_of("." * (LONGEST + 1)) == "it is longer than 1000 characters"


def test_a_group_that_was_stored_with_a_large_pattern_is_served() -> None:
    assert resolve([r"\pL{330}"], ["a" * 330, "a"]) == {r"\pL{330}": {"a" * 330}}


def test_none_stays_in_memory() -> None:
    assert compiled("a.*") is not compiled("a.*")
