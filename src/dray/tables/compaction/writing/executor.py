"""A unit becomes a Parquet file: what an executor does, wherever it runs.

Rows are read in pieces of a few mebibytes, turned into columns and written out at once, so that the memory
this takes does not grow with the unit. Stored batches are checked on the way: a batch that is not what was
stored, or an offset without a record, fails the unit, by name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from dray.base.runtime import Runtime
from dray.log.jobs.machine import Cleaning
from dray.log.jobs.values import WrittenFile
from dray.log.parquet.statistics import FileStatistics
from dray.log.parquet.writer import FileWriter
from dray.log.types import LogUnavailable, ObjectCorrupt, OutsideFault
from dray.objects.contract import ObjectError, ObjectMissing, ObjectStore
from dray.tables.compaction.model import Deliver, Progress, Unit, UnitAnswer, UnitFailed, WrittenKeys
from dray.tables.compaction.paths import file_path, keys_path
from dray.tables.compaction.writing.cleaning import COLUMNS, KeyCollection, KeyObject, LastOffsets, Survivors
from dray.tables.compaction.writing.outside_rows import OutsideRows
from dray.tables.compaction.writing.sources import rows_of

if TYPE_CHECKING:
    import pyarrow


async def write_unit(
    unit: Unit, objects: ObjectStore, runtime: Runtime, outside: OutsideRows | None = None
) -> UnitAnswer:
    """One attempt. Its file has a name of its own, so that no two attempts ever meet. `outside` reads the
    entries that the log does not read itself."""
    try:
        if unit.most_keys:
            return await _write_keys(unit, objects, runtime, outside)
        return await _write_file(unit, objects, runtime, outside)
    except (ObjectCorrupt, OutsideFault) as error:
        return UnitFailed(unit.stream, unit.job, str(error), retriable=False, may_pass=True)
    except LogUnavailable as error:
        return UnitFailed(unit.stream, unit.job, str(error), retriable=True)
    except ObjectMissing as error:
        # The index has changed since the plan was made: the next plan is made from the new one.
        return UnitFailed(unit.stream, unit.job, str(error), retriable=True)
    except ObjectError as error:
        return UnitFailed(unit.stream, unit.job, f"the object store did not answer: {error}", retriable=True)


async def _write_file(
    unit: Unit, objects: ObjectStore, runtime: Runtime, outside: OutsideRows | None
) -> WrittenFile | UnitFailed:
    parquet_id = runtime.uuid()
    path = file_path(unit.prefix, unit.job, parquet_id)
    if all(entry.is_gap for entry in unit.decoded()):
        place = (unit.stream, unit.job, path, parquet_id)
        return WrittenFile.gap(*place, start=unit.start, end=unit.end)
    # The attempt's id is a secret as long as it lasts: no producer can choose keys by it.
    source = UnitRows(unit, objects, runtime, outside, parquet_id.bytes)
    async with aclosing(source.rows()) as rows:
        statistics = await _write(rows, path, objects, runtime)
    if not statistics.record_count:
        reason = f"{unit.topic}-{unit.partition}: no record is left between {unit.start} and {unit.end}"
        empty = any(entry.is_outside for entry in unit.decoded())
        return UnitFailed(unit.stream, unit.job, reason, retriable=False, empty=empty)
    return WrittenFile.of(
        statistics,
        stream=unit.stream,
        job=unit.job,
        path=path,
        parquet_id=parquet_id,
        start=unit.start,
        end=unit.end,
        cleaned_to=unit.end if unit.cleaning is not None and unit.cleaning.from_start else None,
        cleaned_with=None if unit.cleaning is None else unit.cleaning.keys,
        emptied=True if source.emptied else None,
    )


class UnitRows:
    """The rows that go into the file: every record of the unit, or those that compaction by key leaves."""

    def __init__(
        self,
        unit: Unit,
        objects: ObjectStore,
        runtime: Runtime,
        outside: OutsideRows | None,
        secret: bytes,
    ) -> None:
        self._unit = unit
        self._secret = secret
        self._outside = outside
        self._objects = objects
        self._runtime = runtime
        self.emptied = False  # all that there was is superseded, and one row stands for it

    async def rows(self) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        cleaning = self._unit.cleaning
        if cleaning is None:
            kept: AsyncGenerator[pyarrow.RecordBatch, None] = rows_of(
                self._unit, self._objects, self._runtime, None, self._outside
            )
        elif cleaning.keys is None:
            kept = self._survivors(cleaning)
        else:
            kept = self._not_superseded(cleaning, cleaning.keys)
        async with aclosing(kept) as batches:
            async for batch in batches:
                yield batch

    async def _survivors(self, cleaning: Cleaning) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        """The rows that no later row of the unit itself supersedes."""
        survivors = await self._last_of_keys()
        kept = survivors.kept(cleaning)
        async with aclosing(
            rows_of(self._unit, self._objects, self._runtime, None, self._outside, kept)
        ) as batches:
            async for batch in batches:
                yield await self._runtime.in_thread(survivors.filtered, batch, cleaning)

    async def _last_of_keys(self) -> Survivors:
        last = LastOffsets(self._secret)
        async with aclosing(
            rows_of(self._unit, self._objects, self._runtime, COLUMNS, self._outside)
        ) as batches:
            async for batch in batches:
                await self._runtime.in_thread(last.add, batch)
        return await self._runtime.in_thread(last.survivors)

    async def _not_superseded(
        self, cleaning: Cleaning, path: str
    ) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        """The rows that a cleaning round's keys do not supersede. If nothing is left, the last row stays."""
        keys = await _read_keys(path, self._objects, self._runtime)
        last: pyarrow.RecordBatch | None = None
        count = 0
        async with aclosing(
            rows_of(self._unit, self._objects, self._runtime, None, self._outside)
        ) as batches:
            async for batch in batches:
                left = await self._runtime.in_thread(keys.filtered, batch, cleaning)
                count += len(left)
                if len(batch):
                    last = batch.slice(len(batch) - 1)
                yield left
        if not count and last is not None:
            self.emptied = keys.is_superseded(last)[0].as_py()
            yield last


