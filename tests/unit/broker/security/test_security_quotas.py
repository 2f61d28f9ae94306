"""Quotas: rates as Kafka computes them, the order in which entities apply, and who is measured with whom."""

from __future__ import annotations

from itertools import cycle, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.broker.security.quotas.store import decode_quotas
from dray.broker.security.quotas.throttle import FORGOTTEN_AFTER_MS, QuotaRate, Throttle, TokenBucket
from dray.kafka.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaLimit,
    QuotaTable,
    fault_of_value,
)
from dray.metadata.values import ValueCorrupt, seal_json

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


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0000::0001", "0:0:0:0:0:0:0.0.0.1"])
def test_an_address_has_its_quota_however_it_was_written(written: str) -> None:
    entity = QuotaEntity(ip=(written,))
    quota = Throttle(QuotaTable({entity: {CONNECTION_CREATION_RATE: 1.0}}))
    assert [quota.connect("::2", 0) for _ in range(99)] == [0] * 99
    assert any(quota.connect("::1", 0) for _ in range(99))
    quota.table.put(QuotaEntity(ip=("::0:1",)), {CONNECTION_CREATION_RATE: 5.0})
    assert quota.table.connection_rate("0:0:0:0:0:0:0:1") == 1.0, "the least of two"
    quota.table.remove(entity)
    assert quota.table.connection_rate("0:0:0:0:0:0:0:1") == 5.0
    quota.table.remove(QuotaEntity(ip=("::0:1",)))
    assert quota.table.connection_rate("0:0:0:0:0:0:0:1") is None


def test_an_ipv4_address_has_its_quota_on_a_socket_of_ipv6_too() -> None:
    """And is one: a client does not have it twice."""
    quota = Throttle(QuotaTable({QuotaEntity(ip=("10.1.2.3",)): {CONNECTION_CREATION_RATE: 1.0}}))
    while not quota.connect("10.1.2.3", 0):
        pass
    assert quota.connect("::ffff:10.1.2.3", 0)


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


@pytest.mark.parametrize("value", [0, -1, "many", None])
def test_a_stored_quota_that_is_none_is_not_believed(value: object) -> None:
    """To wait for a rate of 0 would be to divide by it."""
    with pytest.raises(ValueCorrupt):
        decode_quotas("user=alice", seal_json(1, {KEY: value}))


# --- throttling


def throttle(**quotas: float) -> Throttle:
    return Throttle(QuotaTable({QuotaEntity(("alice",)): quotas}))


def test_a_client_waits_for_what_its_user_sent() -> None:
    quota = throttle(producer_byte_rate=1000.0)
    assert quota.record(KEY, "alice", "app", 10_000, 0) == 0
    assert quota.record(KEY, "alice", "other", 1000, 0) == 1000
    assert quota.record(KEY, "bob", "app", 10**9, 0) == 0


def test_what_was_not_sent_does_not_count() -> None:
    quota = throttle(consumer_byte_rate=1000.0)
    assert quota.fetch("alice", "app", 1000, 0) == (0, False)
    assert quota.fetch("alice", "app", 12_000, 0) == (3000, True)
    assert quota.fetch("alice", "app", 9000, 0) == (0, False)
    assert quota.fetch("bob", "app", 10**9, 0) == (0, False)
    assert quota.most_at_once(CONSUMER_BYTE_RATE, "alice", "app") == 1000
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
    quota.table.put(QuotaEntity(("alice",)), {KEY: 100.0})
    assert quota.record(KEY, "alice", "app", 0, 0) == 80_000


def test_client_ids_are_not_measured_without_bound() -> None:
    quota = Throttle(
        QuotaTable({QuotaEntity((None,), (None,)): {KEY: 1000.0, CONTROLLER_MUTATION_RATE: 1.0}})
    )
    quota.record(KEY, "alice", "app", 20_000, 0)
    for number in range(10_100):
        quota.record(KEY, "mallory", str(number), 1, 1)
        quota.mutate("mallory", str(number), 1, 1)
        if number % 1000 == 0:
            assert quota.record(KEY, "alice", "app", 0, 1) > 0, "who is active is not forgotten"
    assert len(quota._rates) <= 10_000
    assert len(quota._buckets) <= 10_000


def test_who_was_quiet_for_long_is_forgotten() -> None:
    quota = Throttle(QuotaTable({QuotaEntity(None, (None,)): {KEY: 1000.0}}))
    for number in range(100):
        quota.record(KEY, "mallory", str(number), 1, 0)
    quota.record(KEY, "alice", "app", 1, FORGOTTEN_AFTER_MS - 1)
    assert len(quota._rates) == 101
    quota.record(KEY, "alice", "another", 1, FORGOTTEN_AFTER_MS)
    assert len(quota._rates) == 2


