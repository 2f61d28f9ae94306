"""The loads that Dray and Apache Kafka are compared under."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.services.dray import DrayProcess

from bench import driver
from bench.driver import Load
from bench.harness import Sample, Target, Usage, settle, watched

RUN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Scenario:
    key: str
    title: str
    goal: str
    partitions: int
    record_bytes: int
    records: int
    run: Callable[[Target, Scenario, int], Sample]
    options: Mapping[str, object] = field(default_factory=dict)
    goal_megabytes: float = 0.0
    goal_records: float = 0.0
    goal_cpu: float = 0.0
    goal_ratio: float = 0.0


def sample_of(load: Load, usage: Usage) -> Sample:
    gigabytes = load.bytes / 1e9
    return Sample(
        megabytes_per_second=load.megabytes_per_second,
        records_per_second=load.records_per_second,
        cpu_seconds_per_gigabyte=usage.cpu_seconds / gigabytes,
        peak_megabytes=usage.peak_bytes / 1e6,
        client_cpu_seconds_per_gigabyte=load.cpu_seconds / gigabytes,
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
    )


def start_producing(target: Target, topic: str, scenario: Scenario, records: int) -> driver.Driver:
    options: dict[str, object] = {"acks": "all", "timeout": RUN_SECONDS}
    options |= {"records": records, "size": scenario.record_bytes} | dict(scenario.options)
    return driver.produce(target.bootstrap, topic, **options)


def produce(target: Target, scenario: Scenario, records: int) -> Sample:
    with target.topic(scenario.partitions) as topic:
        settle()
        with watched(target.server.pid) as usage:
            load = start_producing(target, topic, scenario, records).result(RUN_SECONDS)
        return sample_of(load, usage)


def cold_catch_up(target: Target, scenario: Scenario, records: int) -> Sample:
    """Dray has nothing in memory: all is read from objects. Both have the system's page cache."""
    return catch_up(target, scenario, records, cold=True)


def catch_up(target: Target, scenario: Scenario, records: int, cold: bool = False) -> Sample:
    """Everything was written before; one consumer reads it from the start."""
    with target.topic(scenario.partitions) as topic:
        start_producing(target, topic, scenario, records).result(RUN_SECONDS)
        if cold and isinstance(target.server, DrayProcess):
            target.server.terminate()
            target.server.start()
        settle()
        with watched(target.server.pid) as usage:
            load = driver.fetch(
                target.bootstrap,
                topic,
                records=records,
                partitions=scenario.partitions,
                timeout=RUN_SECONDS,
            ).result(RUN_SECONDS)
        return sample_of(load, usage)


def tail(target: Target, scenario: Scenario, records: int) -> Sample:
    """A consumer at the end of every partition, a producer at full speed; the broker's CPU is for both."""
    with target.topic(scenario.partitions) as topic:
        settle()
        with watched(target.server.pid) as usage:
            options = {"records": records, "partitions": scenario.partitions, "from": "latest"}
            consumer = driver.fetch(target.bootstrap, topic, timeout=RUN_SECONDS, **options)
            consumer.wait_until_ready()
            start_producing(target, topic, scenario, records).result(RUN_SECONDS)
            load = consumer.result(RUN_SECONDS)
        return sample_of(load, usage)


SCENARIOS = (
    Scenario(
        key="a",
        title="produce 1 KiB, default batching, 16 partitions",
        goal="400 MB/s, 2.0 CPU s/GB, 1.0x Kafka",
        partitions=16,
        record_bytes=1024,
        records=2_000_000,
        run=produce,
        goal_megabytes=400,
        goal_cpu=2.0,
        goal_ratio=1.0,
    ),
    Scenario(
        key="b",
        title="produce 1 KiB, idempotent, 1 partition",
        goal="200 MB/s",
        partitions=1,
        record_bytes=1024,
        records=1_000_000,
        run=produce,
        options={"enable.idempotence": True},
        goal_megabytes=200,
    ),
    Scenario(
        key="c",
        title="produce 16 KiB batches, 16 partitions",
        goal="150 MB/s",
        partitions=16,
        record_bytes=1024,
        records=600_000,
        run=produce,
        options={"batch.size": 16384, "enable.idempotence": False},
        goal_megabytes=150,
    ),
    Scenario(
        key="d",
        title="produce 100 bytes, default batching, 16 partitions",
        goal="1,000,000 records/s",
        partitions=16,
        record_bytes=100,
        records=6_000_000,
        run=produce,
        goal_records=1_000_000,
    ),
    Scenario(
        key="e",
        title="tail fetch 1 KiB, 16 partitions",
        goal="1.0x Kafka",
        partitions=16,
        record_bytes=1024,
        records=1_000_000,
        run=tail,
        goal_ratio=1.0,
    ),
    Scenario(
        key="f",
        title="catch-up fetch 1 KiB, 16 partitions",
        goal="1.0x Kafka",
        partitions=16,
        record_bytes=1024,
        records=2_000_000,
        run=catch_up,
        goal_ratio=1.0,
    ),
    Scenario(
        key="h",
        title="catch-up fetch, cold: from objects, 16 partitions",
        goal="1.0x Kafka",
        partitions=16,
        record_bytes=1024,
        records=2_000_000,
        run=cold_catch_up,
        goal_ratio=1.0,
    ),
)
