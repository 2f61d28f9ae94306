"""A topic's table as other writers leave it."""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from tests.services.lake import Lake

from dray.broker.topics.model import Topic


def rewritten(table: Table) -> None:
    """As `rewrite_data_files` leaves it: the same rows in files of its own, in a snapshot that says so."""
    rows = table.scan().to_arrow()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as rewrite:
        for task in table.scan().plan_files():
            rewrite.delete_data_file(task.file)
        for file in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
            rewrite.append_data_file(file)
        said = rewrite._summary

        def of_a_rewrite(*arguments: Any) -> Summary:
            return Summary(Operation.REPLACE, **said(*arguments).additional_properties)

        rewrite._summary = of_a_rewrite  # type: ignore[assignment,method-assign]


async def a_table(lake: Lake, count: int = 4) -> tuple[Topic, Table]:
    topic = await lake.cluster.topic("orders", 2)
    for stream in topic.streams:
        await lake.cluster.fill(stream, count)
    assert (await lake.cluster.worker().once()).troubles == []
    lake.put_files()
    table = await lake.tables.load("orders")
    assert table is not None
    return topic, table