async def _read_keys(path: str, objects: ObjectStore, runtime: Runtime) -> KeyObject:
    try:
        data = await objects.get(path)
    except ObjectMissing as error:
        raise ObjectCorrupt(f"the keys of its cleaning round are gone: {error}") from error
    return await runtime.in_thread(KeyObject, path, data)


async def _write_keys(
    unit: Unit, objects: ObjectStore, runtime: Runtime, outside: OutsideRows | None
) -> WrittenKeys:
    """The keys of as many of the unit's files as fit, from the first on."""
    secret = runtime.uuid().bytes + runtime.uuid().bytes
    collection = KeyCollection(secret, unit.most_keys, unit.start)
    path = keys_path(unit.prefix, unit.job, runtime.uuid())
    for entry in unit.decoded():
        file = replace(unit, entries=(entry.encode(),), start=max(unit.start, entry.start), end=entry.end)
        async with aclosing(rows_of(file, objects, runtime, COLUMNS, outside)) as batches:
            async for batch in batches:
                await runtime.in_thread(collection.add, batch)
        if not await runtime.in_thread(collection.end_file, entry.end):
            break
    parts, count = await runtime.in_thread(collection.encode)
    await objects.put(path, parts)
    return WrittenKeys(unit.stream, unit.job, path, collection.end, count)


async def _write(
    rows: AsyncIterator[pyarrow.RecordBatch], path: str, objects: ObjectStore, runtime: Runtime
) -> FileStatistics:
    writer = await runtime.in_thread(FileWriter)
    finished: list[FileStatistics] = []

    async def pieces() -> AsyncIterator[Sequence[bytes]]:
        async for batch in rows:
            yield await runtime.in_thread(writer.add, batch)
        last, statistics = await runtime.in_thread(writer.finish)
        yield last
        finished.append(statistics)

    await objects.put_stream(path, pieces())
    return finished[0]


class LocalUnitWriter:
    """Writes units in this process, one after the other: for tests, and where there is no Spark."""

    def __init__(self, objects: ObjectStore, runtime: Runtime, outside: OutsideRows | None = None) -> None:
        self._outside = outside
        self._objects = objects
        self._runtime = runtime

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, _: Deliver | None = None
    ) -> list[UnitAnswer]:
        answers: list[UnitAnswer] = []
        for unit in units:
            answers.append(await write_unit(unit, self._objects, self._runtime, self._outside))
            if progress is not None:
                progress(len(answers), len(units))
        return answers
