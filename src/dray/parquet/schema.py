"""The ids of the table's columns, and the schema of its files with these ids.

Iceberg knows columns by id, never by name: a file that says which column is which survives every later
change of the table. The ids are those that Iceberg itself gives to a new table of this schema: the columns
in their order first, then what is nested in them. They are fixed for ever: a file once written keeps them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from dray.records.arrow import schema

if TYPE_CHECKING:
    import pyarrow

FIELD_IDS: Final = {
    "partition": 1,
    "offset": 2,
    "timestamp": 3,
    "key": 4,
    "value": 5,
    "headers": 6,
    "producer_id": 7,
    "producer_epoch": 8,
    "base_sequence": 9,
    "attributes": 10,
}
HEADER_ID: Final = 11  # the element of the list
HEADER_KEY_ID: Final = 12
HEADER_VALUE_ID: Final = 13

# By the path that a Parquet file has for a column that holds values.
LEAF_IDS: Final = {
    **{name: number for name, number in FIELD_IDS.items() if name != "headers"},
    "headers.list.element.key": HEADER_KEY_ID,
    "headers.list.element.value": HEADER_VALUE_ID,
}


@cache
def file_schema() -> pyarrow.Schema:
    """`records.arrow.schema`, each field with its id."""
    import pyarrow as pa

    def marked(field: pyarrow.Field, number: int) -> pyarrow.Field:
        return field.with_metadata({"PARQUET:field_id": str(number)})

    fields = []
    for field in schema():
        if field.name == "headers":
            header = field.type.value_field
            parts = [
                marked(part, number)
                for part, number in zip(header.type, (HEADER_KEY_ID, HEADER_VALUE_ID), strict=True)
            ]
            element = marked(header.with_type(pa.struct(parts)), HEADER_ID)
            field = field.with_type(pa.list_(element))  # noqa: PLW2901
        fields.append(marked(field, FIELD_IDS[field.name]))
    return pa.schema(fields)
