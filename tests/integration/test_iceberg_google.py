"""Tables on Google's cloud, with the credentials of docs/operations/stores.md: a service account's key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.services.google import BUCKET, GoogleStore
from tests.services.iceberg_files import TopicFiles
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, ours

from dray.base.runtime.system import SystemRuntime
from dray.objects import open_store
from dray.tables.contract import TablesUnavailable
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

URL = f"gs://{BUCKET}/lake"


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    made = SystemRuntime(threads=4)
    yield made
    made.close()


async def test_committed_and_expired(tmp_path: Path, runtime: SystemRuntime) -> None:
    files = TopicFiles(tmp_path)
    with GoogleStore() as google:
        settings = CatalogSettings("sql", f"sqlite:///{tmp_path / 'catalog.sqlite'}", "dray")
        places = locations(URL, google.options(), google.secrets())
        tables = IcebergTables(settings, places, CLUSTER, runtime)
        await tables.ensure(files.topic)
        for number in range(3):
            file = files.write(0, number * 10, 10, real=False)
            await tables.commit(files.topic, [files.change(f"100-{number}", file)], ours)
        await tables.maintain(files.topic, [], 2**60)
        assert await tables.live_files(files.topic) == {file.path for file in files.written}
        assert (await loaded(tables, files)).location().startswith(f"{URL}/iceberg/topic=orders/")
        # What the table needs is there, and nothing else.
        store = await open_store(URL, google.options(), runtime, google.secrets())
        found = {each.path async for each in store.list("iceberg")}
        assert found == await tables.live_metadata(files.topic)
        await store.close()
        await tables.close()


async def test_another_accounts_key_is_refused(tmp_path: Path, runtime: SystemRuntime) -> None:
    files = TopicFiles(tmp_path)
    with GoogleStore() as google:
        settings = CatalogSettings("sql", f"sqlite:///{tmp_path / 'catalog.sqlite'}", "dray")
        key = google.secrets()["service_account_key"].replace("dray@", "other@")
        places = locations(URL, google.options() | {"retries": "0"}, {"service_account_key": key})
        tables = IcebergTables(settings, places, CLUSTER, runtime)
        with pytest.raises(TablesUnavailable, match="access is refused") as caught:
            await tables.ensure(files.topic)
        assert "PRIVATE KEY" not in str(caught.value)
        await tables.close()
