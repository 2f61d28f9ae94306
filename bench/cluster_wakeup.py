"""How soon a consumer on one broker sees what is committed through another.

python -m bench.cluster_wakeup [--remote] [--records 300]

One record at a time: produced through the first broker, while a fetch waits at the second. Both answers come
to this process, so one clock measures them. The acknowledgement comes after the commit, so the time from the
acknowledgement to the record is at most the time from the commit, less the way of the acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from tests.services.brokers import Brokers
from tests.services.topics import create_topic

from bench.remote_stores import broker_settings
from bench.throughput import make_batch
from dray.base.runtime import SystemRuntime
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

WAIT_MS = 30_000


async def measure(
    topic: str, writer_port: int, reader_port: int, records: int
) -> tuple[list[float], list[float]]:
    """Seconds from sending to seeing, and from the acknowledgement to seeing."""
    writer = await KafkaConnection.connect("127.0.0.1", writer_port)
    reader = await KafkaConnection.connect("127.0.0.1", reader_port)
    batch = bytes(make_batch(1, 100, SystemRuntime(threads=1)))
    from_send, from_commit = [], []
    offset = 0
    seen_at = 0.0

    async def see(wanted: int) -> None:
        nonlocal offset, seen_at
        while offset <= wanted:
            part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=WAIT_MS,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic=topic, partitions=[part])],
            )
            answer = await reader.request(request, 11)
            offset = answer.responses[0].partitions[0].high_watermark
        seen_at = time.monotonic()

    for number in range(records + 10):
        seeing = asyncio.ensure_future(see(number))
        await asyncio.sleep(0.02)  # the fetch is there before the record
        sent_at = time.monotonic()
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])
        answer = await writer.request(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        acknowledged_at = time.monotonic()
        assert answer.responses[0].partition_responses[0].error_code == 0
        await asyncio.wait_for(seeing, WAIT_MS / 1000)
        if number >= 10:
            from_send.append(seen_at - sent_at)
            from_commit.append(seen_at - acknowledged_at)
    await writer.close()
    await reader.close()
    return from_send, from_commit


def show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    shown = {
        "median": statistics.median(ordered),
        "p99": ordered[len(ordered) * 99 // 100],
        "max": ordered[-1],
    }
    print(f"  {name:24}", *(f"  {which} {value * 1e3:6.1f} ms" for which, value in shown.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--remote", action="store_true", help="metadata in Oxia, objects in S3")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="dray-bench-") as directory,
        broker_settings(Path(directory), arguments.remote) as settings,
        Brokers(Path(directory), 2, settings=settings) as brokers,
    ):
        for name, reader in (("another broker", 1), ("the same broker", 0)):
            topic = f"woken-{reader}"
            create_topic(brokers.bootstrap, topic, 1)
            from_send, from_commit = asyncio.run(
                measure(topic, brokers[0].port, brokers[reader].port, arguments.records)
            )
            print(f"read from {name}:")
            show("from the send", from_send)
            show("from the acknowledgement", from_commit)


if __name__ == "__main__":
    main()
