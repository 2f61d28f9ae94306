"""A real Prometheus on a real broker, compactor and migrator: every panel has something to draw, every rule
is evaluated, and an alert fires. And a topic that is compacted because somebody asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.services.alert_cases import CASES
from tests.services.commands import drayd
from tests.services.compactor import CompactorProcess
from tests.services.dray import DrayProcess
from tests.services.live_move import Migrator
from tests.services.process import free_port
from tests.services.prometheus import Prometheus, promtool, running_prometheus
from tests.services.tools import require_tool
from tools import alerts, dashboards
from tools.metric_series import metrics_in

RECORDS = 500
MOVING = "moving"
LATE = "30m"
"""Nothing is compacted by its age."""


def eventually(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not seen in time: {what}"
        time.sleep(0.2)


# --- rules, without a cluster


def test_promtool_takes_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", alerts.FILE)


def test_every_alert_fires_and_stays_silent(tmp_path: Path) -> None:
    assert CASES.keys() == {alert.name for alert in alerts.ALERTS}
    tests = []
    for place, samples in enumerate(([{"labels": "{}", "value": 1}], [])):
        series = [(key, values) for case in CASES.values() for key, values in case[place].items()]
        assert len(dict(series)) == len(series), "cases that share a series have to be tried apart"
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": values} for key, values in series],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})',
                        "eval_time": "470m",
                        "exp_samples": samples,
                    }
                    for name in CASES
                ],
            }
        )
    path = tmp_path / "cases.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(alerts.FILE)], "evaluation_interval": "1m", "tests": tests})
    )
    promtool("test", "rules", path)


# --- a cluster under a little load


@dataclass(frozen=True)
class Watched:
    broker: DrayProcess
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    require_tool("java")
    directory = tmp_path_factory.mktemp("watched")
    http = free_port()
    settings = {
        "DRAY_TEST_KNOB__METRICS__LAG_INTERVAL": "1",
        "DRAY_COMPACTION__INTERVAL": LATE,
        "DRAY_COMPACTION__WAL_MAX_AGE": LATE,
        "DRAY_COMPACTION__HTTP": f"127.0.0.1:{http}",
    }
    rules = yaml.safe_load(alerts.FILE.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"  # a test has no patience
    impatient = directory / "rules.yaml"
    impatient.write_text(yaml.safe_dump(rules))
    config = directory / "dray.yaml"
    config.write_text("{}")
    with DrayProcess(directory, name="source", data_directory=directory / "source") as source:
        settings["DRAY_UPSTREAM__CLUSTERS__OLD"] = source.bootstrap
        with (
            DrayProcess(directory, settings=settings) as broker,
            Migrator("migrator", broker, config) as migrator,
        ):
            targets = {
                "dray-brokers": [f"127.0.0.1:{broker.http_port}"],
                "dray-compactors": [f"127.0.0.1:{http}"],
                "dray-migrators": [f"127.0.0.1:{migrator.http_port}"],
            }
            with (
                CompactorProcess(directory, broker, {}),
                running_prometheus(directory, targets, impatient) as prometheus,
            ):
                move(source, broker)  # before there are groups: a link makes brokers load them anew
                load(broker.bootstrap)
                yield Watched(broker, prometheus)


def load(bootstrap: str) -> None:
    """Records, a group that lags, and a request that fails."""
    producer = Producer({"bootstrap.servers": bootstrap})
    hour_ago = round((time.time() - 3600) * 1000)
    for number in range(RECORDS):
        producer.produce("orders", f"value {number}", str(number), timestamp=hour_ago + number)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 60
    while not consumer.consume(10, timeout=1.0):
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition("orders", 0, 100)], asynchronous=False)
    consumer.close()


def move(source: DrayProcess, broker: DrayProcess) -> None:
    """A topic of another cluster is linked, and what is produced to it here is passed on to that one."""
    produce(source.bootstrap, MOVING)
    places = ["--data-dir", str(broker.data_directory), "--execute"]
    drayd("migrate", "link", MOVING, "--from-cluster", "old", *places, **broker.settings)
    produce(broker.bootstrap, MOVING)


def produce(bootstrap: str, topic: str) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, f"value {number}", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert set(failures) == {None}


def test_a_topic_is_compacted_because_somebody_asked(watched: Watched) -> None:
    arguments = ["--data-dir", str(watched.broker.data_directory), "--json"]
    found = json.loads(drayd("admin", "compact", "orders", *arguments, "--wait", "200"))
    assert (found["state"], found["done"]) == ("done", found["partitions"])
    table = json.loads(drayd("admin", "table", "orders", *arguments))
    assert table["rows"] == RECORDS
    assert sum(partition["behind"] for partition in table["partitions"]) == 0


NEVER_SEEN = {
    "dray_errors",
    "dray_certificate_expires_timestamp_seconds",
    "dray_connections_closed_by_server",
    "dray_background_failures",
    "dray_metadata_failures",
    "dray_group_members_expired",
    "dray_deleted",
    "dray_audited_acts",
    "dray_lane_switches",
    "dray_compaction_topic_dirty_ratio",
    "dray_compaction_topic_dirty_bytes",
    "dray_compaction_by_key_last_timestamp_seconds",
}
"""Nothing of the kind happens in so short a life, and their labels come with the first."""


def test_every_panel_has_something_to_draw(watched: Watched) -> None:
    """As Grafana asks for it, with the variables filled in."""
    missing: list[str] = []

    def all_drawn() -> bool:
        missing.clear()
        for board in dashboards.DASHBOARDS:
            for title, expression in dashboards.expressions(board):
                filled = (
                    expression.replace("$job", ".+")
                    .replace("$__rate_interval", "1m")
                    .replace("$put", "0.005")
                    .replace("$get", "0.0004")
                )
                rare = any(metric.name in NEVER_SEEN for metric in metrics_in(expression))
                if rare or 'outcome!="ok"' in expression:
                    continue
                if not watched.prometheus.query(filled):
                    missing.append(f"{board.name}: {title}: {expression}")
        return not missing

    try:
        eventually(all_drawn, "every panel", 60)
    except AssertionError:
        pytest.fail("nothing to draw:\n" + "\n".join(missing))


def test_lag_is_there_in_records_and_seconds(watched: Watched) -> None:
    labels = 'group="billing", topic="orders"'
    query = watched.prometheus.query
    eventually(lambda: bool(query(f"dray_group_lag_records{{{labels}}} == {RECORDS - 100}")), "the lag")
    eventually(lambda: bool(query(f"dray_group_lag_seconds{{{labels}}} > 3500")), "and its age")


def test_a_mirror_and_what_is_passed_on_are_seen(watched: Watched) -> None:
    query = watched.prometheus.query

    def seen(expression: str) -> None:
        eventually(lambda: bool(query(expression)), expression)

    seen('dray_migration_topics{state="mirroring"} == 1')
    seen("dray_migration_worked_topics == 1")
    seen(f'dray_migration_topic_state{{topic="{MOVING}", state="mirroring"}} == 1')
    seen(f'dray_mirror_topic_bytes_total{{topic="{MOVING}"}} > {RECORDS}')
    seen(f'dray_mirror_topic_lag_records{{topic="{MOVING}"}} == 0')
    seen('dray_forwarded_requests_total{upstream="old", outcome="answered"} > 0')
    seen('dray_forwarded_batches_total{outcome="source"} > 0')
    seen('dray_forwarded_seconds_count{upstream="old"} > 0')
    seen('dray_upstream_connections{upstream="old"} > 0')
    assert query("sum(dray_mirror_stopped_partitions)")[0]["value"][1] == "0"


def test_rules_are_evaluated_without_error_and_a_stopped_broker_is_noticed(watched: Watched) -> None:
    def rules() -> list[dict[str, str]]:
        return list(watched.prometheus.get("rules")["groups"][0]["rules"])

    eventually(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule evaluated")
    assert len(rules()) == len(alerts.ALERTS)

    def firing() -> set[str]:
        return {rule["name"] for rule in rules() if rule["state"] == "firing"}

    assert not firing() & {"DrayProcessDown", "DrayNoBroker", "DrayTaskEnded"}
    watched.broker.kill()
    eventually(lambda: {"DrayProcessDown", "DrayNoBroker"} <= firing(), "the broker is missed")
