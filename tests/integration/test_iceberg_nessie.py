"""Tables in Nessie: it numbers the columns of a new table in its own way, chooses the place of its metadata
itself, and tells of the current snapshot alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.services.iceberg_files import TopicFiles
from tests.services.nessie import NessieProcess
from tests.services.s3 import BUCKET, S3Process
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, ours, rows_of

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

pytestmark = [pytest.mark.soak]

PREFIX = "lake"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Process]:
    with S3Process(tmp_path / "s3") as server:
        yield server


@pytest.fixture
async def tables(s3: S3Process, tmp_path: Path) -> AsyncIterator[IcebergTables]:
    runtime = SystemRuntime(threads=4)
    nessie = NessieProcess(tmp_path / "nessie", s3, PREFIX)
    nessie.start(300)
    with nessie:
        places = locations(f"s3://{BUCKET}/{PREFIX}", s3.options(), s3.secrets())
        made = IcebergTables(CatalogSettings("rest", nessie.uri, "dray"), places, CLUSTER, runtime)
        yield made
        await made.close()
    runtime.close()


async def test_committed_read_back_and_committed_once(tables: IcebergTables, s3: S3Process) -> None:
    files = TopicFiles(s3.data / BUCKET / PREFIX)
    await tables.ensure(files.topic)
    old = files.write(0, 0, 10)
    await tables.commit(files.topic, [files.change("100-1", old)], ours)
    merged, fresh = files.write(0, 0, 10), files.write(1, 0, 5)
    changes = [files.change("100-2", merged, removed=(old.path,)), files.change("101-1", fresh)]
    # The second time none of the snapshots says so any more but the last, and the files themselves do.
    for _ in range(2):
        outcomes = await tables.commit(files.topic, changes, ours)
        assert set(outcomes.values()) == {CommitOutcome.COMMITTED}
        assert await tables.current_files(files.topic) == {merged.path, fresh.path}
        assert rows_of(await loaded(tables, files)) == files.records_of({merged.path, fresh.path})
    assert [topic.topic for topic in await tables.topics()] == [files.topic.topic]
    assert await tables.drop(files.topic)
