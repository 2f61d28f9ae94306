from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from dray.base.telemetry import Metrics, TopicTraffic
from dray.base.telemetry.metrics import OTHER


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(metrics: Metrics, name: str) -> dict[str, float]:
    return {
        sample.labels["topic"]: sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == f"dray_topic_{name}_total"
    }


def traffic(limit: int) -> tuple[Metrics, TopicTraffic, Clock]:
    metrics, clock = Metrics(process=False), Clock()
    return metrics, metrics.topic_traffic(limit, clock), clock


def test_topics_are_counted_apart() -> None:
    metrics, counted, _ = traffic(10)
    orders, payments = counted.find("orders"), counted.find("payments")
    orders.produce_bytes += 100
    orders.produce_records += 3
    orders.produce_requests += 1
    payments.fetch_bytes += 7
    payments.fetch_requests += 1
    assert counted.find("orders") is orders
    assert shown(metrics, "produce_bytes") == {"orders": 100, "payments": 0, OTHER: 0}
    assert shown(metrics, "produce_records")["orders"] == 3
    assert shown(metrics, "produce_requests")["orders"] == 1
    assert shown(metrics, "fetch_bytes")["payments"] == 7
    assert shown(metrics, "fetch_requests")["payments"] == 1


def test_series_are_bounded_and_the_rest_is_counted_together() -> None:
    metrics, counted, _ = traffic(2)
    for number in range(1000):
        counters = counted.find(f"topic-{number}")
        counters.produce_requests += 1
        counters.produce_bytes += 10
    assert len(counted) == 2
    assert shown(metrics, "produce_bytes") == {"topic-0": 10, "topic-1": 10, OTHER: 9980}
    [left_out] = [
        sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == "dray_topic_requests_of_others_total"
    ]
    assert left_out == 998


def test_no_topic_has_the_name_of_the_rest() -> None:
    metrics, counted, _ = traffic(1)
    counted.find("other").produce_bytes += 5
    counted.find("another").produce_bytes += 3
    assert shown(metrics, "produce_bytes") == {"other": 5, OTHER: 3}


def test_a_topic_without_traffic_gives_its_place_up() -> None:
    metrics, counted, clock = traffic(2)

    def request(topic: str) -> None:
        counters = counted.find(topic)
        counters.produce_requests += 1
        counters.produce_bytes += 10

    request("idle")
    request("busy")
    request("new")
    assert shown(metrics, "produce_bytes") == {"idle": 10, "busy": 10, OTHER: 10}
    for _ in range(2):  # looked at once, and found unchanged at the next look
        clock.now += 61
        request("busy")
        request("new")
    assert shown(metrics, "produce_bytes") == {"new": 10, "busy": 30, OTHER: 30}
    assert sum(shown(metrics, "produce_bytes").values()) == 70, "nothing that was counted may get lost"


def test_a_place_is_looked_for_once_a_minute() -> None:
    _, counted, clock = traffic(1)
    counted.find("first").produce_requests += 1
    clock.now = 61
    counted.find("second")
    clock.now = 62
    assert counted.find("second") is counted.other
    clock.now = 122
    assert counted.find("second") is not counted.other


def test_without_room_there_is_only_the_rest() -> None:
    metrics, counted, _ = traffic(0)
    counted.find("orders").fetch_bytes += 1
    assert shown(metrics, "fetch_bytes") == {OTHER: 1}
