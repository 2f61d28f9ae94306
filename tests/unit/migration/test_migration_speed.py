"""How long an attach takes: 10,000 segments, at 20 ms for every read of the source."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from struct import pack

import pytest
from tests.unit.migration.attach_harness import Cluster
from tests.unit.migration.sources import a_batch

from dray.base.runtime import SystemRuntime
from dray.kafka.records import crc32c
from dray.migration.attach.inventory import Question, SourceLayout, take_inventory
from dray.migration.attach.plan import make_plan
from dray.migration.attach.reading import SourceReader
from dray.migration.attach.steps import AttachOrder
from dray.objects.memory import MemoryObjects

SEGMENTS = 10_000
PARTITIONS = 10
SECONDS = 0.02
MOST_SECONDS = 120
MOST_BYTES = 512 << 20
KAFKA_ID = "QEs4mK46TZ-ZIBB_kHfSvA"


class SlowStore(MemoryObjects):
    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        await asyncio.sleep(SECONDS)
        return await super().get_ranges(path, ranges)


def a_name(number: int) -> str:
    return f"A{number:08d}AAAAAAAAAAAAA"


async def many_segments(store: MemoryObjects) -> None:
    checked = pack(">i", 0)
    snapshot = pack(">hI", 1, crc32c(checked)) + checked
    for number in range(SEGMENTS):
        partition, place = number % PARTITIONS, number // PARTITIONS
        base = 3 * place
        stem = f"orders-{partition}-{KAFKA_ID}/{base:020d}-{a_name(number)}"
        await store.put(f"{stem}.log", [a_batch(base)])
        await store.put(f"{stem}.index", [b""])
        await store.put(f"{stem}.timeindex", [pack(">qi", 1_000 + base + 2, 2)])
        await store.put(f"{stem}.snapshot", [snapshot])
        await store.put(f"{stem}.leader_epoch_checkpoint", [b"0\n1\n0 0\n"])


@pytest.mark.soak
async def test_ten_thousand_segments_are_attached_within_two_minutes() -> None:
    cluster = Cluster(SourceLayout.KAFKA_TIERED, {})
    store = SlowStore(SystemRuntime(threads=1))
    await many_segments(store)
    source = SourceReader(store)
    question = Question("orders", SourceLayout.KAFKA_TIERED)
    tracemalloc.start()
    began = cluster.runtime.monotonic()
    plan = await make_plan(source, question, await take_inventory(source, question), now_ms=1)
    planned = cluster.runtime.monotonic() - began
    assert plan.segments == SEGMENTS
    await cluster.process().attach(source, AttachOrder(plan, "memory:", "old", {}))
    took = cluster.runtime.monotonic() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"planned in {planned:.1f} s, attached in {took:.1f} s, {peak >> 20} MiB at most")
    assert took < MOST_SECONDS
    assert peak < MOST_BYTES
    cluster.runtime.close()
