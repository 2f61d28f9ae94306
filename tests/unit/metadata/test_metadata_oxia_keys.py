"""Keys as they are stored: in the contract's order, however the namespace sorts."""

from __future__ import annotations

from functools import cmp_to_key
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from dray.metadata import keys as schema
from dray.metadata.oxia.keys import (
    BARRIER_KEY,
    decode_key,
    encode_key,
    key_prefix,
    partition_hash,
    split_key,
    stored_key,
)

DOMAINS = st.integers(0, (1 << 31) - 1)
# What is hard: the characters that are replaced, those that replace them, and their neighbours.
HARD = st.text(alphabet="-./0a\0\x7f")
TEXTS = st.one_of(HARD, st.text(alphabet=st.characters(max_codepoint=0x7F)))


def by_levels(one: str, other: str) -> int:
    """The order of "hierarchical" namespaces: at each level, what ends there comes first."""
    left, right = one.split("/"), other.split("/")
    while left and right:
        if (len(left) == 1) != (len(right) == 1):
            return -1 if len(left) == 1 else 1
        if left[0] != right[0]:
            return -1 if left[0] < right[0] else 1
        left, right = left[1:], right[1:]
    return 0


@given(TEXTS)
def test_a_key_comes_back(text: str) -> None:
    assert decode_key(encode_key(text)) == text


@given(DOMAINS, TEXTS)
def test_a_stored_key_gives_back_its_domain_and_key(domain: int, key: str) -> None:
    assert split_key(stored_key(domain, key)) == (domain, key)


@given(DOMAINS, st.lists(TEXTS, min_size=2, max_size=6))
def test_both_sortings_give_the_order_of_the_keys(domain: int, texts: list[str]) -> None:
    stored = [stored_key(domain, text) for text in texts]
    expected = [stored_key(domain, text) for text in sorted(texts)]
    assert sorted(stored) == expected
    assert sorted(stored, key=cmp_to_key(by_levels)) == expected


@given(HARD, HARD)
def test_a_key_begins_with_another_exactly_if_it_does_when_stored(one: str, other: str) -> None:
    assert one.startswith(other) == encode_key(one).startswith(encode_key(other))
    assert encode_key(one + other).startswith(encode_key(one))


@given(DOMAINS, DOMAINS, TEXTS, TEXTS)
def test_domains_do_not_mix(one: int, other: int, key: str, another: str) -> None:
    if one < other:
        assert stored_key(one, key) < stored_key(other, another)


def test_the_order_by_levels_is_the_one_that_oxia_documents() -> None:
    assert by_levels("b", "a/b") < 0
    assert by_levels("a/z", "a/b/c") < 0
    assert by_levels("a/b/c", "b/c") < 0
    assert by_levels("a/b", "a/b") == 0


def test_keys_stay_readable() -> None:
    key = schema.group_offset("billing", "orders.eu", 7)
    assert stored_key(12, key) == (
        ".0000000012..dray..v1..group-offsets..billing..orders.-eu..00000000000000000007"
    )


def test_oxia_finds_the_keys_of_a_session_with_natural_sorting_too() -> None:
    """It lists them escaped as in a URL, and only up to a slash."""
    assert quote(stored_key(1, "/a"), safe="") < "/"


def test_what_belongs_to_no_domain_is_known() -> None:
    for foreign in (BARRIER_KEY, "__oxia/session/0000000000000001", ".12..x", "", ".00000000x2..y"):
        assert split_key(foreign) is None
    assert "/" not in BARRIER_KEY + key_prefix(3)


def test_domains_are_routed_as_oxias_own_client_does() -> None:
    """Found out with it: these are part of the stored format."""
    assert [partition_hash(domain) for domain in (0, 1, 5)] == [1951736107, 204941495, 3942942192]
