"""`drayd capacity`: the model holds on to what was measured, and each part of the load moves its figures."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from tests.unit.cli.shell import Shell

from dray.cli.commands.capacity import Capacity, Costs, Load, capacity
from dray.inspection.storage.costs import Prices

LOAD = Load(throughput=200e6, partitions=5000, retention=7 * 86400, zones=3)
ASKED = ("capacity", "--throughput", "200MB/s", "--partitions", "5000", "--zones", "3")


def of(load: Load) -> Capacity:
    return capacity(load, Prices(), 0.04, Costs())


def test_puts_are_as_the_page_of_stores_says() -> None:
    """`bench.s3_requests` counts them: an object has the rate of its lane times the linger."""
    assert of(LOAD).object_bytes == pytest.approx(200e6 / 3 / 16 * 0.1)
    assert of(LOAD).objects == pytest.approx(480)
    assert of(replace(LOAD, linger=0.2)).objects == pytest.approx(240)
    assert of(replace(LOAD, linger=10.0)).object_bytes == LOAD.object_bytes


def test_what_is_small_is_carried_and_packed() -> None:
    """Below the bound of the engine: 256 KiB/s for each of 48 lanes."""
    below, above = of(replace(LOAD, throughput=12e6)), of(replace(LOAD, throughput=13e6))
    assert (below.carried, above.carried) == (True, False)
    assert below.objects < above.objects / 50


def test_no_more_partitions_are_committed_than_batches_come() -> None:
    for load in (
        LOAD,
        replace(LOAD, throughput=1e6),
        replace(LOAD, partitions=1),
        replace(LOAD, batch=1 << 20),
    ):
        found = of(load)
        assert found.partition_commits <= load.throughput / load.batch * 1.000001, load
    few = of(replace(LOAD, partitions=16))
    assert few.partition_commits == pytest.approx(few.objects), "one partition in each domain"


def test_the_paper_of_growth() -> None:
    """100 brokers, 1 million partitions, 10 GB/s: 610,000 partition-commits, Oxia at 16 cores."""
    found = of(Load(throughput=10e9, partitions=1_000_000, retention=7 * 86400, domains=100, linger=10.0))
    assert found.partition_commits == pytest.approx(610_000, rel=0.01)
    assert found.objects == pytest.approx(1_200, rel=0.01)
    assert found.metadata_cores == pytest.approx(16, rel=0.02)


def test_a_zone_may_go_and_a_broker_may_go() -> None:
    costs = Costs()
    for zones in (1, 2, 3):
        for throughput in (1e5, 2e8, 2e9):
            found = of(replace(LOAD, zones=zones, throughput=throughput))
            left = found.brokers - (found.brokers_per_zone if zones > 1 else 1)
            assert left * costs.busy >= found.broker_cores, (zones, throughput)
            assert left >= 1
            assert found.brokers == zones * found.brokers_per_zone


def test_there_are_domains_enough_for_the_brokers_of_a_zone() -> None:
    large = replace(LOAD, throughput=10e9)
    assert of(large).domains >= of(large).brokers_per_zone > 16
    assert of(replace(large, domains=16)).domains == 16, "as it was asked for"
    assert of(LOAD).domains == 16


@pytest.mark.parametrize(
    ("change", "grows", "stays"),
    [
        ({"retention": 14 * 86400.0}, "bytes_stored", "objects"),
        ({"readers": 4}, "broker_cores", "partition_commits"),
        ({"zones": 6}, "objects", "partition_commits"),
        ({"partitions": 200_000}, "files", "objects"),
        ({"throughput": 400e6}, "metadata_writes", "domains"),
    ],
    ids=str,
)
def test_what_grows_with_the_load(change: dict[str, Any], grows: str, stays: str) -> None:
    before, after = asdict(of(LOAD)), asdict(of(replace(LOAD, **change)))
    assert after[grows] > 1.1 * before[grows]
    assert after[stays] == pytest.approx(before[stays], rel=0.05)


def test_it_is_printed_with_its_assumptions_and_prices(drayd: Shell) -> None:
    ran = drayd(*ASKED, "--price", "puts=0.01", "--price", "core=1")
    assert ran.code == 0, ran.error
    said = json.loads(drayd(*ASKED, "--price", "puts=0.01", "--price", "core=1", "--json").out)
    usual = json.loads(drayd(*ASKED, "--json").out)
    assert f"{said['brokers']}, {said['brokers_per_zone']} in each zone" in ran.out
    assert f"{said['bill']['total']:,.0f}" in ran.out
    assert all(line in ran.out for line in said["assumptions"])
    assert any("1.26 ms per object" in line for line in said["assumptions"])
    assert said["bill"]["puts"] == pytest.approx(2 * usual["bill"]["puts"])
    assert said["bill"]["brokers"] == pytest.approx(25 * usual["bill"]["brokers"])
    assert said["bill"]["gets"] == usual["bill"]["gets"]
    assert said["bill"]["total"] == pytest.approx(sum(said["bill"].values()) - said["bill"]["total"])


def test_advice_is_given_where_it_would_help(drayd: Shell) -> None:
    def advice(*more: str) -> list[str]:
        said = json.loads(drayd(*ASKED, *more, "--json").out)["assumptions"]
        return [line for line in said if line.startswith("advice: ")]

    assert any("log.flush_linger: 500ms" in line for line in advice())
    assert any("batch.size" in line for line in advice())
    assert advice("--linger", "10s", "--batch", "1MiB") == []
    assert any("cluster.domains: " in line for line in advice("--throughput", "10GB/s"))
    assert any("more --domains" in line for line in advice("--throughput", "10GB/s", "--domains", "2"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--throughput", "fast"), "--throughput = 'fast': must be a size"),
        (("--throughput", "0MB/s"), "--throughput = '0MB': must be a size"),
        (("--retention", "7"), "--retention = '7': must be a duration"),
        (("--batch", "1"), "--batch = '1': must be a size"),
        (("--linger", "1d"), "--linger = '1d': must be a duration"),
        (("--price", "gold=1"), "--price = 'gold=1': must be NAME=DOLLARS, with a name of puts, gets"),
        (("--price", "puts=-1"), "--price = 'puts=-1': must be NAME=DOLLARS"),
        (("--price", "puts=nan"), "--price = 'puts=nan': must be NAME=DOLLARS"),
    ],
)
def test_what_cannot_be_meant_is_one_line(drayd: Shell, arguments: tuple[str, ...], line: str) -> None:
    ran = drayd(*ASKED, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error.startswith(f"drayd: {line}")
    assert ran.error.count("\n") == 1
