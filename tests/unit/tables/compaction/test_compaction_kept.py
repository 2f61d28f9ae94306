"""Rows that are superseded are not made in the first place; what comes of it is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.tables.compaction.executor_inputs import START, kafka_batch, unit_of, wal_entry

from dray.base.runtime import SystemRuntime
from dray.kafka.records import Codec, Kept, unfolds_to
from dray.kafka.records.columns import Record
from dray.log.jobs.machine import Cleaning
from dray.log.types import ObjectCorrupt
from dray.objects.memory import MemoryObjects
from dray.tables.compaction.model import Unit
from dray.tables.compaction.writing import sources
from dray.tables.compaction.writing.cleaning import COLUMNS, LastOffsets, Survivors

SECRET = bytes(16)
NOTHING = Kept(b"")


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    runtime = SystemRuntime(threads=1)
    yield runtime
    runtime.close()


@pytest.fixture
async def objects(runtime: SystemRuntime) -> MemoryObjects:
    return MemoryObjects(runtime)


def keyed(random: Random, start: int, count: int) -> list[Record]:
    return [
        Record(
            offset,
            START + offset,
            random.choice([None, b"", b"a", b"b", b"only %d" % offset]),
            random.choice([None, b"1", b"22"]),
            [("h", b"x")] * random.randrange(2),
        )
        for offset in range(start, start + count)
    ]


async def all_rows(unit: Unit, objects: MemoryObjects, runtime: SystemRuntime, **how: Any) -> Any:
    return [rows async for rows in sources.rows_of(unit, objects, runtime, **how)]


async def survivors(unit: Unit, objects: MemoryObjects, runtime: SystemRuntime) -> Survivors:
    last = LastOffsets(SECRET)
    for rows in await all_rows(unit, objects, runtime, columns=COLUMNS):
        assert rows.schema.names == list(COLUMNS)
        last.add(rows)
    return last.survivors()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    "cleaning", [Cleaning(), Cleaning(from_start=True), Cleaning(25, 0, from_start=True), Cleaning(1000)]
)
@pytest.mark.parametrize("start", [0, 7, 13])
async def test_what_is_left_is_what_the_rule_leaves(
    objects: MemoryObjects, runtime: SystemRuntime, cleaning: Cleaning, codec: Codec, start: int
) -> None:
    """From inside of a producer's batch too: its base sequence moves by as many records as are cut off."""
    random = Random(5)
    first = [kafka_batch(keyed(random, at, 10), codec, producer=(4, 0, at)) for at in (0, 10)]
    second = [kafka_batch(keyed(random, at, 15), codec, producer=(5, 0, at)) for at in (20, 35)]
    entries = [await wal_entry(objects, 0, first), await wal_entry(objects, 20, second)]
    unit = replace(unit_of(entries), start=start)
    left = await survivors(unit, objects, runtime)
    whole = pa.Table.from_batches(await all_rows(unit, objects, runtime)).combine_chunks().to_batches()[0]
    wanted = left.filtered(whole, cleaning)
    made = await all_rows(unit, objects, runtime, kept=left.kept(cleaning))
    found = pa.Table.from_batches([left.filtered(rows, cleaning) for rows in made])
    assert found.to_pylist() == pa.Table.from_batches([wanted]).to_pylist()
    assert 0 < len(found) < 50 - start
    if start == 0:
        assert sum(map(len, made)) == len(found), "no other row was made"


@pytest.mark.parametrize("how", [{"columns": COLUMNS}, {"kept": NOTHING}])
async def test_damage_is_found_whatever_is_asked_for(
    objects: MemoryObjects, runtime: SystemRuntime, how: dict[str, Any]
) -> None:
    """In what goes as well: it may be the record that supersedes another."""
    random = Random(1)
    entry = await wal_entry(objects, 0, [kafka_batch(keyed(random, at, 5)) for at in (0, 5, 10)])
    reference = list(entry.batches())[1][1]
    data = bytearray(await objects.get(entry.path))
    data[reference.position + 80] ^= 4
    await objects.put(entry.path, [bytes(data)])
    with pytest.raises(ObjectCorrupt, match=r"\(offset 5\) is not what was stored"):
        await all_rows(unit_of([entry]), objects, runtime, **how)


@pytest.mark.parametrize("how", [{}, {"columns": COLUMNS}, {"kept": NOTHING}])
@pytest.mark.parametrize("counts", [(4, 6), (6, 4)])
async def test_an_offset_without_a_record_is_found_whatever_is_asked_for(
    objects: MemoryObjects, runtime: SystemRuntime, how: dict[str, Any], counts: tuple[int, int]
) -> None:
    random = Random(1)
    entry = await wal_entry(objects, 0, [kafka_batch(keyed(random, at, 5)) for at in (0, 5)])
    table = bytearray(entry.table)
    size = len(table) // 2
    for place, count in enumerate(counts):
        table[place * size + 8 : place * size + 12] = count.to_bytes(4, "big")
    lying = replace(entry, table=bytes(table))
    with pytest.raises(ObjectCorrupt, match="is not the one that the index lists"):
        await all_rows(unit_of([lying]), objects, runtime, **how)


@pytest.mark.parametrize("how", [{"columns": COLUMNS}, {"kept": NOTHING}])
async def test_what_unfolds_far_is_taken_in_small_pieces_though_little_comes_of_it(
    objects: MemoryObjects,
    runtime: SystemRuntime,
    how: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How far batches unfold is not what is left of them: else more and more would be unfolded at once."""
    monkeypatch.setattr(sources, "PIECE_BYTES", 200_000)
    unfolded: list[int] = []
    decode = sources.FetchedBatches.decode

    def counting(self: sources.FetchedBatches, expected: int) -> Any:
        unfolded.append(sum(unfolds_to(batch.data) for batch in self._batches))
        return decode(self, expected)

    monkeypatch.setattr(sources.FetchedBatches, "decode", counting)
    value = bytes(range(250)) * 4 * 100
    batches = [kafka_batch([Record(at, START, b"k", value)], Codec.ZSTD) for at in range(300)]
    await all_rows(unit_of([await wal_entry(objects, 0, batches)]), objects, runtime, **how)
    assert sum(unfolded) > 300 * len(value)
    assert max(unfolded[4:]) <= 200_000 + 2 * len(value)
