"""The kinds: what each takes, in which human forms, and that it can read what it writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.base.config.kinds import (
    DAY,
    GIB,
    MIB,
    Address,
    Choice,
    Duration,
    Either,
    HostPort,
    Kind,
    Size,
    Switch,
    Text,
    TextList,
    TextMap,
    Whole,
)

LOOPBACK = ("127.0.0.1", "127.9.9.9", "::1", "localhost")
SIZE = Size(0, 1024**5)
DURATION = Duration(0.0, 365 * DAY)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 * MIB),
        ("64 MiB", 64 * MIB),
        ("64mib", 64 * MIB),
        ("1.5GiB", 3 * GIB // 2),
        ("10MB", 10_000_000),
        ("7", 7),
        ("7B", 7),
        (7, 7),
        ("0", 0),
    ],
)
def test_sizes_in_human_form(text: Any, size: int) -> None:
    assert SIZE.parse(text) == size


@pytest.mark.parametrize("given", ["a*,b", " a* , b,", ["a*", "b"], ("a*", "b")])
def test_lists_in_human_form(given: Any) -> None:
    kind = TextList(r"[a-z*]+", "names")
    assert kind.parse(given) == ("a*", "b")
    assert kind.render(kind.parse(given)) == "a*,b"
    assert kind.parse("") == kind.parse([]) == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ms", 0.1),
        ("10s", 10.0),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("250us", 0.00025),
        ("0s", 0),
    ],
)
def test_durations_in_human_form(text: str, seconds: float) -> None:
    assert DURATION.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TextList(r"[a-z*]+", "names"), "a,B"),
        (TextList(r"[a-z*]+", "names"), ["a", 1]),
        (TextList(r"[a-z*]+", "names"), {"a": "b"}),
        (SIZE, "64 elephants"),
        (SIZE, "-1"),
        (SIZE, ""),
        (SIZE, 1.5),
        (SIZE, True),
        (SIZE, None),
        (Size(10, 20), 9),
        (Size(10, 20), "21B"),
        (DURATION, 100),
        (DURATION, "100"),
        (DURATION, "100 parsecs"),
        (DURATION, "-1s"),
        (DURATION, "1S"),
        (Duration(1.0, 2.0), "0.5s"),
        (Duration(1.0, 2.0), "3s"),
        (Whole(0, 5), 6),
        (Whole(0, 5), -1),
        (Whole(0, 5), True),
        (Whole(0, 5), "3"),
        (Whole(0, 5), 3.0),
        (Switch(), "true"),
        (Switch(), 1),
        (Choice("a", "b"), "c"),
        (Choice("a", "b"), 1),
        (Text("[a-z]+", "letters"), "A"),
        (Text("[a-z]+", "letters"), "a\n"),
        (Text("[a-z]+", "letters"), 5),
        (HostPort(), "localhost"),
        (HostPort(), "localhost:"),
        (HostPort(), ":9092"),
        (HostPort(), "::1:9092"),
        (HostPort(), "localhost:70000"),
        (HostPort(), "localhost:0"),
        (HostPort(), "local host:1"),
        (HostPort(), 9092),
        (Either("auto", Whole(0, 5)), "off"),
        (Either("auto", Whole(0, 5)), False),
        (Either("off", Whole(0, 5)), True),
        (TextMap("m", "[a-z]+"), "x"),
        (TextMap("m", "[a-z]+"), {"A": "1"}),
        (TextMap("m", "[a-z]+"), {1: "1"}),
        (TextMap("m", "[a-z]+"), {"a": ["1"]}),
        (TextMap("m", "[a-z]+"), {"a": None}),
    ],
)
def test_what_is_refused(kind: Kind, value: Any) -> None:
    with pytest.raises(ValueError):
        kind.parse(value)


def test_addresses() -> None:
    assert HostPort().parse("localhost:9092") == Address("localhost", 9092)
    assert HostPort().parse("[::1]:9092") == Address("::1", 9092)
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert HostPort(free_port=True).parse("127.0.0.1:0") == Address("127.0.0.1", 0)


def test_a_word_stands_for_no_value() -> None:
    kind = Either("auto", Whole(0, 5))
    assert kind.parse("auto") is None
    assert kind.parse(3) == 3
    assert kind.render(None) == "auto"
    assert kind.from_text("auto") is None
    assert kind.from_text("3") == 3


def test_the_word_off_needs_no_quotes_in_yaml() -> None:
    """It is false there."""
    assert Either("off", Whole(0, 5)).parse(False) is None


def test_text_of_flags_and_environment_is_read_by_the_kind() -> None:
    assert Whole(0, 5).from_text("3") == 3
    assert Whole(0, 5).from_text("three") == "three"
    assert Switch().from_text("TRUE") is True
    assert Switch().from_text("perhaps") == "perhaps"
    # A name of digits stays text: only numbers become numbers.
    assert Text("[0-9]+", "digits").from_text("12") == "12"
    assert TextMap("m", "[a-z.]+").from_text("{retention.ms: 5}") == {"retention.ms": 5}


def test_map_values_become_text() -> None:
    assert TextMap("m", "[a-z]+").parse({"a": 5, "b": True, "c": "x"}) == {"a": "5", "b": "true", "c": "x"}


@given(st.integers(0, 1024**5))
def test_a_size_reads_back_what_it_writes(size: int) -> None:
    assert SIZE.parse(SIZE.render(size)) == size


@given(st.integers(0, 10**12))
def test_a_duration_reads_back_what_it_writes(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    assert DURATION.parse(DURATION.render(seconds)) == pytest.approx(seconds, abs=1e-7)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.lists(st.integers())))
def test_no_value_breaks_a_kind(value: Any) -> None:
    for kind in (
        SIZE,
        DURATION,
        Whole(0, 5),
        Switch(),
        Choice("a"),
        Text("a", "a"),
        HostPort(),
        TextMap("m", "a"),
    ):
        try:
            kind.parse(value)
        except ValueError:
            continue


def test_which_addresses_only_this_machine_reaches() -> None:
    assert all(Address(host, 9092).is_loopback for host in LOOPBACK)
    beyond = ("0.0.0.0", "::", "10.0.0.1", "example.com", "")
    assert not any(Address(host, 9092).is_loopback for host in beyond)
