"""Curves in a terminal, sizes for people, and the orders of the demo."""

from __future__ import annotations

import json
from random import Random

import pytest

from dray.cli.demo_run import chart, make_orders, rate_at
from dray.daemons.assembly.words import about_size
from dray.kafka.records import decode


def test_a_chart_reaches_from_zero_to_the_greatest_value() -> None:
    assert chart([0, 4, 8], width=10, height=2, unit="/s") == [
        "          8 /s │  █",
        "             0 │ ██",
    ]
    assert chart([1, 2], width=2, height=1, unit="x")[0].endswith("│▄█")


def test_a_peak_is_never_smoothed_away() -> None:
    values = [0.0] * 1000
    values[501] = 100.0
    [top, *_] = chart(values, width=10, height=3, unit="x")
    assert top.count("█") == 1


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0]])
def test_a_chart_of_nothing(values: list[float]) -> None:
    assert len(chart(values, width=10, height=3, unit="x")) == 3


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (123_456, "123 kB"),
        (5_600_000, "5.6 MB"),
        (10**16, "10,000 TB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert about_size(size) == text


def test_orders_are_records_that_any_client_reads() -> None:
    records = list(decode(make_orders(20, Random(1), 1234)).records())
    assert len(records) == 20
    for record in records:
        assert record.timestamp == 1234
        assert record.headers == [("source", b"web-shop")]
        assert record.key is not None
        assert record.value is not None
        order = json.loads(record.value)
        assert record.key == f"customer-{order['customer']:03d}".encode()
        assert order["amount"] > 0


def test_the_rate_has_quiet_and_busy_moments() -> None:
    rates = [rate_at(moment / 10, 1000) for moment in range(600)]
    assert min(rates) < 700
    assert max(rates) > 2500
