"""Tables in a catalog that vends credentials, on a real S3 server."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from tests.services.iceberg_files import TopicFiles
from tests.services.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Process
from tests.services.vending_catalog import VendingCatalog
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, ours, rows_of

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import TablesUnavailable
from dray.tables.iceberg.catalogs import open_catalog
from dray.tables.iceberg.locations import Locations, locations
from dray.tables.iceberg.schema import COLUMNS
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

WRONG = "the object store has other credentials"
VENDED = {
    "s3.access-key-id": ACCESS_KEY,
    "s3.secret-access-key": SECRET_KEY,
    "s3.endpoint": "http://127.0.0.1:1",
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def files(s3: S3Process) -> TopicFiles:
    return TopicFiles(s3.data / BUCKET / "lake")


@pytest.fixture
def behind(s3: S3Process, tmp_path: Path) -> Catalog:
    settings = CatalogSettings("sql", f"sqlite:///{tmp_path / 'catalog.sqlite'}", "dray")
    return open_catalog(settings, place(s3, SECRET_KEY))


def place(s3: S3Process, secret: str) -> Locations:
    secrets = {"access_key_id": ACCESS_KEY, "secret_access_key": secret}
    return locations(f"s3://{BUCKET}/lake", s3.options() | {"retries": "0"}, secrets)


@pytest.fixture
async def tables(s3: S3Process, behind: Catalog) -> AsyncIterator[IcebergTables]:
    runtime = SystemRuntime(threads=4)
    with VendingCatalog(behind, VENDED) as catalog:
        settings = CatalogSettings("rest", catalog.uri, "dray")
        made = IcebergTables(settings, place(s3, WRONG), CLUSTER, runtime)
        yield made
        await made.close()
    runtime.close()


async def test_metadata_is_written_with_what_was_vended_and_data_is_not_read_with_it(
    tables: IcebergTables, behind: Catalog, files: TopicFiles
) -> None:
    """The endpoint stays the object store's: a catalog may see it under another address."""
    await tables.ensure(files.topic)
    file = files.write(0, 0, 10)
    await tables.commit(files.topic, [files.change("100-1", file)], ours)
    assert await tables.live_files(files.topic) == {file.path}
    with pytest.raises(TablesUnavailable, match="access is refused") as caught:
        await tables.rows(files.topic.topic, 0, 0, 10)
    assert WRONG not in str(caught.value)
    table = copy.copy(await loaded(tables, files))
    table.io = behind._load_file_io()
    assert rows_of(table) == files.records_of({file.path})


async def test_columns_have_the_ids_that_the_files_have(tables: IcebergTables, files: TopicFiles) -> None:
    state = await tables.ensure(files.topic)
    assert state.created
    table = await loaded(tables, files)
    assert [field.field_id for field in table.schemas()[1].fields] != list(range(1, 11))
    assert table.schema().fields == COLUMNS.fields
    assert not (await tables.ensure(files.topic)).created
    assert len((await loaded(tables, files)).schemas()) == 3
