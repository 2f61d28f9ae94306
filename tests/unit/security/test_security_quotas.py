"""Quotas: rates as Kafka computes them, the order in which entities apply, and who is measured with whom."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.security.quotas.limits import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaTable,
    Throttle,
    fault_of_value,
)
from dray.security.quotas.rates import QuotaRate, TokenBucket

KEY = PRODUCER_BYTE_RATE


class PlainRate:
    """Kafka's SampledStat and Rate, written down once more: samples as tuples, nothing reused in place."""

    def __init__(self) -> None:
        self.samples: list[list[float]] = []  # begun, last event, sum
        self.current = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, 0.0])
        if now - self.samples[self.current][0] >= 1000:
            self.current = (self.current + 1) % 12
            if self.current >= len(self.samples):
                self.samples.append([now, now, 0.0])
            else:
                self.samples[self.current] = [now, now, 0.0]
        self.samples[self.current][1] = now
        self.samples[self.current][2] += value

    def measure(self, now: int) -> tuple[float, int]:
        self.samples = [[now, now, 0.0] if now - s[1] >= 11_000 else s for s in self.samples]
        elapsed = now - min((s[0] for s in self.samples), default=now)
        full = int(elapsed // 1000)
        if full < 10:
            elapsed += (10 - full) * 1000
        window = int(max(elapsed, 1))
        return sum(s[2] for s in self.samples) / (window / 1000), window


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10_000)), min_size=1, max_size=60))
def test_a_rate_is_kafkas(steps: list[tuple[int, int]]) -> None:
    rate, plain, now = QuotaRate(), PlainRate(), 0
    for pause, value in steps:
        now += pause
        rate.record(value, now)
        plain.record(value, now)
        expected, window = plain.measure(now)
        assert rate.per_second(now) == pytest.approx(expected)
        if expected > 100:
            assert rate.throttle_ms(100.0, now) == int((expected - 100) / 100 * window + 0.5)


def test_a_burst_waits_until_it_is_paid_for() -> None:
    """20 seconds' worth at once: over ten seconds of quiet before, ten more are due."""
    rate = QuotaRate()
    rate.record(20_000, 0)
    assert rate.per_second(0) == 2000.0
    assert rate.throttle_ms(1000.0, 0) == 10_000
    assert rate.throttle_ms(2000.0, 0) == 0


def test_what_is_old_does_not_count() -> None:
    rate = QuotaRate()
    rate.record(1000, 0)
    assert rate.per_second(10_999) > 0
    assert rate.per_second(11_000) == 0


def test_a_bucket_lets_through_until_it_is_empty() -> None:
    bucket = TokenBucket()
    assert bucket.wait_ms(5.0, 1000) == 0
    bucket.record(60, 5.0, 1000)  # a burst of 55 is in it
    assert bucket.wait_ms(5.0, 1000) == 1000
    assert bucket.wait_ms(5.0, 1500) == 500
    assert bucket.wait_ms(5.0, 2000) == 0
    bucket.record(1, 5.0, 2000)
    assert bucket.wait_ms(5.0, 2000) == 200


# --- which applies

ORDER = [
    QuotaEntity(("alice",), ("app",)),
    QuotaEntity(("alice",), (None,)),
    QuotaEntity(("alice",)),
    QuotaEntity((None,), ("app",)),
    QuotaEntity((None,), (None,)),
    QuotaEntity((None,)),
    QuotaEntity(None, ("app",)),
    QuotaEntity(None, (None,)),
]


def test_the_most_specific_entity_wins() -> None:
    for entity, less_specific in pairwise(ORDER):
        limit = QuotaTable({entity: {KEY: 1.0}, less_specific: {KEY: 2.0}}).limit(KEY, "alice", "app")
        assert limit is not None
        assert limit.value == 1.0
    for entity in ORDER:
        limit = QuotaTable({entity: {KEY: 3.0}}).limit(KEY, "alice", "app")
        assert limit is not None
        assert limit.value == 3.0


def test_an_entity_without_this_quota_is_passed_over() -> None:
    table = QuotaTable({ORDER[0]: {CONSUMER_BYTE_RATE: 1.0}, ORDER[7]: {KEY: 2.0}})
    limit = table.limit(KEY, "alice", "app")
    assert limit is not None
    assert limit.value == 2.0
    assert table.limit(REQUEST_PERCENTAGE, "alice", "app") is None


@pytest.mark.parametrize(
    ("number", "together", "apart"),
    [
        (2, [("alice", "app"), ("alice", "other")], ("bob", "app")),
        (5, [("alice", "app"), ("alice", "other")], ("bob", "app")),
        (6, [("alice", "app"), ("bob", "app")], ("alice", "other")),
        (7, [("alice", "app"), ("bob", "app")], ("alice", "other")),
        (4, [("alice", "app")], ("alice", "other")),
        (1, [("alice", "app")], ("alice", "other")),
    ],
)
def test_who_is_measured_together(
    number: int, together: list[tuple[str, str]], apart: tuple[str, str]
) -> None:
    table = QuotaTable({ORDER[number]: {KEY: 1.0}})
    shared = {limit.shared_by for who in together if (limit := table.limit(KEY, *who)) is not None}
    assert len(shared) == 1
    other = table.limit(KEY, *apart)
    assert other is None or other.shared_by not in shared


