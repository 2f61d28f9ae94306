"""The records of a topic that no compactor has touched, read from the log between the end of the topic's
table and the end of the log: table and tail together have each record once.

The log takes over where the table's snapshot ends, whoever commits another one meanwhile. Of each partition
the start and the end were true at one moment. What lies below the start was deleted, whatever the table still
has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dray.log.stream_store import StreamStore
from dray.log.types import LogError, ReadRequest

if TYPE_CHECKING:
    import pyarrow

    from dray.base.runtime import Runtime
    from dray.kafka.records.columns import Columns
    from dray.log.outside_entries import OutsideEntries
    from dray.log.service import Log
    from dray.log.settings import LogSettings
    from dray.metadata.contract import MetadataStore
    from dray.objects.contract import ObjectStore

FETCHED: Final = 8 * 1024 * 1024
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of a topic's tail, in memory, for a process of its own; a console takes less."""


class TailRefused(Exception):
    """The message is one line."""


@dataclass(frozen=True)
class Tail:
    """By partition, the offsets between which rows belong to the topic; and the rows that its table lacks."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    batches: Sequence[pyarrow.RecordBatch] = field(default=(), repr=False)


class TailReader:
    """Reads straight from the stores, and writes nothing. The log is made when there is something to read."""

    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        runtime: Runtime,
        domains: int,
        settings: LogSettings,
        outside: Callable[[], OutsideEntries],
        most: int = MOST_BYTES,
    ) -> None:
        """`outside` makes what reads entries that other systems wrote. `most`: bytes of a topic's rows."""
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._domains = domains
        self._settings = settings
        self._outside = outside
        self._most = most
        self._streams = StreamStore(store, domains, settings.producer_expiry_ms)
        self._log: Log | None = None

    async def read(
        self,
        topic: str,
        streams: Sequence[int],
        table_ends: Mapping[int, int],
        as_of_ms: int | None = None,
        ends_then: Mapping[int, int] | None = None,
    ) -> Tail:
        """`as_of_ms`: the log as it was then, by the times of its records; `ends_then`: what the table is
        known to have held by then. Raises `TailRefused`."""
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        batches: list[pyarrow.RecordBatch] = []
        left = self._most
        try:
            for partition, stream in enumerate(streams):
                start, end = await self._bounds(stream)
                if as_of_ms is not None and start < end:
                    later = await self._opened().find_timestamp(stream, as_of_ms + 1)
                    by_then = (ends_then or {}).get(partition, 0)
                    end = end if later is None else min(end, max(later.offset, by_then))
                starts[partition], ends[partition] = start, end
                first = max(start, table_ends.get(partition, 0))
                async for batch in self._rows(stream, partition, first, end):
                    left -= batch.nbytes
                    if left < 0:
                        raise TailRefused(
                            f"{topic} has more than {self._most >> 20} MiB of records that no compactor has "
                            "touched: ask again when they are compacted, or ask the table alone (compacted)"
                        )
                    batches.append(batch)
        except LogError as error:
            raise TailRefused(
                f"{topic}: the records behind its table cannot be read: {error}; ask again, or ask the table "
                "alone (compacted)"
            ) from error
        return Tail(starts, ends, batches)

    async def _bounds(self, stream: int) -> tuple[int, int]:
        """A start that is the same before and after the end was read holds at that moment: it only rises."""
        await self._streams.barrier(stream)
        start = (await self._streams.start(stream)).value
        while True:
            mark = await self._streams.high_watermark(stream)
            again = (await self._streams.start(stream)).value
            if mark is None or mark.value.closed:
                raise LogError("the topic was deleted")
            if again == start:
                return start, mark.value.end
            start = again

    def _opened(self) -> Log:
        if self._log is None:
            from dray.log.service import Log

            self._log = Log(
                self._store,
                self._objects,
                self._runtime,
                self._domains,
                self._settings,
                outside=self._outside(),
            )
        return self._log

    async def _rows(
        self, stream: int, partition: int, start: int, end: int
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        if start >= end:
            return
        from dray.kafka.records.arrow import Uncommitted, to_arrow, whole_batches

        position = start
        while position < end:
            [result] = await self._opened().fetch(
                [ReadRequest(stream, position, FETCHED)], min_bytes=0, max_bytes=FETCHED, max_wait_ms=0
            )
            if result.error is not None:
                raise result.error
            asked = position
            left_out = Uncommitted(result.aborted)
            for buffer in result.buffers:
                runs, following = whole_batches(buffer, left_out)
                for run in runs:
                    columns = _decoded(run, partition)
                    rows = to_arrow(columns, partition)
                    offsets = memoryview(columns.offsets).cast("B").cast("q")
                    first, last = bisect_left(offsets, position), bisect_left(offsets, end)
                    if first < last:
                        yield rows.slice(first, last - first)
                # Segments of other systems may overlap: the next one begins where this one ended.
                position = max(position, following or 0)
            if position <= asked:
                raise LogError(f"partition {partition} has no records from offset {position} on")


def _decoded(run: memoryview, partition: int) -> Columns:
    from dray.kafka.records import RecordError, decode

    try:
        return decode(run, sparse=True)
    except RecordError as error:  # the log looks into what it appends, and other systems may not
        raise LogError(f"partition {partition}: {error}") from error
