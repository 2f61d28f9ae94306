"""Which topics have a table and why others have none, for `drayd admin table`; and how a table is dropped."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from dray.cli.output import print_json, print_table
from dray.config import Settings
from dray.daemon.catalogs import OpenTables, open_tables
from dray.daemon.failures import Failure
from dray.daemon.store_settings import table_names
from dray.metadata import keys
from dray.tables.contract import TopicTable
from dray.topics.live import StoredTopics
from dray.topics.model import Topic, decode_topic


@dataclass(frozen=True)
class TopicLine:
    topic: str
    table: bool
    why: str | None  # there is none, or it is not written any more


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
    lines = []
    for topic in sorted(topics, key=lambda topic: topic.name):
        there = topic.topic_id in tables
        why = names.why_not(topic, defaults)
        lines.append(TopicLine(topic.name, there, why or (None if there else "not compacted yet")))
    return lines


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


async def drop_table(settings: Settings, name: str) -> str:
    """What was done, in a line. Only of a topic that does not become a table: another would get it back."""
    async with open_tables(settings) as opened:
        topic = await find_topic(opened, settings, name)
        if table_names(settings).why_not(topic, settings.topics.defaults) is None:
            raise Failure(
                f"the table of {name} would be made again: set dray.iceberg.enabled=false on the topic first"
            )
        if not await opened.tables.drop(TopicTable(name, topic.topic_id)):
            raise Failure(f"topic {name} has no table")
    return f"the table of {name} is dropped; the topic and its records are as they were"