def test_addresses() -> None:
    table = QuotaTable({QuotaEntity(ip=("1.2.3.4",)): {CONNECTION_CREATION_RATE: 5.0}})
    assert table.connection_rate("1.2.3.4") == 5.0
    assert table.connection_rate("1.2.3.5") is None
    table = QuotaTable({QuotaEntity(ip=(None,)): {CONNECTION_CREATION_RATE: 7.0}})
    assert table.connection_rate("1.2.3.5") == 7.0


@pytest.mark.parametrize(
    ("entity", "key", "value", "fault"),
    [
        (ORDER[2], KEY, 1024.0, None),
        (ORDER[2], KEY, 0.5, "producer_byte_rate cannot be a fractional value."),
        (ORDER[2], KEY, 0.0, "Quota producer_byte_rate must be greater than 0"),
        (ORDER[2], KEY, float("nan"), "Quota producer_byte_rate must be greater than 0"),
        (ORDER[2], KEY, 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
        (ORDER[2], REQUEST_PERCENTAGE, 12.5, None),
        (ORDER[2], CONTROLLER_MUTATION_RATE, 0.1, None),
        (ORDER[2], "what", 1.0, "Invalid configuration key what"),
        (ORDER[2], CONNECTION_CREATION_RATE, 1.0, "Invalid configuration key connection_creation_rate"),
        (QuotaEntity(ip=("1",)), CONNECTION_CREATION_RATE, 1.0, None),
        (
            QuotaEntity(ip=("1",)),
            CONNECTION_CREATION_RATE,
            3e9,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_values_that_are_none(entity: QuotaEntity, key: str, value: float, fault: str | None) -> None:
    assert fault_of_value(entity, key, value) == fault


# --- throttling


def throttle(**quotas: float) -> Throttle:
    made = Throttle()
    made.table = QuotaTable({QuotaEntity(("alice",)): quotas})
    return made


def test_a_client_waits_for_what_its_user_sent() -> None:
    quota = throttle(producer_byte_rate=1000.0)
    assert quota.record(KEY, "alice", "app", 10_000, 0) == 0
    assert quota.record(KEY, "alice", "other", 1000, 0) == 1000
    assert quota.record(KEY, "bob", "app", 10**9, 0) == 0


def test_what_was_not_sent_is_taken_back() -> None:
    quota = throttle(consumer_byte_rate=1000.0)
    assert quota.record(CONSUMER_BYTE_RATE, "alice", "app", 12_000, 0) > 0
    quota.take_back(CONSUMER_BYTE_RATE, "alice", "app", 12_000, 0)
    assert quota.record(CONSUMER_BYTE_RATE, "alice", "app", 10_000, 0) == 0
    assert quota.most_at_once(CONSUMER_BYTE_RATE, "alice", "app") == 10_000
    assert quota.most_at_once(CONSUMER_BYTE_RATE, "bob", "app") is None


def test_request_time_holds_a_client_for_a_window_at_most() -> None:
    assert throttle(request_percentage=1.0).record(REQUEST_PERCENTAGE, "alice", "app", 10_000, 0) == 1000


def test_mutations_are_refused_once_the_bucket_is_empty() -> None:
    quota = throttle(controller_mutation_rate=1.0)
    assert quota.mutate("alice", "app", 20, 0) == 0
    assert quota.mutate("alice", "app", 1, 0) == 9000
    assert quota.mutate("alice", "app", 1, 9000) == 0
    assert quota.mutate("alice", "app", 5, 9000, strict=False) == 6000, "older clients wait afterwards"
    assert quota.mutate("bob", "app", 10**6, 0) == 0


def test_a_new_limit_applies_to_what_was_measured() -> None:
    quota = throttle(producer_byte_rate=1000.0)
    quota.record(KEY, "alice", "app", 9000, 0)
    quota.table = QuotaTable({QuotaEntity(("alice",)): {KEY: 100.0}})
    assert quota.record(KEY, "alice", "app", 0, 0) == 80_000


def test_client_ids_are_not_measured_without_bound() -> None:
    quota = Throttle()
    quota.table = QuotaTable({QuotaEntity((None,), (None,)): {KEY: 1000.0, CONTROLLER_MUTATION_RATE: 1.0}})
    quota.record(KEY, "alice", "app", 20_000, 0)
    for number in range(10_100):
        quota.record(KEY, "mallory", str(number), 1, 1)
        quota.mutate("mallory", str(number), 1, 1)
        if number % 1000 == 0:
            assert quota.record(KEY, "alice", "app", 0, 1) > 0, "who is active is not forgotten"
    assert len(quota._rates) <= 10_000
    assert len(quota._buckets) <= 10_000
