"""`drayd admin table`: a topic as the table that it is, or why it is none."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dray.base.runtime import gather_some
from dray.broker.topics.live import StoredTopics
from dray.broker.topics.model import Topic, decode_topic
from dray.cli.clean_views import NOTHING, clean_shares_of, time_of
from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config
from dray.cli.output import print_json, print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.store_settings import table_names
from dray.daemons.assembly.words import about_size, counted
from dray.daemons.compactor.catalogs import OpenTables, open_tables
from dray.daemons.config import Settings
from dray.daemons.recovery.lost import lost_files
from dray.daemons.recovery.ownership import owned_bucket
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.tables.compaction.left_tables import LeftTables
from dray.tables.compaction.table_keeper import TableKeeper, table_of
from dray.tables.contract import TableUnreadable, TopicTable

if TYPE_CHECKING:
    from dray.tables.iceberg.view import TableView


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
            "--drop",
            help="Drop the table of a topic that is not to have one. No record is deleted. "
            "Shown first; done with --execute.",
        ),
    ] = False,
    put_back: Annotated[
        bool,
        typer.Option(
            "--put-back", help="Make the table hold the log's files again, after others changed its rows."
        ),
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Make a table anew that cannot be read any more, from the files of the log. It loses its "
            "snapshots; no record is touched. Shown first; done with --execute.",
        ),
    ] = False,
    execute: ExecuteOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show a topic's Iceberg table: where it is, what it holds, and how far it is behind the log.

    Without a topic: which topics have a table, and why others have none. --put-back and --rebuild do nothing
    before each file of the log was seen in the bucket.

    [dim]Example:[/] drayd admin table orders --data-dir ./dray-data
    """
    settings = load_config(config, data_dir).settings
    if sum((drop, put_back, rebuild)) > 1:
        raise Failure("--drop, --put-back and --rebuild: one of them", USAGE)
    if topic is None:
        if drop or rebuild or put_back:
            raise Failure("of which topic?", USAGE)
        list_tables(asyncio.run(describe_all(settings)), json=json)
    elif drop:
        print(asyncio.run(drop_table(settings, topic, execute=execute)))
    elif put_back:
        print(asyncio.run(put_back_table(settings, topic, execute=execute)))
    elif rebuild:
        print(asyncio.run(rebuild_table(settings, topic, execute=execute)))
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
            gone = (await lost_files(opened.stores, opened.cluster, settings, [known])).get(topic)
            if gone is not None:
                view = replace(view, trouble=gone)
            return view, await _lags(opened, settings, known, view), why_not
        if why_not is not None:
            raise Failure(f"topic {topic} has no table: {why_not}")
        trouble = await opened.tables.trouble_of(TopicTable(topic, known.topic_id))
        if trouble is not None:
            raise Failure(f"topic {topic} has no table that can be read: {trouble}")
        raise Failure(f"topic {topic} has no table yet: one is made when it is first compacted")


async def _lags(opened: OpenTables, settings: Settings, topic: Topic, view: TableView) -> list[PartitionLag]:
    expiry = settings.log.producer_expiry_ms
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


# --- which topics have a table, and why others have none; how one is dropped, and one made anew


@dataclass(frozen=True)
class TopicLine:
    topic: str
    table: bool
    why: str | None  # there is none, it is not written, or files of the log are gone


async def find_topic(opened: OpenTables, settings: Settings, name: str) -> Topic:
    record = await opened.stores.metadata.get(keys.CLUSTER_DOMAIN, keys.topic(name))
    if record is None:
        raise Failure(f"there is no topic {name}")
    return decode_topic(name, record.value, settings.topics.defaults)


async def describe_all(settings: Settings) -> list[TopicLine]:
    names, defaults = table_names(settings), settings.topics.defaults
    async with open_tables(settings) as opened:
        tables = {table.topic_id for table in await opened.tables.topics()}
        topics = (await StoredTopics(opened.stores.metadata, defaults).live()).known
        gone = await lost_files(opened.stores, opened.cluster, settings, topics)

        async def line_of(topic: Topic) -> TopicLine:
            there = topic.topic_id in tables
            why = names.why_not(topic, defaults)
            trouble = gone.get(topic.name)
            if why is None and trouble is None:
                by_day = topic.settings.partition_by_day
                trouble = await opened.tables.trouble_of(TopicTable(topic.name, topic.topic_id, by_day))
            missing = None if there else "not compacted yet"
            return TopicLine(topic.name, there, trouble or why or missing)

        return await gather_some(line_of(each) for each in sorted(topics, key=lambda topic: topic.name))


