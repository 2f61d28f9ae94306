"""SASLprep: the examples of RFC 4013, and what may become a name or a password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.security.users import NotPrepared, check_prepared, saslprep


@pytest.mark.parametrize(
    ("given_text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
    ],
)
def test_the_examples_of_the_rfc(given_text: str, prepared: str) -> None:
    assert saslprep(given_text) == prepared


@pytest.mark.parametrize(
    "text", ["\u0007", "\u0627\u0031", "a\0b", "a\nb", "\u200e", "\ud7ff\ue000", "\u0221"]
)
def test_what_is_prohibited_is_refused(text: str) -> None:
    with pytest.raises(NotPrepared):
        saslprep(text)


@pytest.mark.parametrize("text", ["", "\u2168", "I\u00adX", "a\u00a0b", "x" * 256, "\ud800", "al\0ice"])
def test_a_text_that_clients_write_differently_is_refused(text: str) -> None:
    with pytest.raises(NotPrepared) as refused:
        check_prepared(text)
    assert not text or text not in str(refused.value)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_printable_ascii_is_always_good(text: str) -> None:
    check_prepared(text)


@given(st.text(max_size=40))
def test_what_is_good_is_its_own_prepared_form(text: str) -> None:
    try:
        check_prepared(text)
    except NotPrepared:
        return
    assert saslprep(text) == text
