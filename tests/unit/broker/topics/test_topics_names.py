from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.topics import InvalidTopicName
from dray.broker.topics.names import check_name, check_not_internal, is_internal, unified


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "a" * 249, "__consumer_offsets", "-"])
def test_a_legal_name_passes(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("a b", "characters other than"),
        ("a/b", "characters other than"),
        ("ä", "characters other than"),
        ("a\n", "characters other than"),
        ("٣", "characters other than"),  # a digit, but no ASCII one
    ],
)
def test_an_illegal_name_is_refused_and_says_why(name: str, why: str) -> None:
    with pytest.raises(InvalidTopicName, match=why.replace(".", r"\.")):
        check_name(name)


@given(st.text(max_size=260))
def test_what_passes_is_what_kafka_allows(name: str) -> None:
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    legal = 0 < len(name) <= 249 and name not in {".", ".."} and all(char in allowed for char in name)
    try:
        check_name(name)
    except InvalidTopicName:
        assert not legal
    else:
        assert legal


def test_dots_and_underscores_unify() -> None:
    assert unified("a.b_c") == unified("a_b.c") != unified("a-b_c")
    assert is_internal("__consumer_offsets")
    assert not is_internal("__consumer_offsets_of_mine")
    assert not is_internal("orders")


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_what_only_kafka_keeps_is_named_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidTopicName, match=rf"no topic '{name}' here: .+\."):
        check_not_internal(name)
    check_not_internal(f"{name}-of-mine")
