"""Load from the C driver: everything written is read back, and memory stays within its bounds."""

from __future__ import annotations

import pytest
from bench import driver
from bench.harness import Target, resident_bytes_of, watched
from bench.slow_broker import SlowBrokerProcess
from tests.services.dray import OPENER

MIB = 1024 * 1024
BESIDE = 64 * MIB
"""What resident memory may grow by besides what the broker counts: 64 connections, SQLite, and above all the
allocator, which is told to grow its heap by 16 MiB at a time and to keep what it has. That the counted memory
stays within its limits is asked of the broker itself, to the byte. Without limits it would be the whole load,
160 MiB."""


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
    """64 producers have more under way than the broker may hold, and its store takes 1 s for every put."""
    buffer_bytes, tail_cache_bytes = 32 * MIB, 16 * MIB
    with SlowBrokerProcess(tmp_path, 1.0, buffer_bytes, tail_cache_bytes) as server:
        target = Target("slow", server, server.bootstrap)
        with target.topic(16) as topic:
            # The first requests make the process grow to its working size, whatever the buffer.
            driver.produce(server.bootstrap, topic, records=100, size=1024, timeout=60).result(90)
            before = resident_bytes_of(server.pid)
            with watched(server.pid) as usage:
                load = driver.produce(
                    server.bootstrap, topic, clients=64, records=160_000, size=1024, acks="all", timeout=120
                ).result(150)
            counted = metrics_of(server)
    assert load.records == 160_000
    assert buffer_bytes // 2 < counted["dray_frame_memory_peak_bytes"] <= buffer_bytes
    assert counted["dray_tail_cache_bytes"] <= tail_cache_bytes
    grown = usage.peak_bytes - before
    assert grown < buffer_bytes + tail_cache_bytes + BESIDE, f"memory grew by {grown / MIB:.0f} MiB"


def metrics_of(server: SlowBrokerProcess) -> dict[str, float]:
    with OPENER.open(f"http://127.0.0.1:{server.http_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#")]
    return {name: float(value) for name, value in pairs if "{" not in name}
