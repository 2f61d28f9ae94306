"""What ran, and how groups lagged: the history that a console keeps, and runs of the simulator from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.base.runtime import SystemRuntime
from dray.inspection.groups import lag_history
from dray.inspection.groups.lag_history import KEPT, MOST_GROUPS, LagHistory, LagPoint
from dray.inspection.groups.views import LagOfGroup
from dray.inspection.storage.scrape import CycleHistory, CycleNumbers, Sample, ScrapeHistory, cycle_numbers
from dray.inspection.storage.simulated_runs import LARGEST_FILE, MOST_LANES, MOST_STEPS
from dray.kafka.records import Record

HOSTILE = "<script>alert(1)</script>"
BIG = 2**63


class Clock(SystemRuntime):
    """A runtime whose wall clock is set by hand."""

    now = 1_000_000

    def wall_ms(self) -> int:
        return self.now


def kafka() -> FakeKafka:
    partition = FakePartition()
    partition.append(*(Record(n, 1000 + n, b"k", b"v") for n in range(10)))
    found = FakeKafka({"t": [partition]})
    found.groups = {"g": {("t", 0): 4}, "done": {("t", 0): 10}, "idle": {}}
    return found


def history(cluster: FakeKafka) -> tuple[LagHistory, Clock]:
    clock = Clock()
    brokers = FakeBrokers(cluster)
    brokers.runtime = clock
    return LagHistory(brokers, clock), clock


async def test_lag_is_sampled_in_records_and_time() -> None:
    cluster = kafka()
    lags, clock = history(cluster)
    await lags.sample()
    clock.now += 15_000
    cluster.groups["g"]["t", 0] = 6
    await lags.sample()
    assert [(point.lag, point.lag_ms) for point in lags.points("g")] == [
        (6, 1_000_000 - 1004),
        (4, 1_015_000 - 1006),
    ]
    assert [(point.lag, point.lag_ms) for point in lags.points("done")] == [(0, 0), (0, 0)]
    assert lags.points("idle") == []
    del cluster.groups["g"]
    await lags.sample()
    assert lags.points("g") == [], "a group that is gone is forgotten"


def test_curves_are_bounded() -> None:
    lags, clock = history(kafka())
    for _ in range(KEPT + 5):
        clock.now += 15_000
        lags.seen("g", 1, None)
    assert len(lags.points("g")) == KEPT
    for number in range(3 * MOST_GROUPS):
        lags.take({f"other-{number}": LagOfGroup(1, 1)})
    assert len(lags._curves) == MOST_GROUPS
    assert lags.points("g"), "what was looked at stays"


def test_a_page_that_is_open_draws_a_curve() -> None:
    lags, clock = history(kafka())
    for number in range(30):
        clock.now += 2000
        lags.seen("g", number, None)
    assert 8 <= len(lags.points("g")) <= 15
    assert lags.points("g")[-1].lag == 29


async def test_watched_groups_are_sampled_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = kafka()
    cluster.groups |= {f"a-{number:04d}": {("t", 0): 0} for number in range(300)}
    cluster.groups["zz"] = {("t", 0): 1}
    lags, _ = history(cluster)
    monkeypatch.setattr(lag_history, "MOST_GROUPS", 10)
    lags.seen("zz", 9, None)
    cluster.asked.clear()
    await lags.sample()
    fetched = [each for each in cluster.asked if type(each).__name__ == "OffsetFetchRequest"]
    asked = [group.group_id for each in fetched for group in each.groups]
    assert len(asked) == 10
    assert "zz" in asked


async def test_a_group_shows_its_curves() -> None:
    cluster = kafka()
    client = ConsoleClient(cluster)
    assert 'class="spark"' not in (await client.get("/groups/g")).text, "one point is no curve"
    client.lags._curves["g"].extendleft(LagPoint(n, BIG, BIG) for n in range(3))
    page = (await client.get("/groups/g")).text
    assert page.count('class="spark"') == 2
    assert 'class="spark"' in (await client.get("/groups")).text
    view = (await client.get("/api/groups/g/lag")).json
    assert [point["lag"] for point in view["points"]] == [str(BIG)] * 3 + [6]
    assert (await client.get("/api/groups/none/lag")).status == 404


# --- cycles

METRICS = """
# TYPE dray_compaction_cycles counter
dray_compaction_cycles_total{outcome="done"} DONE
dray_compaction_cycles_total{outcome="troubled"} TROUBLED
# TYPE dray_compaction_cycle_seconds histogram
dray_compaction_cycle_seconds_bucket{le="+Inf"} DONE
dray_compaction_cycle_seconds_sum SECONDS
dray_compaction_cycle_seconds_count DONE
# TYPE dray_compaction_files counter
dray_compaction_files_total FILES
# TYPE dray_compaction_table_commits counter
dray_compaction_table_commits_total{outcome="done"} FILES
# TYPE dray_compaction_phase_seconds histogram
dray_compaction_phase_seconds_sum{phase="write"} SECONDS
# TYPE dray_compaction_streams gauge
dray_compaction_streams 4
"""


def metrics(done: int, troubled: int, seconds: float, files: int) -> CycleNumbers:
    text = METRICS.replace("DONE", str(done)).replace("TROUBLED", str(troubled))
    text = text.replace("SECONDS", str(seconds)).replace("FILES", str(files))
    return cycle_numbers(text_string_to_metric_families(text))


def test_cycles_are_what_grew_between_two_looks() -> None:
    seen = CycleHistory()
    for at, numbers in enumerate(
        [
            metrics(5, 0, 10.0, 3),  # what was before is not known
            metrics(5, 0, 10.0, 3),  # nothing ended
            metrics(6, 0, 12.5, 5),
            metrics(7, 0, 12.6, 5),  # idle
            metrics(9, 0, 12.9, 5),  # idle, twice
            metrics(9, 1, 13.0, 5),
            metrics(1, 0, 1.0, 1),  # started again
        ]
    ):
        seen.take({"c:1": numbers}, at)
    assert [(each.ended_ms, each.outcome, each.cycles, each.files, each.idle) for each in seen.cycles] == [
        (2, "done", 1, 2, False),
        (4, "done", 3, 0, True),
        (5, "troubled", 1, 0, False),
        (6, "done", 1, 1, False),
    ]
    worked = seen.cycles[0]
    assert (worked.seconds, worked.commits, worked.phases) == (2.5, {"done": 2}, {"write": 2.5})


async def test_runs_are_shown_in_every_state(tmp_path: Path) -> None:
    runtime = SystemRuntime()
    measured = ScrapeHistory(None, runtime)  # type: ignore[arg-type]
    client = ConsoleClient(kafka(), history=measured, runs=tmp_path, writable=True)
    text = (await client.get("/runs")).text
    assert "No compactor tells its numbers" in text
    assert "No runs yet" in text
    measured.take(Sample(0.0, {}, (), {HOSTILE: metrics(0, 0, 0, 0)}))
    assert "No cycle has ended" in (await client.get("/runs")).text
    measured.take(Sample(5.0, {}, (), {HOSTILE: metrics(1, 1, 2.0, BIG)}))
    page = await client.get("/runs")
    assert "troubled" in page.text
    assert HOSTILE not in page.text
    assert (await client.get("/api/runs")).json["cycles"][0]["files"] == str(BIG)
    assert "/runs" not in (await ConsoleClient(kafka()).get("/")).text
    assert (await ConsoleClient(kafka()).get("/runs")).status == 404


# --- simulated runs


def written(directory: Path, name: str, **changed: Any) -> None:
    run = {
        "seed": 7,
        "broken": None,
        "seconds": 6.5,
        "fingerprint": "ab",
        "counts": {"operations": 761, "! x": 1},
        "faults": {"hint lost": 3},
        "steps": [{"at": 0.1, "who": "broker-0", "what": "serves"}],
    } | changed
    (directory / name).write_text(json.dumps(run))


async def test_a_run_is_drawn_as_lanes(tmp_path: Path) -> None:
    steps = [{"at": n / 100, "who": f"{HOSTILE} {n % 40}", "what": "it crashed\x1b"} for n in range(5000)]
    written(tmp_path, "bad.json", broken=HOSTILE, steps=steps, seconds=50.0, seed=BIG)
    written(tmp_path, "good <1>.json")
    client = ConsoleClient(kafka(), runs=tmp_path)
    rows = (await client.get("/api/runs")).json["simulated"]
    assert {row["file"]: (row["seed"], row["broken"]) for row in rows} == {
        "bad.json": (str(BIG), HOSTILE),
        "good <1>.json": (7, None),
    }
    page = await client.get("/runs/bad.json")
    assert page.status == 200
    assert HOSTILE not in page.text
    assert "\x1b" not in page.text
    view = (await client.get("/api/runs/bad.json")).json
    assert (len(view["lanes"]), len(view["steps"])) == (MOST_LANES, MOST_STEPS)
    assert all(
        0 <= step["x"] <= 1000 and step["lane"] < MOST_LANES and step["fault"] for step in view["steps"]
    )
    assert "every promise kept" in (await client.get("/runs/good%20%3C1%3E.json")).text


@pytest.mark.parametrize(
    "name",
    ["none.json", "..%2Fsecret.json", "%2Fetc%2Fpasswd", "no.txt", "broken.json", "list.json", "large.json"],
)
async def test_what_is_no_run_is_not_shown(tmp_path: Path, name: str) -> None:
    place = tmp_path / "runs"
    place.mkdir()
    written(tmp_path, "secret.json")
    written(place, "no.txt")
    (place / "broken.json").write_text("{" * 10_000)
    (place / "list.json").write_text('["seed"]')
    with (place / "large.json").open("wb") as large:
        large.truncate(LARGEST_FILE + 1)
    client = ConsoleClient(kafka(), runs=place)
    assert (await client.get(f"/runs/{name}")).status == 404
    listed = (await client.get("/api/runs")).json["simulated"]
    assert {row["file"] for row in listed} == {"broken.json", "list.json", "large.json"}
    assert all(row["trouble"] for row in listed)


async def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    answer = await ConsoleClient(kafka(), runs=tmp_path / "none").get("/runs")
    assert (answer.status, "cannot read the directory" in answer.text) == (404, True)