def list_tables(lines: list[TopicLine], *, json: bool) -> None:
    if json:
        print_json([asdict(line) for line in lines])
        return
    print_table(
        ["topic", "table", ""],
        [(line.topic, "yes" if line.table else "no", _words(line)) for line in lines],
    )


def _words(line: TopicLine) -> str:
    return f"not written: {line.why}" if line.table and line.why else line.why or ""


async def drop_table(settings: Settings, name: str, *, execute: bool) -> str:
    """Drop it; what was done, or would be, in a line. Only of a topic that does not become a table: another
    would get it back."""
    async with open_tables(settings) as opened:
        topic = await find_topic(opened, settings, name)
        if table_names(settings).why_not(topic, settings.topics.defaults) is None:
            raise Failure(
                f"the table of {name} would be made again: set dray.iceberg.enabled=false on the topic first"
            )
        if not execute:
            if await opened.tables.view(name) is None:
                raise Failure(f"topic {name} has no table")
            return (
                f"would drop the table of {name}, with its snapshots; the topic and its records stay as they "
                "are; do it with --execute"
            )
        await _must_be_the_cluster(opened, settings)
        if not await opened.tables.drop(TopicTable(name, topic.topic_id)):
            raise Failure(f"topic {name} has no table")
    return f"the table of {name} is dropped; the topic and its records are as they were"


async def rebuild_table(settings: Settings, name: str, *, execute: bool) -> str:
    """Drop the table and make it from the log, which has all files; what was done, or would be, in a line.
    The file of a job under way comes with that job, or the next look of a compactor."""
    async with open_tables(settings) as opened:
        topic = await find_topic(opened, settings, name)
        if (why := table_names(settings).why_not(topic, settings.topics.defaults)) is not None:
            raise Failure(f"topic {name} has no table: {why}")
        keeper = _keeper(opened, settings)
        await keeper.log_files(topic)  # where one is gone, the table may have the last copy of its rows
        if not execute:
            return (
                f"would drop the table of {name}, with its snapshots and what others added, and make it "
                "again from the log's files, which are all there; no record is touched; do it with --execute"
            )
        await _must_be_the_cluster(opened, settings)
        try:
            dropped = await opened.tables.drop(table_of(topic))
        except TableUnreadable:
            dropped = await opened.tables.drop_unreadable(name)
        added = await keeper.restore(topic) or 0
        left = LeftTables(_streams(opened, settings), opened.runtime, opened.tables, keeper)
        added += await left.catch_up(topic) or 0
    was = "made again" if dropped else "made"
    return f"the table of {name} is {was}, with {counted(added, 'file')} of the log"


async def put_back_table(settings: Settings, name: str, *, execute: bool) -> str:
    """Make the table hold the log's files and nothing else, after another writer changed its rows; what was
    done, or would be, in a line."""
    async with open_tables(settings) as opened:
        topic = await find_topic(opened, settings, name)
        keeper = _keeper(opened, settings)
        files = await keeper.log_files(topic)
        changed = await keeper.why_changed(topic)
        if changed is None:
            return f"the table of {name} holds the log's files: there is nothing to put back"
        rows = sum(file.written.record_count for file in files or ())
        what = f"{counted(len(files or ()), 'file')} of the log, {counted(rows, 'row')}"
        if not execute:
            return f"{changed}\nwould hold {what}, and nothing else; do it with --execute"
        await _must_be_the_cluster(opened, settings)
        if not await keeper.put_back(topic):
            raise Failure(
                f"the table of {name} is being changed, or a compaction comes to its end: try again"
            )
    return f"the table of {name} holds {what}"


async def _must_be_the_cluster(opened: OpenTables, settings: Settings) -> None:
    """A copy of the metadata has the catalog of the cluster that it was copied from, and must not change its
    tables. As with all that cannot be taken back, one look is not enough."""
    interval = settings.tally_interval
    keeper = await owned_bucket(opened.stores, opened.cluster, opened.runtime, interval)
    if (reason := await keeper()) is not None:
        raise Failure(reason)


def _streams(opened: OpenTables, settings: Settings) -> StreamStore:
    expiry = settings.log.producer_expiry_ms
    return StreamStore(opened.stores.metadata, opened.cluster.domains, expiry)


def _keeper(opened: OpenTables, settings: Settings) -> TableKeeper:
    streams = _streams(opened, settings)
    return TableKeeper(streams, opened.stores.objects, opened.runtime, opened.tables)
