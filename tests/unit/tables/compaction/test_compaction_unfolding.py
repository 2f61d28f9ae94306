"""Batches that unfold far are valid, and compacted in parts that fit."""

from __future__ import annotations

import gzip
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.unit.tables.compaction.executor_inputs import START, kafka_batch, unit_of, wal_entry

from dray.base.runtime import SystemRuntime
from dray.kafka.records import Codec, crc32c, twin, unfolds_to
from dray.kafka.records.columns import Record
from dray.log.types import ObjectCorrupt
from dray.objects.memory import MemoryObjects
from dray.tables.compaction.writing import sources

VALUE = bytes(120_000)
COUNT = 18


class CountingRuntime(SystemRuntime):
    def __init__(self) -> None:
        super().__init__(threads=1)
        self.decoded = 0

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.decoded += 1
        return await super().in_thread(function, *arguments)


@pytest.fixture
async def runtime() -> AsyncIterator[CountingRuntime]:
    runtime = CountingRuntime()
    yield runtime
    runtime.close()


def honest(at: int) -> bytearray:
    return kafka_batch([Record(at, START, None, VALUE)], Codec.ZSTD)


def lying(at: int) -> bytearray:
    """Its last gzip member is empty, and that is the one whose length says what it unfolds to."""
    section = bytes(kafka_batch([Record(at, START, None, VALUE)])[61:])
    batch = kafka_batch([Record(at, START)])[:61] + gzip.compress(section) + gzip.compress(b"")
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, Codec.GZIP)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


@pytest.mark.parametrize("make", [honest, lying])
async def test_many_that_are_too_much_together_are_no_damage(
    make: Callable[[int], bytearray], runtime: CountingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """18 of 120 MiB each had been taken for a damaged object: scaled down by a thousand."""
    monkeypatch.setattr(sources, "UNFOLDED_BYTES", 300_000)
    monkeypatch.setattr(sources, "ONE_BATCH_MOST", 130_000)
    objects = MemoryObjects(runtime)
    batches = [make(at) for at in range(COUNT)]
    assert (unfolds_to(batches[0]) < 2) == (make is lying)
    unit = unit_of([await wal_entry(objects, 0, batches)])
    rows = [part async for part in sources.rows_of(unit, objects, runtime)]
    assert [offset for part in rows for offset in part["offset"].to_pylist()] == list(range(COUNT))
    assert max(part.nbytes for part in rows) <= 300_000
    if make is honest:
        assert runtime.decoded == len(rows) == COUNT // 2, "nothing is decoded in vain"


async def test_one_batch_that_is_too_much_alone_is_named(
    runtime: CountingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "UNFOLDED_BYTES", 200_000)
    monkeypatch.setattr(sources, "ONE_BATCH_MOST", 110_000)
    objects = MemoryObjects(runtime)
    unit = unit_of([await wal_entry(objects, 0, [lying(0), lying(1)])])
    with pytest.raises(ObjectCorrupt, match="more than the 110000 bytes allowed"):
        [part async for part in sources.rows_of(unit, objects, runtime)]


async def test_damage_among_many_is_named(runtime: CountingRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "UNFOLDED_BYTES", 300_000)
    objects = MemoryObjects(runtime)
    entry = await wal_entry(objects, 0, [lying(at) for at in range(COUNT)])
    data = bytearray(await objects.get(entry.path))
    reference = list(entry.batches())[11][1]
    data[reference.position + 80] ^= 1
    await objects.put(entry.path, [bytes(data)])
    with pytest.raises(ObjectCorrupt, match=r"\(offset 11\) is not what was stored: .*checksum"):
        [part async for part in sources.rows_of(unit_of([entry]), objects, runtime)]


async def test_small_records_weigh_what_they_take_as_rows(
    runtime: CountingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten bytes as a record are eighty as a row: so many rows are not decoded at once."""
    monkeypatch.setattr(sources, "PIECE_BYTES", 1 << 30)
    objects = MemoryObjects(runtime)
    many = [Record(at, START) for at in range(100_000)]
    batch = twin.encode(many, codec=Codec.LZ4)
    unit = unit_of([await wal_entry(objects, 0, [batch] * 12)])
    rows = [len(part) async for part in sources.rows_of(unit, objects, runtime)]
    assert sum(rows) == 1_200_000
    assert max(rows) <= 1_000_000
