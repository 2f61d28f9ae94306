"""A real REST catalog behind a door: AWS's signatures and OAuth2 tokens, really made and really checked.

The proxy before the catalog makes each signature again with botocore, from the secret and the bytes that came
over the wire, and turns away what does not match. So signing runs on everything that the tables do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.catalog_guards import SignatureGuard, TokenGuard
from tests.services.iceberg_files import TopicFiles
from tests.services.iceberg_rest import CatalogRequest, Interference, RestCatalogProcess
from tests.services.proxy import TcpProxy
from tests.unit.tables.iceberg.harness import (
    CLUSTER,
    check,
    files,
    first_commit,
    ours,
    places,
    runtime,
)

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome, TableChange, TablesUnavailable
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

__all__ = ["files", "places", "runtime"]

COMMITTED = CommitOutcome.COMMITTED
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION = "eu-central-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogProcess]:
    directory = tmp_path_factory.mktemp("rest")
    with RestCatalogProcess(directory, directory / "warehouse") as process:
        yield process


@pytest.fixture
def guard() -> SignatureGuard:
    return SignatureGuard(KEY, SECRET, REGION, "glue")


@pytest.fixture
def signing(server: RestCatalogProcess, guard: SignatureGuard) -> Iterator[Interference]:
    with Interference(server.port, guard) as proxy:
        yield proxy


@pytest.fixture
def settings(signing: Interference, tmp_path: Path) -> CatalogSettings:
    """In a namespace within a namespace: what stands between them is a character that has to be encoded,
    and encoded once more to be signed."""
    return CatalogSettings(
        "rest",
        signing.uri,
        f"company.{tmp_path.name}",
        secrets={"client.access-key-id": KEY, "client.secret-access-key": SECRET},
        sigv4_region=REGION,
    )


@pytest.fixture
async def tables(
    settings: CatalogSettings, places: Locations, runtime: SystemRuntime
) -> AsyncIterator[IcebergTables]:
    made = IcebergTables(settings, places, CLUSTER, runtime)
    yield made
    await made.close()


async def refused(tables: IcebergTables, files: TopicFiles) -> str:
    """That everything is, in one line that holds no secret."""
    for asked in (tables.ensure(files.topic), tables.live_files(files.topic), tables.topics()):
        with pytest.raises(TablesUnavailable) as caught:
            await asked
        assert "\n" not in str(caught.value)
        assert SECRET not in str(caught.value)
    await tables.close()
    return str(caught.value)


class TestSigned:
    async def test_all_that_tables_do(
        self, tables: IcebergTables, guard: SignatureGuard, files: TopicFiles
    ) -> None:
        await first_commit(tables, files)
        [old] = files.rows
        merged = files.write(0, 0, 3, job=2)
        assert await tables.commit(files.topic, [files.change("100-2", merged, removed=(old,))], ours) == {
            "100-2": COMMITTED
        }
        assert await tables.current_files(files.topic) == {merged.path}
        assert await tables.topics() == [files.topic]
        assert (await tables.maintain(files.topic, [], 2**60)).snapshots_expired == 1
        assert await tables.live_files(files.topic) == {merged.path}
        assert await tables.drop(files.topic)
        assert guard.turned_away == []
        assert guard.let_in > 10

    async def test_a_lost_reply_is_looked_up_and_not_asked_again_by_the_library(
        self, tables: IcebergTables, signing: Interference, guard: SignatureGuard, files: TopicFiles
    ) -> None:
        await first_commit(tables, files)
        signing.lose_reply()
        change = files.change("100-2", files.write(0, 3))
        assert await tables.commit(files.topic, [change], ours) == {"100-2": COMMITTED}
        assert signing.commits == 2
        assert guard.turned_away == []
        await check(tables, files, snapshots=2)

    async def test_two_at_once(
        self,
        tables: IcebergTables,
        settings: CatalogSettings,
        places: Locations,
        runtime: SystemRuntime,
        guard: SignatureGuard,
        files: TopicFiles,
    ) -> None:
        await first_commit(tables, files)
        other = IcebergTables(settings, places, CLUSTER, runtime)
        one, two = files.change("100-2", files.write(0, 3)), files.change("101-1", files.write(1, 0))
        asked = 0

        async def overtaken(_: TableChange) -> bool:
            nonlocal asked
            asked += 1
            if asked == 1:
                assert await other.commit(files.topic, [two], ours) == {"101-1": COMMITTED}
            return True

        assert await tables.commit(files.topic, [one], overtaken) == {"100-2": COMMITTED}
        assert asked == 2, "the first try found its place taken"
        await check(tables, files, snapshots=3)
        assert guard.turned_away == []
        await other.close()

    @pytest.mark.parametrize(
        ("wrong", "line"),
        [
            ({"secrets": {"client.access-key-id": KEY, "client.secret-access-key": "x"}}, "does not match"),
            ({"sigv4_region": "us-east-1"}, "signed for .*/us-east-1/glue/"),
            ({"sigv4_service": "s3tables"}, "signed for .*/s3tables/"),
            ({"sigv4_region": None, "secrets": {"token": "T0K3N"}}, "the request is not signed"),
        ],
    )
    async def test_wrongly(
        self,
        settings: CatalogSettings,
        places: Locations,
        runtime: SystemRuntime,
        files: TopicFiles,
        wrong: dict[str, object],
        line: str,
    ) -> None:
        tables = IcebergTables(replace(settings, **wrong), places, CLUSTER, runtime)  # type: ignore[arg-type]
        assert re.search(line, await refused(tables, files)), "the server's reason is told"

    async def test_without_credentials(
        self,
        settings: CatalogSettings,
        places: Locations,
        runtime: SystemRuntime,
        files: TopicFiles,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        """pyiceberg alone would end in an AttributeError."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        tables = IcebergTables(replace(settings, secrets={}), places, CLUSTER, runtime)
        assert "cannot be signed without AWS credentials" in await refused(tables, files)

    def test_the_guard_notices(self, guard: SignatureGuard) -> None:
        """A good request, and the same with one thing changed."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        made = AWSRequest("POST", "http://catalog:1/v1/namespaces?x=1", data=b"{}")
        SigV4Auth(Credentials(KEY, SECRET), "glue", REGION).add_auth(made)
        headers = {"Host": "catalog:1", **dict(made.headers.items())}
        good = CatalogRequest("POST", "/v1/namespaces?x=1", headers, b"{}")
        assert guard.why_not(good) is None
        old = {**headers, "X-Amz-Date": "20200101T000000Z"}
        for changed in (
            replace(good, method="PUT"),
            replace(good, path="/v1/namespaces?x=2"),
            replace(good, path="/v1/tables?x=1"),
            replace(good, body=b"{ }"),
            replace(good, headers={**headers, "Host": "catalog:2"}),
            replace(good, headers=old),
            replace(good, headers={"Host": "catalog:1"}),
        ):
            assert guard.why_not(changed) is not None


class TestTokens:
    @pytest.fixture
    def guard(self) -> TokenGuard:
        return TokenGuard("compactor", SECRET)

    @pytest.fixture
    def settings(self, signing: Interference, tmp_path: Path) -> CatalogSettings:
        secrets = {"credential": f"compactor:{SECRET}"}
        return CatalogSettings("rest", signing.uri, tmp_path.name, secrets=secrets)

    async def test_a_token_is_fetched_and_renewed(
        self, tables: IcebergTables, signing: Interference, guard: TokenGuard, files: TopicFiles
    ) -> None:
        await first_commit(tables, files)
        assert guard.turned_away == []
        before, given = signing.commits, guard.given
        guard.expire_all()
        change = files.change("100-2", files.write(0, 3))
        assert await tables.commit(files.topic, [change], ours) == {"100-2": COMMITTED}
        assert guard.given == given + 1
        assert signing.commits == before + 1
        await check(tables, files, snapshots=2)

    async def test_a_token_that_ends_just_before_a_commit(
        self, tables: IcebergTables, signing: Interference, guard: TokenGuard, files: TopicFiles
    ) -> None:
        await first_commit(tables, files)

        async def ended(_: TableChange) -> bool:
            guard.expire_all()
            return True

        change = files.change("100-2", files.write(0, 3))
        assert await tables.commit(files.topic, [change], ended) == {"100-2": COMMITTED}
        assert [line for line in guard.turned_away if line.startswith("POST")], "the commit was turned away"
        await check(tables, files, snapshots=2)

    @pytest.mark.parametrize("secrets", [{"credential": "compactor:wrong"}, {"token": "wrong"}, {}])
    async def test_wrongly(
        self,
        settings: CatalogSettings,
        places: Locations,
        runtime: SystemRuntime,
        files: TopicFiles,
        secrets: dict[str, str],
    ) -> None:
        tables = IcebergTables(replace(settings, secrets=secrets), places, CLUSTER, runtime)
        assert "wrong" not in await refused(tables, files)

    async def test_a_server_of_tokens_that_says_nothing(
        self,
        settings: CatalogSettings,
        server: RestCatalogProcess,
        places: Locations,
        runtime: SystemRuntime,
        files: TopicFiles,
    ) -> None:
        """The token is asked for while the session is made: it has a timeout by then."""
        with TcpProxy(server.port) as proxy:
            proxy.freeze()
            silent = replace(
                settings,
                options={"oauth2-server-uri": f"http://{proxy.address}/v1/oauth/tokens"},
                timeout_seconds=0.3,
            )
            tables = IcebergTables(silent, places, CLUSTER, runtime)
            async with asyncio.timeout(60):
                assert "timed out" in await refused(tables, files)
            proxy.thaw()
