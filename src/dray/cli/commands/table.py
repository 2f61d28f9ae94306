"""`drayd admin table`: a topic as the table that it is, or why it is none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dray.cli.clean_views import NOTHING, clean_shares_of, time_of
from dray.cli.commands.table_list import describe_all, drop_table, find_topic, list_tables
from dray.cli.options import ConfigOption, DataDirOption, JsonOption, load_config
from dray.cli.output import print_json, print_table
from dray.config import Settings
from dray.daemon.catalogs import OpenTables, open_tables
from dray.daemon.failures import USAGE, Failure
from dray.daemon.settings import log_settings
from dray.daemon.store_settings import table_names
from dray.daemon.words import about_size, counted
from dray.log.stream_store import StreamStore
from dray.topics.model import Topic

if TYPE_CHECKING:
    from dray.tables.iceberg.reading import TableView


@dataclass(frozen=True)
class PartitionLag:
    partition: int
    start: int
    end: int  # of the log
    table_end: int  # the offset after the last one in the table
    # Of a topic that is compacted by key, and None of any other:
    clean_point: int | None = None  # the one that the table publishes
    live_share: float | None = None  # of the records in files: those below the log's clean point

    @property
    def behind(self) -> int:
        """Records that are in the log and not yet in the table."""
        return self.end - max(self.table_end, self.start)


def table(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name; without it, all topics.")
    ] = None,
    *,
    drop: Annotated[
        bool,
        typer.Option(
            "--drop", help="Drop the table of a topic that is not to have one. No record is deleted."
        ),
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show a topic's Iceberg table: where it is, what it holds, and how far it is behind the log.

    Without a topic: which topics have a table, and why others have none.

    [dim]Example:[/] drayd admin table orders --data-dir ./dray-data
    """
    settings = load_config(config, data_dir).settings
    if topic is None:
        if drop:
            raise Failure("--drop: of which topic?", USAGE)
        list_tables(asyncio.run(describe_all(settings)), json=json)
    elif drop:
        print(asyncio.run(drop_table(settings, topic)))
    else:
        view, lags, unwritten = asyncio.run(_describe(settings, topic))
        if json:
            print_json(as_plain(view, lags, unwritten))
        else:
            _print(view, lags, unwritten)


async def _describe(settings: Settings, topic: str) -> tuple[TableView, list[PartitionLag], str | None]:
    """The table, the lag of each partition, and why the table is no longer written, if so."""
    async with open_tables(settings) as opened:
        known = await find_topic(opened, settings, topic)
        why_not = table_names(settings).why_not(known, settings.topics.defaults)
        view = await opened.tables.view(topic)
        if view is not None and view.topic_id == known.topic_id:
            return view, await _lags(opened, settings, known, view), why_not
        if why_not is not None:
            raise Failure(f"topic {topic} has no table: {why_not}")
        raise Failure(f"topic {topic} has no table yet: one is made when it is first compacted")


async def _lags(opened: OpenTables, settings: Settings, topic: Topic, view: TableView) -> list[PartitionLag]:
    expiry = log_settings(settings).producer_expiry_ms
    store = StreamStore(opened.stores.metadata, opened.cluster.domains, expiry)
    lags = []
    for partition, stream in enumerate(topic.streams):
        mark = await store.high_watermark(stream)
        start = (await store.start(stream)).value
        end = start if mark is None else mark.value.end
        lag = PartitionLag(partition, start, end, view.ends.get(partition, 0))
        if topic.settings.compacts:
            share = (await clean_shares_of(store, stream)).live_share
            lag = replace(lag, clean_point=view.clean_points.get(partition), live_share=share)
        lags.append(lag)
    return lags


def as_plain(view: TableView, lags: list[PartitionLag], unwritten: str | None = None) -> dict[str, Any]:
    compacted = _is_compacted(lags)
    return {
        "table": view.name,
        "topic": view.topic,
        "topic_id": str(view.topic_id),
        "uuid": str(view.table_uuid),
        "location": view.location,
        "metadata": view.metadata_location,
        "snapshot": view.snapshot_id,
        "updated_ms": view.updated_ms,
        "snapshots": view.snapshots,
        "manifests": view.manifests,
        "files": len(view.files),
        "rows": view.rows,
        "bytes": view.size,
        "trouble": view.trouble,
        "unwritten": unwritten,
        "partitions": [
            {
                "partition": lag.partition,
                "log_start": lag.start,
                "log_end": lag.end,
                "table_end": lag.table_end,
                "behind": lag.behind,
                **({"clean_point": lag.clean_point, "live_share": lag.live_share} if compacted else {}),
            }
            for lag in lags
        ],
    }


def _print(view: TableView, lags: list[PartitionLag], unwritten: str | None) -> None:
    print(f"table {view.name}")
    print(f"  uuid      {view.table_uuid}")
    print(f"  location  {view.location}")
    print(f"  metadata  {view.metadata_location}")
    updated = "never" if view.updated_ms is None else time_of(view.updated_ms)
    kept = counted(view.snapshots, "snapshot")
    print(f"  snapshot  {view.snapshot_id or 'none yet'}, the newest of {kept}, updated {updated}")
    files = counted(len(view.files), "file")
    print(f"  holds     {counted(view.rows, 'row')} in {files}, {about_size(view.size)}")
    if view.trouble:
        print(f"  trouble   {view.trouble}")
    if unwritten:
        print(f"  unwritten {unwritten}")
    heads = ["partition", "log start", "log end", "table end", "behind"]
    rows = [(lag.partition, lag.start, lag.end, lag.table_end, lag.behind) for lag in lags]
    if not _is_compacted(lags):
        print_table(heads, rows)
        return
    clean = [
        (
            NOTHING if lag.clean_point is None else lag.clean_point,
            NOTHING if lag.live_share is None else f"{lag.live_share:.0%}",
        )
        for lag in lags
    ]
    print_table(
        [*heads, "clean point", "live"], [(*row, *more) for row, more in zip(rows, clean, strict=True)]
    )


def _is_compacted(lags: list[PartitionLag]) -> bool:
    return any(lag.live_share is not None or lag.clean_point is not None for lag in lags)
