"""`<topic>$latest`: the state that a topic stands for, from the rows of its table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.tables.iceberg.duckdb_views import QueryRefused, latest_statement
from dray.tables.iceberg.view import Column

NAMES = {"partition": "partition", "key": "key", "offset": "offset", "value": "payload"}


def view(**without: str) -> Any:
    columns = [Column(name, source, "binary") for source, name in NAMES.items() if source not in without]
    return SimpleNamespace(topic="my orders", name="dray.my orders", columns=columns)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from([None, b"", b"a", b"b"]), st.sampled_from([None, b"1", b"2"])
    ),
    max_size=20,
)


@settings(max_examples=30, deadline=None)
@given(ROWS)
def test_it_is_what_a_reader_from_the_start_ends_with(
    rows: list[tuple[int, bytes | None, bytes | None]],
) -> None:
    state: dict[tuple[int, bytes], tuple[int, bytes]] = {}
    with duckdb.connect() as connection:
        connection.execute(
            'create table "my orders" (partition integer, "offset" bigint, key blob, payload blob)'
        )
        for offset, (partition, key, value) in enumerate(rows):
            connection.execute('insert into "my orders" values (?, ?, ?, ?)', [partition, offset, key, value])
            if key is not None:
                state.pop((partition, key), None)
                if value is not None:
                    state[partition, key] = offset, value
        connection.execute(latest_statement(view()))
        found = connection.execute(
            'select partition, key, "offset", payload from "my orders$latest"'
        ).fetchall()
    assert {(row[0], row[1]): row[2:] for row in found} == state
    assert len(found) == len(state)


def test_a_table_without_its_keys_has_no_latest_rows() -> None:
    with pytest.raises(QueryRefused, match="no column key any more"):
        latest_statement(view(key="gone"))
