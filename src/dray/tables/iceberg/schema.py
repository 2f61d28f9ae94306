"""The table of a topic: its columns, partitions and properties, and whether a table still fits them.

Parquet files carry the field ids below, so a table is only of use if it has the very same ones. Catalogs
number fields on their own when a table is made; the ids are those that Iceberg's rule gives: the columns
first, then what is nested in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from dray.tables.iceberg.view import CLUSTER_ID, TOPIC, TOPIC_ID

PARTITION: Final = 1
OFFSET: Final = 2
TIMESTAMP: Final = 3

SCHEMA_VERSION: Final = "1"

VERSION: Final = "dray.schema_version"
JOBS: Final = "dray.jobs"
PUT_BACK: Final = "dray.put_back"
"""Of a snapshot that holds exactly the log's files again, after another writer had changed the table."""
CLEAN: Final = "dray.clean."
"""With a partition behind it: the offset below which no key has two rows of that partition."""

_HEADER: Final = StructType(
    NestedField(12, "key", StringType(), required=True),
    NestedField(13, "value", BinaryType(), required=False),
)
COLUMNS: Final = Schema(
    NestedField(PARTITION, "partition", IntegerType(), required=True, doc="Kafka partition"),
    NestedField(OFFSET, "offset", LongType(), required=True, doc="Kafka offset"),
    NestedField(TIMESTAMP, "timestamp", TimestamptzType(), required=True, doc="Kafka record timestamp"),
    NestedField(4, "key", BinaryType(), required=False),
    NestedField(5, "value", BinaryType(), required=False),
    NestedField(
        6,
        "headers",
        ListType(element_id=11, element=_HEADER, element_required=True),
        required=True,
        doc="in order, with duplicates",
    ),
    NestedField(7, "producer_id", LongType(), required=False),
    NestedField(8, "producer_epoch", IntegerType(), required=False),
    NestedField(9, "base_sequence", IntegerType(), required=False),
    NestedField(10, "attributes", IntegerType(), required=True, doc="of the record batch, codec bits clear"),
)

_BY_PARTITION: Final = PartitionField(PARTITION, 1000, IdentityTransform(), "partition")
_BY_DAY: Final = PartitionField(TIMESTAMP, 1001, DayTransform(), "timestamp_day")
# A type of ours may have been widened to the one beside it: Iceberg allows that, and reads files of both.
_WIDER: Final[dict[IcebergType, IcebergType]] = {IntegerType(): LongType()}


def partition_spec(day_partitioned: bool) -> PartitionSpec:
    return PartitionSpec(*((_BY_PARTITION, _BY_DAY) if day_partitioned else (_BY_PARTITION,)))


def properties(topic: str, topic_id: UUID, cluster_id: str, metadata_versions: int) -> dict[str, str]:
    return {
        TOPIC: topic,
        TOPIC_ID: str(topic_id),
        CLUSTER_ID: cluster_id,
        VERSION: SCHEMA_VERSION,
        "format-version": "2",
        # The log reads the same files: no engine may delete one because the table no longer needs it.
        "gc.enabled": "false",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(metadata_versions),
        "write.parquet.compression-codec": "zstd",
    }


def find_spec(metadata: TableMetadata, day_partitioned: bool) -> PartitionSpec | None:
    """The table's own spec of that form, whether or not it is the default one: files keep going there when
    the owner of the table lets other writers use another. Field ids are the catalog's to choose."""
    wanted = _form(partition_spec(day_partitioned))
    for spec in metadata.partition_specs:
        if _form(spec) == wanted:
            return spec
    return None


def why_unfit(metadata: TableMetadata) -> str | None:
    """The fault of a table's columns, or None. Columns that were added, renamed, reordered, widened or made
    optional are no problem: files are read by field id."""
    schema = metadata.schema()
    for field, path in _walk(COLUMNS.as_struct(), ""):
        try:
            found = schema.find_field(field.field_id)
        except ValueError:
            return f"its column {path} (field id {field.field_id}) is gone"
        if not _same(field.field_type, found.field_type):
            return (
                f"its column {path} (field id {field.field_id}) is {found.field_type}, not {field.field_type}"
            )
        if found.required and not field.required:
            return f"its column {path} (field id {field.field_id}) is required now, and records may lack it"
    for field in schema.fields:
        if field.required and field.field_id not in _OUR_IDS and field.initial_default is None:
            return f"its added column {field.name} is required, and files of the log do not have it"
    return None


def _walk(struct: StructType, prefix: str) -> Iterator[tuple[NestedField, str]]:
    for field in struct.fields:
        yield field, prefix + field.name
        if isinstance(field.field_type, ListType) and isinstance(field.field_type.element_type, StructType):
            yield field.field_type.element_field, f"{prefix}{field.name}.element"
            yield from _walk(field.field_type.element_type, f"{prefix}{field.name}.")


def _same(ours: IcebergType, found: IcebergType) -> bool:
    """Nested types are compared field by field on the way, so here only their shape counts."""
    if isinstance(ours, ListType | StructType):
        return type(ours) is type(found)
    return found in (ours, _WIDER.get(ours))


def _form(spec: PartitionSpec) -> list[tuple[int, str]]:
    return [(field.source_id, str(field.transform)) for field in spec.fields]


_OUR_IDS: Final = frozenset(field.field_id for field, _ in _walk(COLUMNS.as_struct(), ""))
