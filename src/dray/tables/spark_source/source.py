"""The data source as Spark's Python API wants it. Planning happens on the driver, reading in tasks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
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

from dray.base.runtime import SystemRuntime
from dray.kafka.client.cluster import Place
from dray.kafka.records.arrow import schema
from dray.tables.spark_source.files import FilePart, divided
from dray.tables.spark_source.log import LogState, TopicLog, with_kafkas_columns
from dray.tables.spark_source.options import (
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    OptionRefused,
    SourceOptions,
)
from dray.tables.spark_source.ranges import (
    UNBOUNDED,
    Offset,
    PartitionOffsets,
    Range,
    SourceError,
    between,
    limited,
    split,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from dray.tables.iceberg.reading import SnapshotFiles

T = TypeVar("T")

COLUMNS = {
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "base_sequence": "int",
    "attributes": "int",
    "topic": "string",
    "timestampType": "int",
}
"""The columns of the table, and behind them two that Kafka's own source has."""


class DraySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "dray"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(SourceOptions.parse(self.options, streaming=False), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802
        return LogStreamReader(SourceOptions.parse(self.options, streaming=True), wanted_columns(schema))


def wanted_columns(schema: StructType) -> list[str]:
    """Spark 4.1 tells a source in Python nothing of the columns that a query uses, but it passes on a schema
    that the reader was given: what is not in it never reaches the JVM."""
    for column in schema.fields:
        kind = column.dataType.simpleString()
        if COLUMNS.get(column.name) != kind:
            known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            raise OptionRefused(f"schema: there is no column {column.name} {kind}; there are: {known}")
    return schema.fieldNames()


class RangePartition(InputPartition):
    def __init__(self, topic_id: UUID, wanted: Range) -> None:
        super().__init__(wanted)
        self.topic_id = topic_id
        self.wanted = wanted


class FilePartition(InputPartition):
    def __init__(self, part: FilePart) -> None:
        super().__init__(part)
        self.part = part
        self.wanted = part.wanted


class BatchReader(DataSourceReader):
    """A read of the records there when the query is planned: later records are not read, however long it
    takes."""

    def __init__(self, options: SourceOptions, columns: Sequence[str] = tuple(COLUMNS)) -> None:
        self.options = options
        self.columns = columns
        self.bounds = PartitionOffsets()
        self.not_before: int | None = None
        """Milliseconds, of a filter: an earlier record that lies behind a later one is left to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrows what is read. All filters are handed back: Spark checks the rows again, which costs little
        and leaves it to Spark what a comparison means."""
        for each in filters:
            self.bounds = _narrowed(self.bounds, each)
            time = _first_time(each)
            if time is not None and (self.not_before is None or time > self.not_before):
                self.not_before = time
        return filters

    def partitions(self) -> Sequence[RangePartition | FilePartition]:
        state, ranges, tables = asked(self.options, self._ranges)
        parts, rest = divided(self.bounds.applied(ranges), state.starts, tables)
        pieces = split(rest, self.options.records_per_task)
        return [
            *map(FilePartition, parts),
            *(RangePartition(state.topic_ids[each.topic], each) for each in pieces),
        ]

    async def _ranges(self, log: TopicLog) -> tuple[LogState, list[Range], Mapping[str, SnapshotFiles]]:
        """From where each partition is read, and to where; and the tables, as they were before that."""
        found = {} if self.options.tables is None else await self.options.tables.files(log)
        state, starts = await _starts(log, self.options)
        tables = self._usable(found, state)
        ends = dict(state.ends)
        if self.options.ending_timestamp is not None:
            ends |= await log.offsets(self.options.ending_timestamp)
        elif not isinstance(self.options.ending, str):
            given = _given("endingOffsets", self.options.ending, state)
            ends |= {place: min(ends[place], end) for place, end in given.items()}
        if self.options.compacted:
            ends = {place: min(end, tables[place[0]].ends.get(place[1], 0)) for place, end in ends.items()}
        if self.not_before is not None:
            for place, first in (await log.offsets(self.not_before)).items():
                starts[place] = max(starts.get(place, 0), first)
        return state, [Range(*place, starts[place], ends[place]) for place in state.starts], tables

    def _usable(self, found: Mapping[str, SnapshotFiles], state: LogState) -> dict[str, SnapshotFiles]:
        """The log decides: where a table was changed by others, or is of another topic of that name, all is
        read from the log."""
        usable = {
            topic: table
            for topic, table in found.items()
            if table.trouble is None and table.topic_id == state.topic_ids.get(topic)
        }
        for topic in sorted(state.topic_ids.keys() - usable.keys()) if self.options.compacted else ():
            why = found[topic].trouble if topic in found else None
            raise SourceError(
                f"topic {topic}: {why or 'it has no table yet'}; without option compacted the log is read"
            )
        return usable

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        if partition is None:  # Spark has one task without a partition where there are no partitions
            return iter(())
        if isinstance(partition, FilePartition):
            return part_rows(self.options, partition.part, self.columns)
        assert isinstance(partition, RangePartition)
        return rows(self.options, partition, self.columns)


class LogStreamReader(DataSourceStreamReader):
    """A batch is two sets of offsets, which Spark keeps: read again, it is the same batch."""

    def __init__(self, options: SourceOptions, columns: Sequence[str] = tuple(COLUMNS)) -> None:
        self.options = options
        self.columns = columns
        self.position: Mapping[Place, int] | None = None
        """How far batches were planned, as far as this process knows. A topic that is gone, or no longer
        chosen, keeps its place: should it come back, nothing of it is read twice."""
        self.began: Mapping[Place, int] = {}
        """The starts of partitions that came later; and all, if the stream began at what was the latest."""
        self.topic_ids: Mapping[str, str] = {}
        self.last: Mapping[Place, int] | None = None
        """Where the log ended when this run first asked, if the run ends there."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        state, starts = self._asked(lambda log: _starts(log, self.options))
        topic_ids = _texts(state.topic_ids)
        if self.position is None:
            self.position, self.topic_ids = starts, topic_ids
            self.began = starts if self.options.begins_late else {}
        return Offset(topic_ids, starts, initial=self.options.begins_late).to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        if self.position is None:
            self.initialOffset()  # a new stream: one that is started again is told its last end before this
        assert self.position is not None
        state = self._asked(TopicLog.state)
        found = _texts(state.topic_ids)
        position = _of_same_topics(self.position, self.topic_ids, found)
        new = {place: start for place, start in state.starts.items() if place not in position}
        self.began = {**self.began, **new}
        ends = {**position, **state.ends}
        if self.options.ends_with_run:
            last = self.last = ends if self.last is None else self.last
            ends = {place: min(end, last[place]) for place, end in ends.items() if place in last}
        upto = ends
        if self.options.offsets_per_trigger is not None:
            ends = limited({**self.began, **position}, ends, self.options.offsets_per_trigger)
        self.position, self.topic_ids = ends, {**self.topic_ids, **found}
        behind = sum(upto.values()) - sum(ends.values())
        return Offset(self.topic_ids, ends, self.began, behind=behind).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        """Spark calls this with the last end in its checkpoint first, when a stream is started again: so what
        is noted there is known before anything else is asked."""
        first, last = self._noted(start), self._noted(end)
        self.position, self.began, self.topic_ids = last.offsets, last.began, last.topic_ids
        noted = {} if first.initial and last.began else first.offsets
        starts = {**last.began, **_of_same_topics(noted, first.topic_ids, last.topic_ids)}
        ranges = split(between(starts, last.offsets), self.options.records_per_task)
        return [RangePartition(UUID(last.topic_ids[each.topic]), each) for each in ranges]

    def _asked(self, question: Callable[[TopicLog], Awaitable[T]]) -> T:
        return asked(self.options, question, {name: UUID(text) for name, text in self.topic_ids.items()})

    def _noted(self, found: Mapping[str, Any]) -> Offset:
        only = self.options.topics[0] if len(self.options.topics) == 1 else None
        try:
            return Offset.from_json(found, only)
        except ValueError as error:
            raise SourceError(
                f"{error}: let it go on with option topic alone for two batches, then with more topics"
            ) from error

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return rows(self.options, partition, self.columns)


def asked(
    options: SourceOptions,
    question: Callable[[TopicLog], Awaitable[T]],
    topic_ids: Mapping[str, UUID] | None = None,
) -> T:
    """Ask the brokers from code that waits: Spark's planner does."""

    async def ask() -> T:
        runtime = SystemRuntime(threads=1)
        log = TopicLog(options, runtime, topic_ids)
        try:
            return await question(log)
        finally:
            await log.close()
            runtime.close()

    return asyncio.run(ask())


def rows(
    options: SourceOptions, partition: RangePartition, columns: Sequence[str] = tuple(COLUMNS)
) -> Iterator[pyarrow.RecordBatch]:
    loop = asyncio.new_event_loop()
    runtime = SystemRuntime(threads=1)
    topic = partition.wanted.topic
    log = TopicLog(options.of(topic), runtime, {topic: partition.topic_id})
    batches: AsyncIterator[pyarrow.RecordBatch] = log.read(partition.wanted)

    async def following() -> pyarrow.RecordBatch | None:
        return await anext(batches, None)

    try:
        while (batch := loop.run_until_complete(following())) is not None:
            yield batch.select(list(columns))
    finally:
        loop.run_until_complete(log.close())
        loop.close()
        runtime.close()


def part_rows(
    options: SourceOptions, part: FilePart, columns: Sequence[str]
) -> Iterator[pyarrow.RecordBatch]:
    """As `rows`, of a file."""
    assert options.tables is not None
    in_file = ["attributes", *(name for name in schema().names if name in columns and name != "attributes")]
    for batch in options.tables.rows(part, in_file):
        yield with_kafkas_columns(batch, part.wanted.topic).select(list(columns))


async def _starts(log: TopicLog, options: SourceOptions) -> tuple[LogState, dict[Place, int]]:
    """The offsets at which a read begins. Offsets below the log's start are left as they are: the task that
    reads them finds that they are gone, and says so."""
    state = await log.state()
    starts = dict(state.starts)
    if options.starting_timestamp is not None:
        starts |= await log.offsets(options.starting_timestamp)
    elif options.starting == LATEST:
        starts = dict(state.ends)
    elif not isinstance(options.starting, str):
        starts |= _given("startingOffsets", options.starting, state)
    return state, {place: starts[place] for place in state.starts}


def _given(option: str, offsets: Mapping[Place, int], state: LogState) -> dict[Place, int]:
    """Offsets of an option, where -2 and -1 are those of the log."""
    for topic, partition in sorted(offsets.keys() - state.starts.keys()):
        raise SourceError(f"option {option}: topic {topic} has no partition {partition} that is read")
    special = {EARLIEST_OFFSET: state.starts, LATEST_OFFSET: state.ends}
    return {place: special[each][place] if each in special else each for place, each in offsets.items()}


def _texts(topic_ids: Mapping[str, UUID]) -> dict[str, str]:
    return {name: str(topic_id) for name, topic_id in topic_ids.items()}


def _of_same_topics(
    offsets: Mapping[Place, int], before: Mapping[str, str], now: Mapping[str, str]
) -> dict[Place, int]:
    """Offsets of topics that are not others of the same name by now."""
    again = {name for name, topic_id in now.items() if before.get(name, topic_id) != topic_id}
    return {place: offset for place, offset in offsets.items() if place[0] not in again}


def _first_time(each: Filter) -> int | None:
    """The milliseconds before which no row passes this filter, if it says so."""
    if not isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual) or each.attribute != ("timestamp",):
        return None
    if not isinstance(each.value, datetime) or each.value.tzinfo is None:
        return None
    return max(0, math.floor(each.value.timestamp() * 1000))


def _narrowed(bounds: PartitionOffsets, each: Filter) -> PartitionOffsets:
    """Nothing is concluded from a filter that is not understood."""
    if not isinstance(each, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return bounds
    values = each.value if isinstance(each, In) else (each.value,)
    if each.attribute == ("topic",) and isinstance(each, EqualTo | In):
        return bounds.named(values) if all(type(value) is str for value in values) else bounds
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
