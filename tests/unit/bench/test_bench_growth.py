"""The exponents of `bench.growth`, and the table of `bench.peers`."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bench import growth, peers
from bench.growth import Cost, Figure, exponent, rows


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    sizes = (10.0, 100.0, 1000.0)
    assert exponent([(size, 3 * size) for size in sizes]) == pytest.approx(1)
    assert exponent([(size, 7.0) for size in sizes]) == pytest.approx(0)
    assert exponent([(size, size**1.64) for size in sizes]) == pytest.approx(1.64)
    assert exponent([(size, 5 / size) for size in sizes]) == pytest.approx(-1)


def test_what_is_below_the_clock_counts_for_nothing() -> None:
    assert Cost(cpu=0.01).ms(1) == 0
    assert Cost(cpu=0.5).ms(10) == 50
    assert exponent([(10, 0.0), (100, 5.0), (1000, 50.0)]) == pytest.approx(1)
    assert exponent([(10, 0.0), (100, 5.0)]) is None
    assert exponent([(10, 1.0), (10, 5.0)]) is None


def test_every_figure_is_a_row_with_what_it_ought_to_be() -> None:
    found = {
        10: {"made": Figure(1.0, 0), "all": Figure(2.0, 1)},
        100: {"made": Figure(1.0, 0), "all": Figure(20.0, 1)},
    }
    [made, every] = rows(found)
    assert made == ("made", [1.0, 1.0], pytest.approx(0), 0)
    assert every == ("all", [2.0, 20.0], pytest.approx(1), 1)


def test_sizes_and_directions_are_of_ones_choice() -> None:
    chosen = growth.parse_arguments(["--only", "age,groups", "--sizes", "300,20"])
    assert (chosen.only, chosen.sizes) == (["age", "groups"], [20, 300])
    usual = growth.parse_arguments([])
    assert usual.only == list(growth.DIRECTIONS)
    assert len(usual.only) == 7
    assert all(small < large for _, sizes in growth.DIRECTIONS.values() for small, large in pairwise(sizes))


@pytest.mark.parametrize("wrong", [["--only", "up"], ["--sizes", "0"], ["--sizes", "many"]])
def test_what_cannot_be_meant_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        growth.parse_arguments(wrong)
    assert ended.value.code == 2


def test_the_table_says_who_is_better_and_who_cannot() -> None:
    """A ratio above 1 is good for Dray, in megabytes as in seconds; it is of neighbours, not of medians."""
    found = peers.Figures([peers.DRAY, peers.KAFKA, "Nisshi"])
    for ours, theirs in ((100.0, 50.0), (300.0, 300.0), (200.0, 100.0)):
        found.add(peers.DRAY, {"b, MB/s": ours, "p, s": ours})
        found.add(peers.KAFKA, {"b, MB/s": theirs, "p, s": theirs})
    found.add("Nisshi", {"p, s": 4.0})
    found.refusals["b", "Nisshi"] = "no such thing"
    assert found.table().splitlines() == [
        "| | Dray | Kafka | Nisshi |",
        "|---|---|---|---|",
        "| b, MB/s | 200 (2.00x) | 100 | - |",
        "| p, s | 200 (0.50x) | 100 | 4 |",
        "",
        "Nisshi, b: no such thing",
    ]


def test_a_peer_is_a_name_and_a_command() -> None:
    chosen = peers.parse_arguments(["--peer", "N=/n --at {port} --in {directory}", "--only", "h,l"])
    assert chosen.peer == {"N": "/n --at {port} --in {directory}"}
    assert list(peers.loads(chosen)) == ["h", "l"]
    with pytest.raises(SystemExit):
        peers.parse_arguments(["--peer", "/n"])
