"""SASLprep (RFC 4013): which names and passwords every client writes alike.

Kafka's own clients send a name and a password as they were typed; others (those of Go's scram library)
prepare them first. A text that preparation changes or refuses would work with some clients and not with
others, and two names that look alike could be two users. So both are refused where a user is made.
"""

from __future__ import annotations

import stringprep
import unicodedata
from collections.abc import Callable
from typing import Final

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # unassigned: what is stored must not change its meaning later
)

LONGEST: Final = 255
"""The longest name or password, in bytes: RFC 4616 asks every server to accept as much, and a key holds no
more."""


class NotPrepared(ValueError):
    """A name or a password that not every client writes alike. The text itself is never in the message."""


def saslprep(text: str) -> str:
    """As a stored string: raises `NotPrepared` for what is prohibited."""
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibits(character) for character in prepared for prohibits in _PROHIBITED):
        raise NotPrepared(
            "it has a character that SASLprep (RFC 4013) prohibits, such as a control character"
        )
    _check_directions(prepared)
    return prepared


def _check_directions(prepared: str) -> None:
    """RFC 3454, section 6."""
    if not any(map(stringprep.in_table_d1, prepared)):
        return
    if any(map(stringprep.in_table_d2, prepared)):
        raise NotPrepared("it mixes letters that are written from the right with others from the left")
    if not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])):
        raise NotPrepared("it is written from the right, but does not begin and end so")


def check_prepared(text: str) -> None:
    """Raises `NotPrepared` unless every client writes this text alike."""
    if not text:
        raise NotPrepared("it is empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise NotPrepared("it is no valid Unicode text") from None
    if size > LONGEST:
        raise NotPrepared(f"it is longer than {LONGEST} bytes")
    if saslprep(text) != text:
        raise NotPrepared("SASLprep (RFC 4013) changes it, so not every client would send it alike")
