"""The documented SQL for the latest row of every key equals the log's own state, at every snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.services import compaction_cluster
from tests.services.keyed_lake import BY_ROUNDS, KeyedLake, SnapshotState, documented
from tests.services.marks import longer

assert compaction_cluster  # its tests run on virtual time: see conftest


@pytest.mark.parametrize("seed", [1, *(longer(seed) for seed in range(2, 20))])
async def test_duckdb_says_what_the_log_stands_for(tmp_path: Path, seed: int) -> None:
    await check(tmp_path, await KeyedLake(tmp_path, "orders", Random(seed)).grow(12))


@pytest.mark.parametrize("seed", [1, *(longer(seed) for seed in range(2, 20))])
async def test_duckdb_says_so_of_a_stream_that_is_cleaned_in_rounds(tmp_path: Path, seed: int) -> None:
    await check(tmp_path, await KeyedLake(tmp_path, "orders", Random(seed), BY_ROUNDS).grow(12))


async def check(tmp_path: Path, states: Sequence[SnapshotState]) -> None:
    assert {"append", "delete"} <= {each.operation for each in states}, "files came, and rows left"
    assert any(each.least_clean_point for each in states)
    catalog = SqlCatalog("dray", uri=f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    table = catalog.load_table(("lake", "orders"))
    for each in states:
        with duckdb.connect() as connection:
            connection.register("orders", table.scan(snapshot_id=each.snapshot_id).to_arrow())
            statements = [documented(0, "orders")]
            if each.least_clean_point is not None:
                statements.append(documented(1, "orders", clean_point=each.least_clean_point))
            for statement in statements:
                chosen = f'select "partition", "key", "offset", "value" from ({statement})'
                rows = connection.execute(chosen).fetchall()
                found = {(row[0], row[1]): (row[2], row[3]) for row in rows}
                assert (found, len(rows)) == (each.state, len(each.state)), statement
    catalog.close()
