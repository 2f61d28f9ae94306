"""Parquet files of topics for tests of tables: small, and known to the last record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from dray.log.jobs.values import WrittenFile
from dray.log.parquet.statistics import ColumnSizes
from dray.log.parquet.writer import LEAF_IDS, file_schema
from dray.tables.compaction.paths import file_path, unit_prefix
from dray.tables.contract import TableChange, TableFile, TopicTable

T0 = 1_700_000_000_000
"""Milliseconds, in the middle of a day."""


@dataclass
class TopicFiles:
    """Writes files of a topic below the root of a local object store, and knows their records."""

    root: Path
    topic: TopicTable = field(default_factory=lambda: TopicTable("orders", uuid4()))
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    written: list[TableFile] = field(default_factory=list)

    def write(
        self,
        partition: int,
        start: int,
        count: int = 3,
        job: int = 1,
        *,
        day: int = 0,
        times: Sequence[int] = (),
        real: bool = True,
    ) -> TableFile:
        """`real` files are on disk; the others only stand in lists of files. `times` are those of the first
        records, in milliseconds."""
        prefix = unit_prefix(self.topic.topic, self.topic.topic_id, partition, stream=partition + 100)
        parquet_id = uuid4()
        path = file_path(prefix, job, parquet_id)
        first = T0 + day * 86_400_000
        later = range(start + len(times), start + count)
        milliseconds = [*times, *(first + offset % 1000 for offset in later)]
        rows = [
            {
                "partition": partition,
                "offset": offset,
                "timestamp": milliseconds[offset - start] * 1000,
                "key": None if offset % 5 == 4 else f"key-{offset}".encode(),
                "value": None if offset % 7 == 6 else f"value {partition} {offset}".encode() * 3,
                "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if offset % 2 else [],
                "producer_id": None if offset % 3 else 4000 + partition,
                "producer_epoch": None if offset % 3 else 0,
                "base_sequence": None if offset % 3 else offset,
                "attributes": 8 if offset % 2 else 0,
            }
            for offset in range(start, start + count)
        ]
        size = 1000 * count
        columns: tuple[ColumnSizes, ...] = ()
        splits: tuple[int, ...] = ()
        if real:
            size, columns, splits = _write_parquet(self.root / path, rows)
        self.rows[path] = rows
        written = WrittenFile(
            stream=partition + 100,
            job=job,
            path=path,
            parquet_id=parquet_id,
            file_size=size,
            footer_length=100,
            record_count=count,
            start=start,
            end=start + count,
            row_groups=(),
            min_timestamp=min(milliseconds),
            max_timestamp=max(milliseconds),
            columns=columns,
            split_offsets=splits,
        )
        self.written.append(TableFile(partition, written))
        return self.written[-1]

    def change(self, job: str, *added: TableFile, removed: tuple[str, ...] = ()) -> TableChange:
        return TableChange(job, added, removed)

    def records_of(self, paths: set[str]) -> list[dict[str, Any]]:
        """In order of partition and offset."""
        rows = [row for path in paths for row in self.rows[path]]
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def _write_parquet(
    path: Path, rows: list[dict[str, Any]]
) -> tuple[int, tuple[ColumnSizes, ...], tuple[int, ...]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=file_schema()), path, compression="zstd")
    metadata = pq.read_metadata(path)
    group = metadata.row_group(0)
    columns = []
    for index in range(group.num_columns):
        column = group.column(index)
        nulls = column.statistics.null_count if column.statistics else 0
        columns.append(
            ColumnSizes(
                LEAF_IDS[column.path_in_schema], column.total_compressed_size, column.num_values, nulls
            )
        )
    first = group.column(0)
    return path.stat().st_size, tuple(columns), (first.dictionary_page_offset or first.data_page_offset,)


def other_topic(topic: TopicTable) -> TopicTable:
    """Another topic of the same name: deleted and created again."""
    return TopicTable(topic.topic, UUID(int=topic.topic_id.int ^ 1), topic.day_partitioned)
