"""Objects on a real S3 server: what the contract's own suite does not ask, and what goes wrong on the way."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from uuid import uuid4

import pytest
from tests.services.certificates import Certificates, make_certificates
from tests.services.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Process
from tests.services.s3_proxy import INTERNAL_ERROR, SLOW_DOWN, Cut, Fault, S3Proxy, Silence, s3_proxy

from dray.objects import ObjectError, ObjectExists, ObjectMissing, ObjectStore, open_store
from dray.runtime import SystemRuntime

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
        *, on: S3Process = server, secrets: dict[str, str] | None = None, **options: str
    ) -> ObjectStore:
        given = on.secrets() if secrets is None else secrets
        url = f"s3://{BUCKET}/{uuid4().hex}"
        store = await open_store(url, on.options() | options, runtime, given)
        stores.append(store)
        return store

    yield opened
    for store in stores:
        await store.close()
    runtime.close()


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

PASSING: list[Fault] = [SLOW_DOWN, INTERNAL_ERROR, Cut(after=False), Cut(after=True)]


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
