"""How fast messages are encoded and decoded, side by side with kio.

Run `python -m bench.protocol_codec`. Each line is the best of several rounds, in microseconds.
"""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import timeit
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from dray.kafka.protocol import Message
from dray.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = range(100)
TOPIC_ID = UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)

IMPORT_OURS = """
import importlib, time
start = time.perf_counter()
from dray.kafka.protocol import SCHEMAS
for schema in SCHEMAS.values():
    importlib.import_module("dray.kafka.protocol.messages." + schema.module)
print((time.perf_counter() - start) * 1e6)
"""
IMPORT_KIO = """
import importlib, time
from dray.kafka.protocol import SCHEMAS
start = time.perf_counter()
for schema in SCHEMAS.values():
    for version in range(schema.first_version, schema.last_version + 1):
        for direction in ("request", "response"):
            importlib.import_module(f"kio.schema.{schema.module}.v{version}.{direction}")
print((time.perf_counter() - start) * 1e6)
"""


def produce_request(partitions: range) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=bytes(1000)) for index in partitions]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=data)]
    )


def fetch_response() -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            high_watermark=1_000_000,
            last_stable_offset=1_000_000,
            log_start_offset=0,
            records=bytes(1000),
        )
        for index in PARTITIONS
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])


def metadata_response() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        for index in PARTITIONS
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=partitions)],
    )


def microseconds(work: Callable[[], object]) -> float:
    timer = timeit.Timer(work)
    number = max(1, timer.autorange()[0] // 10)
    return min(timer.repeat(15, number)) / number * 1e6


def importing(program: str) -> float:
    """With compiled files in place, as an installed package has them: the first run may write them."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(4)
    ]
    return min(map(float, runs))


def compare(ours: Message, version: int, module: str) -> list[tuple[str, float, float]]:
    """Decoding and encoding of one message: a title, our time and kio's."""
    name = type(ours).__name__
    their_class: Any = getattr(importlib.import_module(module), name)
    raw = b"".join(ours.encode(version))
    view = memoryview(raw)
    read = entity_reader(their_class)
    write = entity_writer(their_class)
    theirs, _ = read(raw, 0)

    def encode_theirs() -> bytes:
        out = io.BytesIO()
        write(out, theirs)
        return out.getvalue()

    if encode_theirs() != raw or type(ours).decode(view, 0, version)[0] != ours:
        raise SystemExit(f"{name}: dray and kio do not agree")
    title = f"{name} v{version}, {len(raw)} bytes"
    return [
        (
            f"decode {title}",
            microseconds(lambda: type(ours).decode(view, 0, version)),
            microseconds(lambda: read(raw, 0)),
        ),
        (f"encode {title}", microseconds(lambda: ours.encode(version)), microseconds(encode_theirs)),
    ]


def main() -> None:
    rows = [
        *compare(produce_request(range(1)), 12, "kio.schema.produce.v12.request"),
        *compare(produce_request(PARTITIONS), 12, "kio.schema.produce.v12.request"),
        *compare(fetch_response(), 17, "kio.schema.fetch.v17.response"),
        *compare(metadata_response(), 12, "kio.schema.metadata.v12.response"),
        ("import every message", importing(IMPORT_OURS), importing(IMPORT_KIO)),
    ]
    print(f"{'':48} {'dray us':>12} {'kio us':>12} {'ratio':>8}")
    for title, dray, kio in rows:
        print(f"{title:48} {dray:12.1f} {kio:12.1f} {kio / dray:7.1f}x")


if __name__ == "__main__":
    main()
