"""Whose table it is, and whether it can still be written: the rules for a table that others may have
changed."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from dray.tables.contract import TopicTable
from dray.tables.iceberg.history import why_diverged
from dray.tables.iceberg.schema import (
    CLUSTER_ID,
    SCHEMA_VERSION,
    TOPIC,
    TOPIC_ID,
    VERSION,
    find_spec,
    why_unfit,
)

_FORMAT: Final = 2


def topic_of(metadata: TableMetadata, cluster_id: str) -> TopicTable | None:
    """The topic that a table of this cluster says it belongs to; None for any other table."""
    properties = metadata.properties
    name, number = properties.get(TOPIC), properties.get(TOPIC_ID)
    if properties.get(CLUSTER_ID) != cluster_id or not name or not number:
        return None
    try:
        topic_id = UUID(number)
    except ValueError:
        return None
    return TopicTable(name, topic_id, find_spec(metadata, day_partitioned=True) is not None)


def is_of(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> bool:
    found = topic_of(metadata, cluster_id)
    return found is not None and (found.topic, found.topic_id) == (topic.topic, topic.topic_id)


def why_refused(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> str | None:
    """One line for the operator, or None if the table can be written."""
    properties = metadata.properties
    if TOPIC_ID not in properties:
        return (
            f"it is not of this cluster ({TOPIC_ID} is not among its properties); rename it, "
            "set the property back, or choose another iceberg.namespace"
        )
    if properties.get(CLUSTER_ID) != cluster_id:
        return (
            f"it belongs to the cluster {properties.get(CLUSTER_ID)}, and this one is {cluster_id}; "
            "choose another iceberg.namespace"
        )
    if not is_of(metadata, topic, cluster_id):
        return (
            f"it belongs to the topic id {properties[TOPIC_ID]}, and {topic.topic} is {topic.topic_id} now; "
            "the table of the deleted topic has to be dropped first"
        )
    if properties.get(VERSION) != SCHEMA_VERSION:
        return f"its schema version is {properties.get(VERSION)}, and this program knows {SCHEMA_VERSION}"
    if metadata.format_version != _FORMAT:
        return (
            f"its format was changed to version {metadata.format_version}, and this program writes version 2"
        )
    unfit = why_unfit(metadata)
    if unfit is not None:
        return f"{unfit}; set the schema back, or drop the table, and it is made again"
    if find_spec(metadata, topic.day_partitioned) is None:
        how = "partition and day" if topic.day_partitioned else "partition"
        return f"it is not partitioned by {how}, as the topic is; drop the table, and it is made again"
    return why_diverged(metadata, cluster_id)


def mended_properties(metadata: TableMetadata) -> dict[str, str]:
    """The properties to set back so that no other program's maintenance deletes files of the log."""
    wanted = {"gc.enabled": "false"}
    return {name: value for name, value in wanted.items() if metadata.properties.get(name) != value}
