"""Tables in a real REST catalog: the suite of the SQL catalog again, and the faults of a network.

The catalog is Iceberg's own test server. It numbers columns itself, checks requirements itself, and writes
the metadata files itself: nothing of that is pyiceberg's word alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.iceberg_files import TopicFiles
from tests.services.iceberg_rest import Interference, RestCatalogProcess
from tests.services.proxy import TcpProxy
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
    test_statistics_are_the_writers_own,
    test_the_files_of_expired_snapshots_are_no_longer_live,
    test_two_at_once_add_each_file_once,
    test_what_was_committed_is_read_back_equal,
    test_who_always_comes_second_is_told_so,
)

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome, TablesUnavailable
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

COMMITTED = CommitOutcome.COMMITTED

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
    "test_statistics_are_the_writers_own",
    "test_the_files_of_expired_snapshots_are_no_longer_live",
    "test_two_at_once_add_each_file_once",
    "test_what_was_committed_is_read_back_equal",
    "test_who_always_comes_second_is_told_so",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogProcess]:
    directory = tmp_path_factory.mktemp("rest")
    with RestCatalogProcess(directory, directory / "warehouse") as process:
        yield process


@pytest.fixture
def settings(server: RestCatalogProcess, tmp_path: Path) -> CatalogSettings:
    """A namespace of its own for each test."""
    return CatalogSettings("rest", server.uri, tmp_path.name, timeout_seconds=5)


@pytest.fixture
def between(server: RestCatalogProcess) -> Iterator[Interference]:
    with Interference(server.port) as proxy:
        yield proxy


@pytest.fixture
async def shaken(
    settings: CatalogSettings, between: Interference, places: Locations, runtime: SystemRuntime
) -> AsyncIterator[IcebergTables]:
    """Tables behind the interference; they wait a second for an answer."""
    made = IcebergTables(replace(settings, uri=between.uri, timeout_seconds=1), places, CLUSTER, runtime)
    yield made
    await made.close()


async def test_a_lost_reply_is_looked_up(
    shaken: IcebergTables, between: Interference, files: TopicFiles
) -> None:
    await first_commit(shaken, files)
    between.lose_reply()
    outcome = await shaken.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert outcome == {"100-2": COMMITTED}
    assert between.commits == 2
    await check(shaken, files, snapshots=2)


async def test_an_answer_that_is_none_is_looked_up(
    shaken: IcebergTables, between: Interference, files: TopicFiles
) -> None:
    await first_commit(shaken, files)
    between.answer_garbage()
    outcome = await shaken.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert outcome == {"100-2": COMMITTED}
    await check(shaken, files, snapshots=2)


async def test_a_lost_request_is_sent_again(
    shaken: IcebergTables, between: Interference, files: TopicFiles
) -> None:
    await first_commit(shaken, files)
    between.lose_request()
    outcome = await shaken.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert outcome == {"100-2": COMMITTED}
    assert between.commits == 3
    await check(shaken, files, snapshots=2)


async def test_a_commit_that_arrives_late_finds_its_place_taken(
    shaken: IcebergTables, between: Interference, files: TopicFiles, runtime: SystemRuntime
) -> None:
    """The client gave up on it, asked again and succeeded; then the first one arrives."""
    await first_commit(shaken, files)
    between.hold_request()
    outcome = await shaken.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert between.held.is_set()
    assert outcome == {"100-2": COMMITTED}
    between.release()
    for number in range(3, 6):
        await shaken.commit(files.topic, [files.change(f"100-{number}", files.write(0, 3 * number))], ours)
    await check(shaken, files, snapshots=5)


async def test_a_catalog_that_is_down(
    server: RestCatalogProcess,
    settings: CatalogSettings,
    places: Locations,
    files: TopicFiles,
    runtime: SystemRuntime,
) -> None:
    """Every call says so in one line, and all goes on when it is back."""
    with TcpProxy(server.port) as proxy:
        tables = IcebergTables(replace(settings, uri=f"http://{proxy.address}"), places, CLUSTER, runtime)
        await first_commit(tables, files)
        change = files.change("100-2", files.write(0, 3))
        proxy.cut()
        for asked in (
            tables.ensure(files.topic),
            tables.commit(files.topic, [change], ours),
            tables.committed(files.topic, ["100-1"]),
            tables.live_files(files.topic),
            tables.live_metadata(files.topic),
            tables.maintain(files.topic, [], 2**60),
            tables.topics(),
            tables.drop(files.topic),
        ):
            with pytest.raises(TablesUnavailable) as caught:
                await asked
            assert str(caught.value).startswith("the rest catalog or the store of its tables failed: ")
            assert "\n" not in str(caught.value)
        proxy.mend()
        assert await tables.commit(files.topic, [change], ours) == {"100-2": COMMITTED}
        await check(tables, files, snapshots=2)
        await tables.close()


async def test_a_catalog_that_says_nothing(
    server: RestCatalogProcess,
    settings: CatalogSettings,
    places: Locations,
    files: TopicFiles,
    runtime: SystemRuntime,
) -> None:
    """A thread is not held for ever: the library alone would wait without end."""
    with TcpProxy(server.port) as proxy:
        slow = replace(settings, uri=f"http://{proxy.address}", timeout_seconds=0.5)
        tables = IcebergTables(slow, places, CLUSTER, runtime)
        await first_commit(tables, files)
        proxy.freeze()
        with pytest.raises(TablesUnavailable, match="timed out"):
            await tables.live_files(files.topic)
        proxy.thaw()
        await tables.close()


async def test_a_token_goes_with_every_request_and_into_no_message(
    settings: CatalogSettings,
    between: Interference,
    places: Locations,
    files: TopicFiles,
    runtime: SystemRuntime,
) -> None:
    guarded = replace(settings, uri=between.uri, secrets={"token": "T0K3N"})
    tables = IcebergTables(guarded, places, CLUSTER, runtime)
    await first_commit(tables, files)
    assert between.authorizations == {"Bearer T0K3N"}
    between.target = 9  # where nobody listens
    with pytest.raises(TablesUnavailable) as caught:
        await tables.live_files(files.topic)
    assert "T0K3N" not in str(caught.value)
    await tables.close()
