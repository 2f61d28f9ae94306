"""Objects on a real S3 server: what the contract's own suite does not ask, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from structlog.testing import capture_logs
from tests.services.certificates import Certificates, make_certificates
from tests.services.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Process
from tests.services.s3_proxy import (
    INTERNAL_ERROR,
    SLOW_DOWN,
    Answer,
    Bent,
    Cut,
    Fault,
    Late,
    S3Proxy,
    Silence,
    s3_proxy,
)

from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.stores import _say_what_is_kept
from dray.objects import ObjectError, ObjectExists, ObjectMissing, ObjectStore, open_store
from dray.objects.remote.credentials import SecretFiles
from dray.objects.remote.second_tries import UsualTimes
from dray.objects.remote.store import keeps_no_versions

MIB = 1024 * 1024

Opener = Callable[..., Awaitable[ObjectStore]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3-tls"), certificates=certificates) as server:
        yield server


@pytest.fixture
async def proxy(server: S3Process) -> AsyncIterator[S3Proxy]:
    async with s3_proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def opened(server: S3Process) -> AsyncIterator[Opener]:
    """`await opened(options..., on=server)`: a store under a prefix of its own."""
    runtime = SystemRuntime()
    stores: list[ObjectStore] = []

    async def opened(
        *,
        on: S3Process = server,
        secrets: dict[str, str] | None = None,
        check: bool = False,
        patience: float | None = None,
        **options: str,
    ) -> ObjectStore:
        given = on.secrets() if secrets is None else secrets
        url = f"s3://{BUCKET}/{uuid4().hex}"
        store = await open_store(url, on.options() | options, runtime, given, check=check, patience=patience)
        stores.append(store)
        return store

    yield opened
    for store in stores:
        await store.close()
    runtime.close()


async def test_a_bucket_without_versions_is_known(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another program deletes in it cannot be put back: brokers and compactors say so."""
    with capture_logs() as said:
        _say_what_is_kept(await opened(check=True))
    assert [line["event"].partition(":")[0] for line in said] == ["the bucket keeps no versions"]
    assert not keeps_no_versions(await opened()), "it was not tried"
    versions = tmp_path / "versions"
    versions.mkdir()
    monkeypatch.setenv("VGW_VERSIONING_DIR", str(versions))
    with S3Process(tmp_path / "versioned") as versioned:
        client = boto3.client(
            "s3",
            endpoint_url=versioned.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        assert not keeps_no_versions(await opened(check=True, on=versioned))


async def test_a_large_object_goes_up_in_parts_and_comes_back_in_ranges(
    opened: Opener, proxy: S3Proxy
) -> None:
    store = await opened(endpoint=proxy.endpoint, multipart_threshold="6000000", part_size=str(5 * MIB))
    data = os.urandom(12 * MIB)
    parts = [memoryview(data)[start : start + 100_000] for start in range(0, len(data), 100_000)]
    await store.put("large", parts)
    assert [request.method for request in proxy.requests].count("PUT") == 3
    assert bytes(await store.get("large")) == data
    assert await store.get_ranges("large", [(5 * MIB - 10, 20)]) == [data[5 * MIB - 10 : 5 * MIB + 10]]


# --- TLS, and what is signed


@pytest.mark.parametrize("unsigned", ["true", "false"])
async def test_over_tls_with_and_without_a_signed_payload(
    opened: Opener, tls_server: S3Process, unsigned: str
) -> None:
    store = await opened(on=tls_server, unsigned_payload=unsigned)
    await store.put("a/b", [b"over ", b"TLS"])
    await store.put_if_absent("a/c", [b"x"])
    assert bytes(await store.get("a/b")) == b"over TLS"


async def test_a_certificate_of_an_unknown_authority_is_refused(
    opened: Opener, tls_server: S3Process
) -> None:
    options = tls_server.options()
    del options["ca_file"]
    runtime = SystemRuntime()
    store = await open_store(f"s3://{BUCKET}/x", options | {"retries": "0"}, runtime, tls_server.secrets())
    with pytest.raises(ObjectError, match="InvalidCertificate UnknownIssuer"):
        await store.put("a", [b"x"])
    await store.close()
    runtime.close()


async def test_the_payload_is_signed_unless_told_otherwise(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint)
    await store.put("a", [b"x"])
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # SHA-256 of "x"
    assert proxy.requests[-1].headers["x-amz-content-sha256"] == digest


async def test_path_style_and_virtual_hosts(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint, path_style="true")
    await store.put("some/name", [b"x"])
    assert proxy.requests[-1].target.startswith(f"/{BUCKET}/")
    assert proxy.requests[-1].target.endswith("/some/name")
    # With virtual hosts the endpoint is the bucket's own, and the path holds the key alone.
    proxy.always = SLOW_DOWN
    store = await opened(endpoint=proxy.endpoint, path_style="false", retries="0")
    with pytest.raises(ObjectError, match="SlowDown"):
        await store.put("some/name", [b"x"])
    assert BUCKET not in proxy.requests[-1].target


# --- credentials


async def test_credentials_from_the_environment(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, proxy: S3Proxy
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    store = await opened(endpoint=proxy.endpoint, secrets={})
    await store.put("a", [b"x"])
    assert bytes(await store.get("a")) == b"x"
    authorization = proxy.requests[-1].headers["authorization"]
    assert f"Credential={ACCESS_KEY}/" in authorization
    assert "/eu-test-1/s3/" in authorization


class Rotated(S3Process):
    """Whose only key is another one after each start."""

    starts = 0

    def environment(self) -> Mapping[str, str]:
        self.starts += 1
        return {**super().environment(), "ROOT_SECRET_ACCESS_KEY": f"key-{self.starts}"}

    def write_key(self, directory: Path) -> None:
        (directory / "access_key_id").write_text(ACCESS_KEY)
        (directory / "secret_access_key").write_text(f"key-{self.starts}\n")


async def test_a_key_that_is_no_good_any_more_is_read_again_at_once(tmp_path: Path) -> None:
    runtime = SystemRuntime()
    keys = tmp_path / "keys"
    keys.mkdir()
    with Rotated(tmp_path / "s3") as server:
        server.write_key(keys)
        url, options = f"s3://{BUCKET}/rotated", server.options() | {"retries": "2", "backoff": "1ms"}
        store = await open_store(url, options, runtime, SecretFiles(keys, {}), check=True)
        await store.put("a", [b"x"])
        server.kill()
        server.start()
        server.write_key(keys)
        assert bytes(await store.get("a")) == b"x"
        await store.put("a", [b"y"])
        await store.close()
    runtime.close()


async def test_a_refused_request_tells_no_more_than_it_must(opened: Opener) -> None:
    store = await opened(secrets={"access_key_id": ACCESS_KEY, "secret_access_key": "a-wrong-secret"})
    for ask in (store.put("a", [b"x"]), store.get("a"), store.delete("a"), listed(store)):
        with pytest.raises(ObjectError, match="SignatureDoesNotMatch") as caught:
            await ask
        told = str(caught.value)
        assert not isinstance(caught.value, ObjectMissing)
        assert "\n" not in told
        assert len(told) < 400
        for hidden in ("a-wrong-secret", ACCESS_KEY, "StringToSign", "AWS4-HMAC"):
            assert hidden not in told


async def listed(store: ObjectStore) -> list[str]:
    return [info.path async for info in store.list("")]


@pytest.mark.parametrize("secrets", [{"access_key_id": "nobody", "secret_access_key": "x"}, None])
async def test_a_missing_account_or_bucket_does_not_look_like_a_missing_object(
    server: S3Process, secrets: dict[str, str] | None
) -> None:
    """Both are 404, and a reader that is told that its object is gone would believe it."""
    runtime = SystemRuntime()
    bucket = "no-such-bucket" if secrets is None else BUCKET
    store = await open_store(f"s3://{bucket}/x", server.options(), runtime, secrets or server.secrets())
    for ask in (store.put("a", [b"x"]), store.get("a"), store.get_ranges("a", [(0, 1)]), store.delete("a")):
        with pytest.raises(ObjectError, match=r"NoSuchBucket|XAdminUserNotFound") as caught:
            await ask
        assert not isinstance(caught.value, ObjectMissing)
    await store.close()
    runtime.close()


# --- faults on the way


@pytest.fixture
def asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where requests are counted: on a busy machine, any of them may take longer than usual."""
    monkeypatch.setattr(UsualTimes, "patience", lambda *_: 600.0)


PASSING: list[Fault] = [SLOW_DOWN, INTERNAL_ERROR, Cut(after=False), Cut(after=True)]


@pytest.mark.usefixtures("asks_once")
@pytest.mark.parametrize("fault", PASSING, ids=repr)
async def test_what_passes_is_tried_again(opened: Opener, proxy: S3Proxy, fault: Fault) -> None:
    store = await opened(endpoint=proxy.endpoint, backoff="5ms", max_backoff="20ms")
    for ask in (
        lambda: store.put("a", [b"content"]),
        lambda: store.get_ranges("a", [(0, 3)]),
        lambda: store.head("a"),
        lambda: listed(store),
        lambda: store.delete("a"),
    ):
        proxy.requests.clear()
        proxy.faults.extend([fault, fault])
        await ask()
        assert len(proxy.requests) == 3
    assert await listed(store) == []


@pytest.mark.usefixtures("asks_once")
async def test_between_tries_it_waits_longer_and_longer(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint, retries="4", backoff="40ms", max_backoff="10s")
    proxy.always = SLOW_DOWN
    with pytest.raises(ObjectError, match="503"):
        await store.put("a", [b"x"])
    assert len(proxy.requests) == 5
    times = [request.at for request in proxy.requests]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(waits) > 0.03
    assert sum(waits) > 4 * 0.04  # jitter makes each wait random, between the first one and a growing bound


@pytest.mark.parametrize("fault", [Silence(), Late(20.0)], ids=repr)
async def test_what_hangs_is_asked_once_more(opened: Opener, proxy: S3Proxy, fault: Fault) -> None:
    """Long before the client's own timeout; and what comes too late changes nothing."""
    store = await opened(endpoint=proxy.endpoint, timeout="3m", retries="0")
    for ask in (
        lambda: store.put("a", [b"content"]),
        lambda: store.get_ranges("a", [(0, 3)]),
        lambda: store.get("a"),
        lambda: store.head("a"),
    ):
        proxy.requests.clear()
        proxy.faults += [fault, fault]
        await ask()
        assert len(proxy.requests) == 3
    assert bytes(await store.get("a")) == b"content"
    proxy.faults.append(fault)
    with pytest.raises(ObjectMissing):
        await store.get("b")
    assert not proxy.faults


async def test_a_body_that_hangs_is_asked_for_once_more(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint, timeout="3m", retries="0")
    await store.put("a", [b"content"])
    proxy.requests.clear()
    proxy.faults += [Bent.STUCK] * 4
    async with asyncio.timeout(30):
        assert bytes(await store.get("a")) == b"content"
        assert [bytes(each) for each in await store.get_ranges("a", [(3, 4)])] == [b"tent"]
    assert not proxy.faults
    assert len(proxy.requests) == 6


async def test_a_page_that_says_200_is_no_store(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint, check=True)
    proxy.faults.append(Bent.PAGE)
    with pytest.raises(ObjectError, match="the answer is not the store's"):
        await store.put("a", [b"x"])
    proxy.faults.append(Bent.PAGE)
    with pytest.raises(ObjectError, match="the answer is not the store's"):
        await store.put_if_absent("b", [b"x"])
    assert await listed(store) == []
    await store.put("a", [b"x"])
    assert await listed(store) == ["a"]


REFUSED_WITHIN = Answer("200 OK", "InternalError")
"""As S3 says it where it begins to answer before it knows."""


@pytest.mark.parametrize("fault", [REFUSED_WITHIN, Bent.PAGE, Cut(after=False)], ids=repr)
async def test_a_large_object_that_is_not_put_together_is_not_there(
    opened: Opener, proxy: S3Proxy, fault: Fault
) -> None:
    store = await opened(endpoint=proxy.endpoint, multipart_threshold="1000", backoff="1ms", retries="2")
    proxy.matches = lambda request: request.method == "POST" and "uploadId=" in request.target
    proxy.always = fault
    with pytest.raises(ObjectError):
        await store.put("large", [bytes(2000)])
    proxy.always = None
    assert await listed(store) == []


async def test_a_large_object_is_put_together_though_the_first_answers_were_bad(
    opened: Opener, proxy: S3Proxy
) -> None:
    store = await opened(endpoint=proxy.endpoint, multipart_threshold="1000", backoff="1ms")
    proxy.matches = lambda request: request.method == "POST" and "uploadId=" in request.target
    proxy.faults += [SLOW_DOWN, Cut(after=False), Cut(after=True)]
    await store.put("large", [bytes(2000)])
    assert await listed(store) == ["large"]
    assert bytes(await store.get("large")) == bytes(2000)


async def test_a_page_in_place_of_the_store_is_found_out_at_the_start(opened: Opener, proxy: S3Proxy) -> None:
    proxy.matches = lambda request: request.method == "PUT"
    proxy.always = Bent.PAGE
    with pytest.raises(ObjectError, match="something else answers for the store"):
        await opened(endpoint=proxy.endpoint, check=True)


@pytest.mark.parametrize(
    ("fault", "patience"), [(SLOW_DOWN, 60.0), (Silence(), 0.2)], ids=["overloaded", "silent"]
)
async def test_a_store_that_could_not_be_tried_is_tried_before_the_first_put(
    opened: Opener, proxy: S3Proxy, fault: Fault, patience: float
) -> None:
    """What starts while the store fails is let through, and then nothing would know what a PUT is answered
    with."""
    proxy.always = fault
    store = await opened(
        endpoint=proxy.endpoint, check=True, patience=patience, backoff="1ms", max_backoff="5ms"
    )
    proxy.matches = lambda request: request.method == "PUT"
    proxy.always = Bent.PAGE
    for _ in range(2):
        with pytest.raises(ObjectError, match="something else answers for the store"):
            await store.put("a", [b"x"])
    proxy.always = None
    await store.put("a", [b"x"])
    proxy.always = Bent.PAGE
    with pytest.raises(ObjectError, match="the answer is not the store's"):
        await store.put("b", [b"x"])
    assert await listed(store) == ["a"]


async def test_what_is_changed_on_its_way_is_refused_by_the_store(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint)
    proxy.faults.append(Bent.SENT)
    with pytest.raises(ObjectError, match="ContentSHA256Mismatch"):
        await store.put("a", [b"content"])
    assert await listed(store) == []


@pytest.mark.usefixtures("asks_once")
async def test_a_silent_server_is_given_up_after_the_timeout(opened: Opener, proxy: S3Proxy) -> None:
    store = await opened(endpoint=proxy.endpoint, timeout="200ms", retries="1", backoff="1ms")
    proxy.always = Silence()
    with pytest.raises(ObjectError, match="TimedOut"):
        await store.get("a")
    assert len(proxy.requests) == 2
    proxy.always = None
    await store.put("a", [b"x"])


async def test_a_conditional_put_whose_answer_was_lost_meets_its_own_object(
    opened: Opener, proxy: S3Proxy
) -> None:
    """So the contract's users write something that is theirs alone, and read it back."""
    store = await opened(endpoint=proxy.endpoint, backoff="1ms")
    proxy.faults.append(Cut(after=True))
    with pytest.raises(ObjectExists):
        await store.put_if_absent("lock", [b"mine"])
    assert bytes(await store.get("lock")) == b"mine"
    assert proxy.requests[0].headers["if-none-match"] == "*"


async def test_a_frozen_server_that_wakes_up(server: S3Process, opened: Opener) -> None:
    store = await opened(timeout="300ms", retries="1", backoff="1ms")
    await store.put("a", [b"before"])
    server.freeze()
    try:
        with pytest.raises(ObjectError, match="TimedOut"):
            await store.get("a")
    finally:
        server.thaw()
    assert bytes(await store.get("a")) == b"before"


async def test_a_killed_server_that_comes_back_has_what_it_confirmed(
    server: S3Process, opened: Opener
) -> None:
    store = await opened(retries="2", backoff="1ms", max_backoff="5ms")
    await store.put("a", [b"confirmed"])
    server.kill()
    with pytest.raises(ObjectError, match="Connection refused"):
        await store.get("a")
    server.start()
    assert bytes(await store.get("a")) == b"confirmed"
