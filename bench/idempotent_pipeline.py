"""One idempotent producer on one partition, five requests in flight, without a client in the way.

    python -m bench.idempotent_pipeline [--gigabytes 1] [--runs 3] [--without-kafka] [--directory DIR]

librdkafka spends about ten CPU seconds per gigabyte on an idempotent producer with one partition, whichever
broker it talks to, and so measures itself. Here the batches are made beforehand: the same raw requests go
to Dray and to Apache Kafka, in turns, and what is measured is the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from struct import pack_into

import uvloop
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.topics import create_topic

from bench.harness import watched
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import Record, crc32c, twin

IN_FLIGHT = 5
RECORD_BYTES = 1024
RECORDS = 960  # in a batch: just below the default limit of a mebibyte
VERSION = 9


def template(now_ms: int) -> bytearray:
    return twin.encode([Record(n, now_ms, None, b"x" * RECORD_BYTES) for n in range(RECORDS)])


def numbered(batch: bytearray, producer_id: int, epoch: int, sequence: int) -> bytearray:
    """The same records as that producer's next batch."""
    copy = bytearray(batch)
    pack_into(">qhi", copy, 43, producer_id, epoch, sequence)
    pack_into(">I", copy, 17, crc32c(memoryview(copy)[21:]))
    return copy


async def produce(bootstrap: str, topic: str, batches: int) -> float:
    """Seconds from the first request to the last answer."""
    host, port = bootstrap.rsplit(":", 1)
    connection = await KafkaConnection.connect(host, int(port), client_id="bench")
    producer = await connection.request(InitProducerIdRequest(transactional_id=None), 4)
    plain = template(time.time_ns() // 1_000_000)
    room = asyncio.Semaphore(IN_FLIGHT)

    async def send(number: int) -> None:
        records = numbered(plain, producer.producer_id, producer.producer_epoch, number * RECORDS)
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        try:
            answer = await connection.request(request, VERSION)
        finally:
            room.release()
        [result] = answer.responses[0].partition_responses
        if result.error_code:
            raise RuntimeError(f"batch {number} was refused with error {result.error_code}")

    sent: list[asyncio.Task[None]] = []
    began = time.monotonic()
    for number in range(batches):
        await room.acquire()
        sent.append(asyncio.create_task(send(number)))
    await asyncio.gather(*sent)
    seconds = time.monotonic() - began
    await connection.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.idempotent_pipeline", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--directory")
    options = parser.parse_args()
    batches = int(options.gigabytes * 1e9 / (RECORDS * RECORD_BYTES))
    with ExitStack() as stack:
        parent = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        targets: dict[str, DrayProcess | KafkaProcess] = {"Dray": DrayProcess(parent / "dray")}
        if not options.without_kafka:
            targets["Kafka"] = KafkaProcess(parent / "kafka")
        for server in targets.values():
            stack.enter_context(server)
        found: dict[str, list[float]] = {name: [] for name in targets}
        for run in range(options.runs):
            for name, server in targets.items():
                topic = f"pipeline-{run}"
                create_topic(server.bootstrap, topic, 1)
                with watched(server.pid) as usage:
                    seconds = uvloop.run(produce(server.bootstrap, topic, batches))
                size = batches * RECORDS * RECORD_BYTES
                found[name].append(size / seconds / 1e6)
                print(
                    f"run {run + 1} {name}: {size / seconds / 1e6:.0f} MB/s, "
                    f"{usage.cpu_seconds / size * 1e9:.2f} broker CPU s/GB"
                )
        for name, rates in found.items():
            print(f"{name}: median {statistics.median(rates):.0f} MB/s")


if __name__ == "__main__":
    main()
