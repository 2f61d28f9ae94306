"""Tables in a Glue catalog, through boto3 and pyiceberg: against a mock of Glue (moto), with what that means.

The suite of the other catalogs runs again, and the faults of a network. Requests pass a proxy that checks
their signatures, as AWS does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from tests.services.catalog_guards import SignatureGuard
from tests.services.glue import REGION, glue_server
from tests.services.iceberg_files import TopicFiles
from tests.services.iceberg_rest import CatalogRequest, Interference
from tests.unit.tables.iceberg.harness import (
    CLUSTER,
    check,
    files,
    first_commit,
    ours,
    places,
    runtime,
    tables,
)

# The same tests, on this module's settings.
from tests.unit.tables.iceberg.suite import (
    test_a_job_is_committed_once,
    test_a_table_is_dropped_for_its_own_topic_only,
    test_commits_need_a_table,
    test_each_kind_of_change_is_a_snapshot_of_one_commit,
    test_old_snapshots_go_and_the_rows_stay,
    test_ownership_is_asked_after_the_table_was_loaded,
    test_rewriting_files_changes_no_row,
    test_two_at_once_add_each_file_once,
    test_what_was_committed_is_read_back_equal,
    test_who_always_comes_second_is_told_so,
)

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome, TableRefused, TablesUnavailable, TopicTable
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

COMMITTED = CommitOutcome.COMMITTED
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

__all__ = [
    "files",
    "places",
    "runtime",
    "tables",
    "test_a_job_is_committed_once",
    "test_a_table_is_dropped_for_its_own_topic_only",
    "test_commits_need_a_table",
    "test_each_kind_of_change_is_a_snapshot_of_one_commit",
    "test_old_snapshots_go_and_the_rows_stay",
    "test_ownership_is_asked_after_the_table_was_loaded",
    "test_rewriting_files_changes_no_row",
    "test_two_at_once_add_each_file_once",
    "test_what_was_committed_is_read_back_equal",
    "test_who_always_comes_second_is_told_so",
]


@pytest.fixture(scope="module")
def glue() -> Iterator[int]:
    with glue_server() as port:
        yield port


@pytest.fixture
def guard() -> SignatureGuard:
    return SignatureGuard(KEY, SECRET, REGION, "glue")


@pytest.fixture
def between(glue: int, guard: SignatureGuard) -> Iterator[Interference]:
    with Interference(glue, guard) as proxy:
        yield proxy


@pytest.fixture
def settings(between: Interference) -> CatalogSettings:
    return CatalogSettings(
        "glue",
        None,
        f"lake-{uuid4().hex[:8]}",
        {"glue.region": REGION, "glue.endpoint": between.uri},
        {"glue.access-key-id": KEY, "glue.secret-access-key": SECRET},
    )


@pytest.fixture
def client(settings: CatalogSettings) -> object:
    """Of the owner of the database."""
    return boto3.client(
        "glue",
        region_name=REGION,
        endpoint_url=settings.options["glue.endpoint"],
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )


async def test_every_request_is_signed(
    tables: IcebergTables, guard: SignatureGuard, files: TopicFiles
) -> None:
    await first_commit(tables, files)
    assert await tables.topics() == [files.topic]
    assert guard.turned_away == []
    assert guard.let_in > 5


async def test_a_lost_reply_is_looked_up_and_not_asked_again_by_the_library(
    tables: IcebergTables, between: Interference, files: TopicFiles
) -> None:
    await first_commit(tables, files)
    between.lose_reply()
    outcome = await tables.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert outcome == {"100-2": COMMITTED}
    assert between.commits == 2
    await check(tables, files, snapshots=2)


async def test_a_lost_request_is_sent_again(
    tables: IcebergTables, between: Interference, files: TopicFiles
) -> None:
    await first_commit(tables, files)
    between.lose_request()
    outcome = await tables.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert outcome == {"100-2": COMMITTED}
    assert between.commits == 3
    await check(tables, files, snapshots=2)


async def test_a_commit_that_arrives_late_finds_its_place_taken(
    tables: IcebergTables,
    settings: CatalogSettings,
    places: Locations,
    runtime: SystemRuntime,
    between: Interference,
    files: TopicFiles,
) -> None:
    """The client gave up on it, asked again and succeeded; then the first one arrives, with a version that
    the table has left behind. boto3's own timeout would be a minute."""
    await first_commit(tables, files)
    hasty = IcebergTables(replace(settings, timeout_seconds=5), places, CLUSTER, runtime)
    between.hold_request()
    outcome = await hasty.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    await hasty.close()
    assert between.held.is_set()
    assert outcome == {"100-2": COMMITTED}
    assert between.commits >= 3, "the one that is held was given up"
    between.release()
    for number in range(3, 6):
        await tables.commit(files.topic, [files.change(f"100-{number}", files.write(0, 3 * number))], ours)
    await check(tables, files, snapshots=5)


async def test_wrong_secrets_are_one_line_without_them(
    settings: CatalogSettings, places: Locations, runtime: SystemRuntime, files: TopicFiles
) -> None:
    wrong = replace(settings, secrets={**settings.secrets, "glue.secret-access-key": "hunter2"})
    tables = IcebergTables(wrong, places, CLUSTER, runtime)
    with pytest.raises(TablesUnavailable) as caught:
        await tables.ensure(files.topic)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    await tables.close()


async def test_a_table_of_another_kind_is_refused(
    tables: IcebergTables, settings: CatalogSettings, client: object, files: TopicFiles
) -> None:
    """Glue has Hive's tables under the same names."""
    client.create_database(DatabaseInput={"Name": settings.namespace})  # type: ignore[attr-defined]
    for name, parameters in (("orders", {}), ("payments", {"table_type": "HUDI"})):
        table = {"Name": name, "Parameters": parameters}
        client.create_table(DatabaseName=settings.namespace, TableInput=table)  # type: ignore[attr-defined]
        topic = TopicTable(name, files.topic.topic_id)
        with pytest.raises(TableRefused, match=rf"{name}: it is no Iceberg table; rename or drop it, or"):
            await tables.ensure(topic)
    assert await tables.topics() == []


async def test_a_database_of_s3_tables_is_refused(
    tables: IcebergTables, between: Interference, guard: SignatureGuard, files: TopicFiles
) -> None:
    """Those keep their files where they want: the log has to know where."""
    federated = {"ConnectionType": "aws:s3tables"}
    database = json.dumps({"Database": {"Name": "lake", "FederatedDatabase": federated}}).encode()

    def answer(request: CatalogRequest) -> tuple[int, bytes] | None:
        of_database = request.headers.get("X-Amz-Target") == "AWSGlue.GetDatabase"
        return (200, database) if of_database else guard(request)

    between.guard = answer
    with pytest.raises(TableRefused, match="orders: the catalog does not make it: Cannot specify a location"):
        await tables.ensure(files.topic)


async def test_where_glue_is_not_said(
    settings: CatalogSettings,
    places: Locations,
    runtime: SystemRuntime,
    files: TopicFiles,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    tables = IcebergTables(replace(settings, options={}), places, CLUSTER, runtime)
    with pytest.raises(TablesUnavailable, match="the catalog cannot be opened: You must specify a region"):
        await tables.ensure(files.topic)
