"""Load from the C driver: everything written is read back, and memory stays within its bounds."""

from __future__ import annotations

import pytest
from bench import driver
from bench.harness import Target, resident_bytes_of, watched
from bench.slow_broker import SlowBrokerProcess

MIB = 1024 * 1024
BESIDE = 24 * MIB
"""What 64 connections, the allocator and SQLite may take besides: nothing that grows with the load."""


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("size", [100, 1024, 20_000])
def test_what_is_produced_at_full_speed_is_read_back(size, idempotent, bootstrap, make_topic):
    """The driver itself checks that offsets are dense, partition by partition."""
    records = 40_000_000 // size
    topic = make_topic(4)
    written = driver.produce(
        bootstrap, topic, records=records, size=size, timeout=60, **{"enable.idempotence": idempotent}
    ).result(90)
    assert written.records == records
    read = driver.fetch(bootstrap, topic, records=records, partitions=4, timeout=60).result(90)
    assert read.records == records
    assert read.bytes == records * size


def test_a_consumer_follows_the_tail(bootstrap, make_topic):
    topic = make_topic(4)
    options = {"records": 50_000, "partitions": 4, "timeout": 60, "from": "latest"}
    consumer = driver.fetch(bootstrap, topic, **options)
    consumer.wait_until_ready()
    driver.produce(bootstrap, topic, records=50_000, size=1024, timeout=60).result(90)
    assert consumer.result(90).records == 50_000


def test_slow_puts_do_not_grow_memory_past_the_buffer(tmp_path):
    """64 producers have more under way than the broker may hold, and its store takes 2 s for every put."""
    buffer_bytes, tail_cache_bytes = 32 * MIB, 16 * MIB
    with SlowBrokerProcess(tmp_path, 2.0, buffer_bytes, tail_cache_bytes) as server:
        target = Target("slow", server, server.bootstrap)
        with target.topic(16) as topic:
            # The first requests make the process grow to its working size, whatever the buffer.
            driver.produce(server.bootstrap, topic, records=100, size=1024, timeout=60).result(90)
            before = resident_bytes_of(server.pid)
            with watched(server.pid) as usage:
                load = driver.produce(
                    server.bootstrap, topic, clients=64, records=96_000, size=1024, acks="all", timeout=120
                ).result(150)
    assert load.records == 96_000
    grown = usage.peak_bytes - before
    assert grown < buffer_bytes + tail_cache_bytes + BESIDE, f"memory grew by {grown / MIB:.0f} MiB"
