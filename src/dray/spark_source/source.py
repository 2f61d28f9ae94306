"""The data source as Spark's Python API wants it. Planning happens on the driver, reading in tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from dray.runtime import SystemRuntime
from dray.spark_source.log import SourceError, TopicLog, TopicState
from dray.spark_source.options import LATEST, SourceOptions
from dray.spark_source.ranges import (
    UNBOUNDED,
    Offset,
    PartitionOffsets,
    Range,
    between,
    limited,
    split,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

T = TypeVar("T")

SCHEMA = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, "
    "producer_id bigint, producer_epoch int, base_sequence int, attributes int"
)


class DraySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "dray"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> BatchReader:  # noqa: ARG002
        return BatchReader(SourceOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: ARG002, N802
        return LogStreamReader(SourceOptions.parse(self.options, streaming=True))


class RangePartition(InputPartition):
    def __init__(self, topic_id: UUID, wanted: Range) -> None:
        super().__init__(wanted)
        self.topic_id = topic_id
        self.wanted = wanted


class BatchReader(DataSourceReader):
    """What there is when the query is planned: later records are not read, however long it takes."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.bounds = PartitionOffsets()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrows what is read. All filters are handed back: Spark checks the rows again, which costs little
        and leaves it to Spark what a comparison means."""
        for each in filters:
            self.bounds = _narrowed(self.bounds, each)
        return filters

    def partitions(self) -> Sequence[RangePartition]:
        state, starts = asked(self.options, lambda log: _starts(log, self.options))
        ends = state.ends
        if not isinstance(self.options.ending, str):
            ends = {
                partition: min(end, self.options.ending.get(partition, end))
                for partition, end in state.ends.items()
            }
        ranges = [Range(partition, starts[partition], end) for partition, end in ends.items()]
        pieces = split(self.bounds.applied(ranges), self.options.records_per_task)
        return [RangePartition(state.topic_id, each) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return rows(self.options, partition)


class LogStreamReader(DataSourceStreamReader):
    """A batch is two sets of offsets, which Spark keeps: read again, it is the same batch."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.position: Mapping[int, int] | None = None
        """How far batches were planned, as far as this process knows."""
        self.began: Mapping[int, int] | None = None
        """Where the stream began, if it began at what was the latest then."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        state, starts = asked(self.options, lambda log: _starts(log, self.options))
        self.position = self.position or starts
        if self.options.starting != LATEST:
            return Offset(str(state.topic_id), starts).to_json()
        self.began = self.began or starts
        return Offset(str(state.topic_id), self.began, initial=True).to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        state = asked(self.options, TopicLog.state)
        ends = dict(state.ends)
        if self.options.offsets_per_trigger is not None and self.position is not None:
            ends = limited(self.position, ends, self.options.offsets_per_trigger)
        self.position = ends
        if self.options.starting == LATEST:
            self.began = self.began or ends  # Spark may ask for the latest before it asks for the start
        return Offset(str(state.topic_id), ends, self.began).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        """Spark calls this with the last end in its checkpoint first, when a stream is started again: so the
        start that is noted there is known before anything else is asked."""
        first, last = Offset.from_json(start), Offset.from_json(end)
        if first.topic_id != last.topic_id:
            raise SourceError(
                f"topic {self.options.topic} was deleted and created again since this stream began "
                f"(id {first.topic_id}, now {last.topic_id}): start a new one, with a checkpoint of its own"
            )
        self.position = last.offsets
        self.began = last.began or self.began
        starts = last.began if first.initial and last.began is not None else first.offsets
        ranges = split(between(starts, last.offsets), self.options.records_per_task)
        return [RangePartition(UUID(last.topic_id), each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return rows(self.options, partition)


def asked(options: SourceOptions, question: Callable[[TopicLog], Awaitable[T]]) -> T:
    """Ask the brokers from code that waits: Spark's planner does."""

    async def ask() -> T:
        runtime = SystemRuntime(threads=1)
        log = TopicLog(options, runtime)
        try:
            return await question(log)
        finally:
            await log.close()
            runtime.close()

    return asyncio.run(ask())


def rows(options: SourceOptions, partition: RangePartition) -> Iterator[pyarrow.RecordBatch]:
    loop = asyncio.new_event_loop()
    runtime = SystemRuntime(threads=1)
    log = TopicLog(options, runtime, partition.topic_id)
    batches: AsyncIterator[pyarrow.RecordBatch] = log.read(partition.wanted)

    async def following() -> pyarrow.RecordBatch | None:
        return await anext(batches, None)

    try:
        while (batch := loop.run_until_complete(following())) is not None:
            yield batch
    finally:
        loop.run_until_complete(log.close())
        loop.close()
        runtime.close()


async def _starts(log: TopicLog, options: SourceOptions) -> tuple[TopicState, dict[int, int]]:
    """Where a read begins. Offsets below the log's start are left as they are: the task that reads them finds
    that they are gone, and says so."""
    state = await log.state()
    starts = dict(state.starts)
    if options.starting_timestamp is not None:
        starts |= await log.offsets(options.starting_timestamp)
    elif options.starting == LATEST:
        starts = dict(state.ends)
    elif not isinstance(options.starting, str):
        unknown = sorted(set(options.starting) - set(starts))
        if unknown:
            raise SourceError(f"option startingOffsets: topic {options.topic} has no partition {unknown[0]}")
        starts |= options.starting
    return state, starts


def _narrowed(bounds: PartitionOffsets, each: Filter) -> PartitionOffsets:
    """Nothing is concluded from a filter that is not understood."""
    if not isinstance(each, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return bounds
    values = each.value if isinstance(each, In) else (each.value,)
    if not values or not all(type(value) is int for value in values):
        return bounds
    if each.attribute == ("partition",) and isinstance(each, EqualTo | In):
        return bounds.only(values)
    if each.attribute == ("offset",):
        if isinstance(each, EqualTo | In):
            return bounds.within(min(values), max(values) + 1)
        value = values[0]
        if isinstance(each, GreaterThan):
            return bounds.within(value + 1, UNBOUNDED)
        if isinstance(each, GreaterThanOrEqual):
            return bounds.within(value, UNBOUNDED)
        if isinstance(each, LessThan):
            return bounds.within(0, value)
        return bounds.within(0, value + 1)
    return bounds