def test_a_batch_above_the_quota_of_all_windows_is_sent_to_who_was_quiet() -> None:
    """Or it would never be sent."""
    quota = throttle(consumer_byte_rate=1000.0)
    assert quota.fetch("alice", "app", 1_000_000, 0) == (990_000, False)
    assert quota.fetch("alice", "app", 1_000_000, 10_000).empty
    assert quota.fetch("alice", "app", 1_000_000, 1_000_000) == (990_000, False)


def test_connections_of_an_address() -> None:
    quota = Throttle(QuotaTable({QuotaEntity(ip=(None,)): {CONNECTION_CREATION_RATE: 2.0}}))
    assert [quota.connect("1.2.3.4", 0) for _ in range(22)] == [0] * 20 + [500, 500]
    assert quota.connect("1.2.3.5", 0) == 0, "each address has its own"
    assert quota.connect("1.2.3.4", 11_000) == 0


def test_a_table_follows_its_changes() -> None:
    table = QuotaTable()
    assert not table.keys
    table.put(ORDER[2], {KEY: 1.0, REQUEST_PERCENTAGE: 2.0})
    table.put(ORDER[7], {KEY: 3.0})
    assert table.keys == {KEY, REQUEST_PERCENTAGE}
    assert table.limit(KEY, "alice", "app") == QuotaLimit(1.0, ("alice", ""))
    assert table.limit(KEY, "bob", "app") == QuotaLimit(3.0, ("", "app"))
    table.put(ORDER[2], {KEY: 4.0})
    assert table.keys == {KEY}
    assert table.limit(KEY, "alice", "app") == QuotaLimit(4.0, ("alice", ""))
    table.remove(ORDER[2])
    table.remove(ORDER[2])
    assert table.limit(KEY, "alice", "app") == QuotaLimit(3.0, ("", "app"))
    table.remove(ORDER[7])
    assert not table.keys


def test_what_was_looked_up_is_not_remembered_without_bound() -> None:
    table = QuotaTable({ORDER[7]: {KEY: 3.0}})
    for number in range(10_100):
        assert table.limit(KEY, "mallory", str(number)) is not None
    assert len(table._remembered) <= 10_000


# --- what a client gets in the long run


BURST = 10
"""Seconds' worth: what a client may send at once that was quiet, and again when the windows have passed."""
SECONDS = 120


def produced(limit: int, clients: list[list[int]], gap: int) -> float:
    """What clients of one user send together, in seconds' worth of their quota. Each sends as much as it may:
    its next piece (in thousandths of a second's worth) when the time of the last one is over, or the gap
    is."""
    quota = throttle(producer_byte_rate=float(limit))
    pieces = [cycle([limit * size // 1000 for size in sizes]) for sizes in clients]
    free_at = [0] * len(clients)
    sent = 0
    while (now := min(free_at)) < SECONDS * 1000:
        client = free_at.index(now)
        size = next(pieces[client])
        sent += size
        free_at[client] = now + max(quota.record(KEY, "alice", "app", size, now), gap)
    return sent / limit


LIMITS = st.integers(1000, 10**9)
GAPS = st.integers(1, 20)


def sending(least: int, most: int) -> st.SearchStrategy[list[list[int]]]:
    pieces = st.lists(st.integers(least, most), min_size=1, max_size=5)
    return st.lists(pieces, min_size=1, max_size=3)


@given(limit=LIMITS, clients=sending(50, 200), gap=GAPS)
@settings(max_examples=20)
def test_clients_of_a_user_get_its_rate_and_no_more(limit: int, clients: list[list[int]], gap: int) -> None:
    assert 0.9 * SECONDS <= produced(limit, clients, gap) <= 1.05 * SECONDS + BURST


@given(limit=LIMITS, clients=sending(200, 5000), gap=GAPS)
@settings(max_examples=30)
def test_large_pieces_are_over_the_quota_by_a_part_of_the_windows(
    limit: int, clients: list[list[int]], gap: int
) -> None:
    """As in Kafka: a piece leaves the windows all at once."""
    largest = sum(max(sizes) for sizes in clients) / 1000
    seconds = produced(limit, clients, gap)
    assert 0.9 * SECONDS <= seconds <= (1.05 + largest / 10) * SECONDS + BURST


@given(limit=LIMITS, wishes=st.lists(st.integers(50, 30_000), min_size=1, max_size=6), gap=GAPS)
@settings(max_examples=30)
def test_a_consumer_gets_its_rate_and_no_more(limit: int, wishes: list[int], gap: int) -> None:
    """What is not sent is asked for again. A consumer is not offered more than a second's worth."""
    quota = throttle(consumer_byte_rate=float(limit))
    most = quota.most_at_once(CONSUMER_BYTE_RATE, "alice", "app")
    assert most is not None
    sizes = cycle([min(limit * wish // 1000, int(most)) for wish in wishes])
    now = sent = 0
    size = next(sizes)
    while now < SECONDS * 1000:
        verdict = quota.fetch("alice", "app", size, now)
        if not verdict.empty:
            sent += size
            size = next(sizes)
        now += max(verdict.wait_ms, gap)
    assert 0.9 * SECONDS <= sent / limit <= 1.05 * SECONDS + BURST
