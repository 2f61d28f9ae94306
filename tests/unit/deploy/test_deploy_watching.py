"""Dashboards and alerts are those of the metrics that there are, and every alert has its runbook."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from tools import alerts, dashboards
from tools.metric_series import UnknownSeries, definitions, metrics_in

from dray.daemons.config.schema import fields

ALL = [
    *((board.name, *each) for board in dashboards.DASHBOARDS for each in dashboards.expressions(board)),
    *(("alerts", alert.name, alert.expression) for alert in alerts.ALERTS),
]


@pytest.mark.parametrize(("place", "title", "expression"), ALL)
def test_every_expression_names_what_is_exported(place: str, title: str, expression: str) -> None:
    assert metrics_in(expression) or "up{" in expression, (place, title)


@pytest.mark.parametrize(
    "wrong",
    [
        "dray_nothing",
        "rate(dray_requests[5m])",  # a counter's series ends in _total
        "dray_open_long_polls_total",
        "dray_produce_seconds",  # a histogram's has three, and none of that name
        'dray_requests_total{topic="x"}',
        "sum by (topic) (dray_open_long_polls)",
        'up == 1 and on (zone) dray_clock_doubted{job="dray"}',
    ],
)
def test_what_is_not_exported_is_refused(wrong: str) -> None:
    with pytest.raises(UnknownSeries):
        metrics_in(wrong)


def test_every_metric_is_drawn_somewhere() -> None:
    drawn = {each.name for _, _, expression in ALL for each in metrics_in(expression)}
    assert definitions().keys() - drawn == set()


@pytest.mark.parametrize("board", dashboards.DASHBOARDS, ids=lambda board: board.name)
def test_the_dashboards_are_as_they_are_generated(board: dashboards.Dashboard) -> None:
    path = dashboards.FOLDER / f"{board.name}.json"
    assert path.read_text() == dashboards.rendered(board), "run: python -m tools.dashboards"
    found = json.loads(path.read_text())
    assert found["uid"] == f"dray-{board.name}"
    places = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert (x, place["y"]) not in places, f"{panel['title']} lies over another"
            places.add((x, place["y"]))
        assert panel["description"]
        assert place["x"] + place["w"] <= 24


def test_there_is_no_other_dashboard() -> None:
    names = {board.name for board in dashboards.DASHBOARDS}
    assert {path.stem for path in dashboards.FOLDER.glob("*.json")} == names


def test_the_alerts_are_as_they_are_generated() -> None:
    assert alerts.FILE.read_text() == alerts.rendered(), "run: python -m tools.alerts"
    [group] = yaml.safe_load(alerts.FILE.read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in alerts.ALERTS]


def test_every_alert_has_its_runbook() -> None:
    """And no runbook is without an alert: what it means, what to look at, what to do."""
    pages = [re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:] for page in alerts.RUNBOOKS]
    sections = [section for page in pages for section in page]
    found = {section.partition("\n")[0]: section for section in sections}
    assert list(found) == [alert.name for alert in alerts.ALERTS]
    for name, section in found.items():
        assert re.findall(r"^\*\*(\w[\w ]*)\*\*: \S", section, re.MULTILINE) == ["Means", "Look at", "Do"], (
            name
        )


def test_what_runbooks_name_is_there() -> None:
    text = "".join(page.read_text() for page in alerts.RUNBOOKS)
    for expression in re.findall(r"`(dray_\w+(?:\{[^`]*\})?)`", text):
        if expression in definitions():
            continue
        metrics_in(expression)
    settings = {field.key for field in fields()}
    sections = {key.partition(".")[0] for key in settings}
    for key in re.findall(r"`([a-z]+\.[a-z_]+)`", text):
        if key.partition(".")[0] in sections - {"client"}:
            assert key in settings, key
