"""Credentials that change while a process runs: nobody restarts anything."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError
from structlog.testing import capture_logs

from dray.base.runtime import SystemRuntime
from dray.objects.factory import open_store
from dray.objects.remote.credentials import LOOK_SECONDS, RENEW_SECONDS, RenewedClient, SecretFiles
from dray.objects.remote.failures import RemoteFailure
from dray.objects.remote.store import RemoteStore

HIDDEN = "never-to-be-seen"


class ScriptedClock(SystemRuntime):
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Server:
    """Takes one key at a time, and notes with which ones it was asked."""

    def __init__(self) -> None:
        self.good = "first"
        self.asked: list[str] = []
        self.made: list[dict[str, str]] = []
        self.code = "ExpiredToken"

    def client(self, secrets: Mapping[str, str]) -> Any:
        self.made.append(dict(secrets))
        return Client(self, secrets["access_key_id"])


class Client:
    def __init__(self, server: Server, key: str) -> None:
        self._server = server
        self._key = key

    def _check(self) -> None:
        self._server.asked.append(self._key)
        if self._key != self._server.good:
            text = f"Error performing PUT http://s3/b in 1ms - <Code>{self._server.code}</Code>"
            raise (PermissionDeniedError if self._server.code[0] == "I" else GenericError)(text)

    async def put_async(self, path: str, data: Any, **options: Any) -> None:
        await asyncio.sleep(0)
        self._check()

    async def list(self, prefix: str | None, **options: Any) -> AsyncIterator[list[Any]]:
        self._check()
        pages: list[list[Any]] = [[], []]
        for page in pages:
            yield page


@pytest.fixture
def clock() -> Iterator[ScriptedClock]:
    runtime = ScriptedClock()
    yield runtime
    runtime.close()


@pytest.fixture
def files(tmp_path: Path) -> SecretFiles:
    (tmp_path / "access_key_id").write_text("first\n")
    (tmp_path / "..data").mkdir()  # as Kubernetes lays it down
    return SecretFiles(tmp_path, {"session_token": "given", "access_key_id": "never"})


def store_on(server: Server, secrets: Mapping[str, str], clock: ScriptedClock) -> RemoteStore:
    client: Any = RenewedClient(server.client, secrets, clock)
    return RemoteStore(client, clock)


def test_files_are_read_each_time_over_what_is_given(files: SecretFiles, tmp_path: Path) -> None:
    assert dict(files) == {"session_token": "given", "access_key_id": "first"}
    (tmp_path / "access_key_id").write_text("second")
    (tmp_path / "DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY").write_text("other")
    (tmp_path / "DRAY_ICEBERG__SECRETS__TOKEN").write_text("of another setting")
    assert files["access_key_id"] == "second"
    assert len(files) == 3
    assert files["secret_access_key"] == "other", "a Secret may also be made for the environment"
    assert pickle.loads(pickle.dumps(files)) == dict(files), "elsewhere there is no such directory"


async def test_a_directory_that_cannot_be_read_is_one_line(tmp_path: Path, clock: ScriptedClock) -> None:
    for content in (None, b"\xff" + HIDDEN.encode()):
        if content is not None:
            tmp_path.joinpath("x").mkdir()
            tmp_path.joinpath("x", "access_key_id").write_bytes(content)
        with pytest.raises(ValueError, match=r"objects\.secrets_directory: ") as caught:
            await open_store("s3://b", {}, clock, SecretFiles(tmp_path / "x", {}))
        assert HIDDEN not in str(caught.value)


async def test_changed_files_are_used_within_ten_seconds(
    files: SecretFiles, tmp_path: Path, clock: ScriptedClock
) -> None:
    """Before the old ones are refused, too."""
    server = Server()
    store = store_on(server, files, clock)
    await store.put("a", [b"-"])
    (tmp_path / "access_key_id").write_text("second")
    server.good = "second"
    clock.now += LOOK_SECONDS
    with capture_logs() as lines:
        await store.put("a", [b"-"])
    assert server.asked == ["first", "second"]
    assert [line["event"] for line in lines] == ["changed credentials are in use"]
    clock.now += LOOK_SECONDS
    await store.put("a", [b"-"])
    assert len(server.made) == 2, "what did not change makes no new client"


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
async def test_refused_credentials_are_asked_for_again_at_once(
    files: SecretFiles, tmp_path: Path, clock: ScriptedClock, code: str
) -> None:
    """The request does not fail, and of many that are refused at once each is tried again."""
    server = Server()
    server.code = code
    store = store_on(server, files, clock)
    (tmp_path / "access_key_id").write_text("second")
    server.good = "second"
    await asyncio.gather(*[store.put(f"a{number}", [b"-"]) for number in range(20)])
    assert server.asked == ["first"] * 20 + ["second"] * 20
    assert len(server.made) == 2


async def test_what_a_role_gave_is_dropped_when_it_is_refused(clock: ScriptedClock) -> None:
    """A new client asks the machine's role again. It is made seldom where that does not help."""
    server = Server()
    store = store_on(server, {"access_key_id": "first"}, clock)
    server.good = "another"
    for _ in range(10):
        with pytest.raises(RemoteFailure, match="ExpiredToken"):
            await store.put("a", [b"-"])
    assert len(server.made) == 2
    clock.now += RENEW_SECONDS
    with pytest.raises(RemoteFailure, match="ExpiredToken"):
        await store.put("a", [b"-"])
    assert len(server.made) == 3


async def test_other_refusals_make_no_new_client(clock: ScriptedClock) -> None:
    server = Server()
    server.code = "SlowDown"
    store = store_on(server, {"access_key_id": "first"}, clock)
    server.good = "another"
    with pytest.raises(RemoteFailure):
        await store.put("a", [b"-"])
    assert server.asked == ["first"]
    assert len(server.made) == 1


async def test_a_listing_that_is_refused_goes_well_the_next_time(
    files: SecretFiles, tmp_path: Path, clock: ScriptedClock
) -> None:
    server = Server()
    store = store_on(server, files, clock)
    (tmp_path / "access_key_id").write_text("second")
    server.good = "second"
    with pytest.raises(RemoteFailure):
        assert [item async for item in store.list("a")]
    assert [item async for item in store.list("a")] == []


async def test_files_that_cannot_be_read_leave_what_was_read_before(
    files: SecretFiles, tmp_path: Path, clock: ScriptedClock
) -> None:
    server = Server()
    store = store_on(server, files, clock)
    (tmp_path / "access_key_id").write_bytes(b"\xff" + HIDDEN.encode())
    clock.now += LOOK_SECONDS
    with capture_logs() as lines:
        await store.put("a", [b"-"])
    assert server.asked == ["first"]
    assert HIDDEN not in repr(lines)
    assert [line["event"] for line in lines] == ["changed credentials are not used: those from before stay"]
