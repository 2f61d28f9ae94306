"""The bench's own bytes: batches that a broker accepts, and as many of them as were asked for."""

from __future__ import annotations

import pytest
from bench.throughput import BenchPlan, BenchResult, make_batch, parse_arguments

from dray.base.runtime import SystemRuntime
from dray.kafka.records import decode, validate


@pytest.mark.parametrize(("count", "size"), [(1, 1), (1, 1000), (7, 10), (64, 2048)])
def test_a_batch_is_valid_and_holds_what_was_asked_for(count: int, size: int) -> None:
    runtime = SystemRuntime()
    batch = make_batch(count, size, runtime)
    [checked] = validate(batch, max_batch_bytes=1 << 30, max_decompressed_bytes=1 << 30)
    assert checked.record_count == count
    assert checked.producer_id == -1
    records = list(decode(batch).records())
    assert [(record.key, len(record.value or b""), list(record.headers)) for record in records] == [
        (None, size, [])
    ] * count
    runtime.close()


def test_percentiles() -> None:
    outcome = BenchResult("x", latencies=[float(number) for number in range(100, 0, -1)])
    assert (outcome.percentile(0.5), outcome.percentile(0.99)) == (51.0, 100.0)
    assert BenchResult("x").percentile(0.5) == 0.0


@pytest.mark.parametrize(
    ("records", "batch_records", "partitions"), [(1, 1, 1), (10, 3, 4), (12, 3, 2), (5, 7, 3)]
)
def test_every_record_of_the_plan_ends_up_in_a_partition(
    records: int, batch_records: int, partitions: int
) -> None:
    plan = BenchPlan(
        address=("h", 1),
        topic="t",
        partitions=partitions,
        records=records,
        size=10,
        batch_records=batch_records,
        in_flight=1,
        connections=1,
    )
    assert sum(plan.batches()) == sum(plan.ends()) == records
    assert max(plan.batches()) <= batch_records
    assert len(plan.ends()) == partitions


@pytest.mark.parametrize("wrong", [["--records", "0"], ["--batch-bytes", "many"], ["--bootstrap", "nowhere"]])
def test_what_cannot_be_meant_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(wrong)
    assert ended.value.code == 2
