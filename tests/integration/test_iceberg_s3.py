"""Tables whose files are in a real S3 server, with TLS: committed, expired, scanned, and asked with SQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from tests.services.certificates import make_certificates
from tests.services.iceberg_files import TopicFiles
from tests.services.s3 import BUCKET, SECRET_KEY, S3Process
from tests.unit.tables.iceberg.harness import loaded, ours, rows_of

from dray.base.runtime.system import SystemRuntime
from dray.broker.cluster.identity import open_cluster
from dray.cli.main import main
from dray.inspection.sql.queries import PAGE, QuerySource, SqlQueries
from dray.metadata.sqlite import SqliteStore
from dray.tables.contract import TablesUnavailable
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

PREFIX = "lake/one"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    directory = tmp_path_factory.mktemp("s3")
    with S3Process(directory, certificates=make_certificates(directory)) as server:
        yield server


@pytest.fixture
def files(s3: S3Process) -> TopicFiles:
    """The server keeps objects as files, so that is where they are put."""
    return TopicFiles(s3.data / BUCKET / PREFIX)


@pytest.fixture
async def cluster_id(tmp_path: Path) -> str:
    runtime = SystemRuntime(threads=2)
    store = SqliteStore(tmp_path / "metadata.sqlite", runtime)
    await store.open()
    cluster = await open_cluster(store, runtime, 1)
    await store.close()
    runtime.close()
    return cluster.cluster_id


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime(threads=4)
    yield runtime
    runtime.close()


@pytest.fixture
async def tables(
    s3: S3Process, tmp_path: Path, cluster_id: str, runtime: SystemRuntime
) -> AsyncIterator[IcebergTables]:
    where = locations(
        f"s3://{BUCKET}/{PREFIX}",
        s3.options(),
        s3.secrets(),
    )
    settings = CatalogSettings("sql", f"sqlite:///{tmp_path / 'catalog.sqlite'}", "dray")
    made = IcebergTables(settings, where, cluster_id, runtime)
    yield made
    await made.close()


async def test_committed_read_back_and_expired(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    old = files.write(0, 0, 10)
    await tables.commit(files.topic, [files.change("100-1", old)], ours)
    merged, fresh = files.write(0, 0, 10), files.write(1, 0, 5)
    await tables.commit(
        files.topic,
        [files.change("100-2", merged, removed=(old.path,)), files.change("101-1", fresh)],
        ours,
    )
    assert await tables.live_files(files.topic) == {old.path, merged.path, fresh.path}
    await tables.maintain(files.topic, [], 2**60)
    assert await tables.live_files(files.topic) == {merged.path, fresh.path}
    table = await loaded(tables, files)
    assert table.location().startswith(f"s3://{BUCKET}/{PREFIX}/iceberg/topic=orders/")
    assert rows_of(table) == files.records_of({merged.path, fresh.path})


async def test_asked_with_sql(
    tables: IcebergTables,
    files: TopicFiles,
    s3: S3Process,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await tables.ensure(files.topic)
    await tables.commit(
        files.topic, [files.change("100-1", files.write(0, 0, 40), files.write(1, 0, 2))], ours
    )
    config = tmp_path / "dray.yaml"
    config.write_text(
        json.dumps(
            {
                "data_dir": str(tmp_path),
                "objects": {
                    "url": f"s3://{BUCKET}/{PREFIX}",
                    "options": s3.options(),
                    "secrets": s3.secrets(),
                },
            }
        )
    )
    sql = (
        "select partition, count(*) n, count(value) v, sum(len(headers)) h from orders group by 1 order by 1"
    )

    def ask() -> None:
        with pytest.raises(SystemExit) as ended:
            main(["query", sql, "-f", "csv", "--config", str(config)])
        assert ended.value.code == 0

    await asyncio.to_thread(ask)
    assert capsys.readouterr().out == "partition,n,v,h\n0,40,35,40\n1,2,2,2\n"


async def test_asked_in_the_consoles_locked_process(
    tables: IcebergTables, files: TopicFiles, s3: S3Process, runtime: SystemRuntime
) -> None:
    """It may write nothing and start nothing; the object store's client has to live with that."""
    await tables.ensure(files.topic)
    written = [files.write(0, 0, 40), files.write(1, 0, 2)]
    await tables.commit(files.topic, [files.change("100-1", *written)], ours)
    where = locations(f"s3://{BUCKET}/{PREFIX}", s3.options(), s3.secrets())

    class Sources:
        needs_network = True

        async def sources(self, _: Sequence[str]) -> list[QuerySource]:
            found = [where.location_of(file.path) for file in written]
            view = "create view orders as select * from files"
            return [QuerySource(view, (), "files", found, dict(where.properties))]

    sql = "select partition, count(value) from orders group by 1 order by 1"
    async with SqlQueries(runtime).run(sql, PAGE, Sources()) as running:
        assert [row async for row in running.rows] == [[0, 35], [1, 2]]


async def test_a_store_that_is_down(tables: IcebergTables, files: TopicFiles, s3: S3Process) -> None:
    """Last, since it takes the server down. What was asked is said not to have been done."""
    await tables.ensure(files.topic)
    file = files.write(0, 0)
    s3.kill()
    with pytest.raises(TablesUnavailable) as caught:
        await tables.commit(files.topic, [files.change("100-1", file)], ours)
    assert "the sql catalog or the store of its tables failed: " in str(caught.value)
    assert SECRET_KEY not in str(caught.value)
