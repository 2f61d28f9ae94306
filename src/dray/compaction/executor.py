"""A unit becomes a Parquet file: what an executor does, wherever it runs.

Rows are read in pieces of a few mebibytes, turned into columns and written out at once, so that the memory
this takes does not grow with the unit. What is stored is checked on the way: a batch that is not what was
stored, or an offset without a record, fails the unit, by name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dray.compaction.cleaning import COLUMNS, LastOffsets, Survivors
from dray.compaction.model import Progress, Unit, UnitFailed
from dray.compaction.paths import file_path
from dray.compaction.sources import rows_of
from dray.log.foreign_segments import ForeignSegments
from dray.log.types import ForeignSegmentFault, LogUnavailable, ObjectCorrupt
from dray.log.written_file import WrittenFile
from dray.objects.contract import ObjectError, ObjectMissing, ObjectStore
from dray.parquet.statistics import FileStatistics
from dray.parquet.writer import FileWriter
from dray.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow


async def write_unit(
    unit: Unit, objects: ObjectStore, runtime: Runtime, foreign: ForeignSegments | None = None
) -> WrittenFile | UnitFailed:
    """One attempt. Its file has a name of its own, so that no two attempts ever meet. `foreign` reads the
    segments of other systems."""
    parquet_id = runtime.uuid()
    path = file_path(unit.prefix, unit.job, parquet_id)
    try:
        async with aclosing(_rows(unit, objects, runtime, foreign)) as rows:
            statistics = await _write(rows, path, objects, runtime)
    except (ObjectCorrupt, ForeignSegmentFault) as error:
        return UnitFailed(unit.stream, unit.job, str(error), retriable=False)
    except LogUnavailable as error:
        return UnitFailed(unit.stream, unit.job, str(error), retriable=True)
    except ObjectMissing as error:
        # The index has changed since the plan was made: the next plan is made from the new one.
        return UnitFailed(unit.stream, unit.job, str(error), retriable=True)
    except ObjectError as error:
        return UnitFailed(unit.stream, unit.job, f"the object store did not answer: {error}", retriable=True)
    if not statistics.record_count:
        reason = f"{unit.topic}-{unit.partition}: no record is left between {unit.start} and {unit.end}"
        return UnitFailed(unit.stream, unit.job, reason, retriable=False)
    return WrittenFile.of(
        statistics,
        stream=unit.stream,
        job=unit.job,
        path=path,
        parquet_id=parquet_id,
        start=unit.start,
        end=unit.end,
        cleaned_to=unit.end if unit.cleaning is not None and unit.cleaning.from_start else None,
    )


async def _rows(
    unit: Unit, objects: ObjectStore, runtime: Runtime, foreign: ForeignSegments | None
) -> AsyncGenerator[pyarrow.RecordBatch, None]:
    """What goes into the file: every record of the unit, or what compaction by key leaves of them."""
    survivors = None
    if unit.cleaning is not None:
        survivors = await _survivors(unit, objects, runtime, foreign)
    async with aclosing(rows_of(unit, objects, runtime, None, foreign)) as batches:
        async for batch in batches:
            if survivors is None or unit.cleaning is None:
                yield batch
            else:
                yield await runtime.in_thread(survivors.filtered, batch, unit.cleaning)


async def _survivors(
    unit: Unit, objects: ObjectStore, runtime: Runtime, foreign: ForeignSegments | None
) -> Survivors:
    last = LastOffsets()
    async with aclosing(rows_of(unit, objects, runtime, COLUMNS, foreign)) as batches:
        async for batch in batches:
            await runtime.in_thread(last.add, batch)
    return await runtime.in_thread(last.survivors)


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

    def __init__(
        self, objects: ObjectStore, runtime: Runtime, foreign: ForeignSegments | None = None
    ) -> None:
        self._objects = objects
        self._runtime = runtime
        self._foreign = foreign

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None
    ) -> list[WrittenFile | UnitFailed]:
        answers: list[WrittenFile | UnitFailed] = []
        for unit in units:
            answers.append(await write_unit(unit, self._objects, self._runtime, self._foreign))
            if progress is not None:
                progress(len(answers), len(units))
        return answers
