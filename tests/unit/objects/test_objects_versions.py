"""What a bucket keeps of a deleted object: what is asked, what counts, what is said of a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from dray.base.runtime import SystemRuntime
from dray.objects import ObjectError
from dray.objects.remote import versions
from dray.objects.remote.versions import KeptVersion, Versions

URL = "s3://bucket/some/prefix"
KEY = "some/prefix/a"
SECRETS = {"access_key_id": "a", "aws_secret_access_key": "hidden", "token": "t"}


class Client:
    def __init__(self, *pages: dict[str, Any] | Exception) -> None:
        self.pages = pages
        self.asked: list[dict[str, str]] = []
        self.deleted: list[dict[str, str]] = []

    def get_paginator(self, name: str) -> Client:
        assert name == "list_object_versions"
        return self

    def paginate(self, **asked: str) -> Any:
        self.asked.append(asked)
        for page in self.pages:
            if isinstance(page, Exception):
                raise page
            yield page

    def delete_object(self, **asked: str) -> None:
        self.deleted.append(asked)


@pytest.fixture
def runtime() -> Any:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


def versions_of(client: Client, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch) -> Versions:
    monkeypatch.setattr(versions, "_client", lambda *_: client)
    return Versions(URL, {}, SECRETS, runtime)


def version(key: str, size: int, time: int, *, latest: bool = False) -> dict[str, Any]:
    return {"Key": key, "VersionId": f"v{time}", "Size": size, "LastModified": time, "IsLatest": latest}


async def test_only_markers_of_the_object_itself_are_taken_away(
    runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(
        {"Versions": [version(KEY, 3, 1)], "DeleteMarkers": [{"Key": KEY, "VersionId": "m1"}]},
        {"Versions": [version(KEY, 5, 2), version(f"{KEY}b", 9, 9)]},
        {"DeleteMarkers": [{"Key": KEY, "VersionId": "m2"}, {"Key": f"{KEY}b", "VersionId": "m3"}]},
    )
    found = versions_of(client, runtime, monkeypatch)
    kept = await found.kept("a")
    assert kept == KeptVersion(5, ("m1", "m2"))
    assert client.asked == [{"Bucket": "bucket", "Prefix": KEY}]
    await found.uncover("a", kept)
    assert client.deleted == [
        {"Bucket": "bucket", "Key": KEY, "VersionId": marker} for marker in ("m1", "m2")
    ]


async def test_an_object_that_is_back_has_no_markers_to_take_away(
    runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = {"Key": KEY, "VersionId": "m"}
    there = Client({"Versions": [version(KEY, 5, 2, latest=True)], "DeleteMarkers": [marker]})
    assert await versions_of(there, runtime, monkeypatch).kept("a") == KeptVersion(5, ())
    assert await versions_of(Client({"DeleteMarkers": [marker]}), runtime, monkeypatch).kept("a") is None


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (
            ClientError({"Error": {"Code": "AccessDenied", "Message": "not\nyou"}}, "ListObjectVersions"),
            "cannot list the versions of a: AccessDenied: not you",
        ),
        (
            EndpointConnectionError(endpoint_url="http://nowhere"),
            'cannot list the versions of a: Could not connect to the endpoint URL: "http://nowhere"',
        ),
    ],
)
async def test_a_refusal_is_one_line_with_the_stores_own_code(
    failure: Exception, line: str, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ObjectError) as caught:
        await versions_of(Client(failure), runtime, monkeypatch).kept("a")
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({"endpoint": "http://s3.test:9"}, "http://s3.test:9/bucket/"),
        ({"endpoint": "https://bucket.s3.test", "path_style": "false"}, "https://bucket.s3.test/"),
        ({"aws_region": "eu-test-1"}, "https://s3.eu-test-1.amazonaws.com/bucket/"),
    ],
)
def test_it_asks_where_the_other_client_asks(
    options: dict[str, str], endpoint: str, runtime: SystemRuntime
) -> None:
    client = Versions(URL, options, SECRETS, runtime)._client
    asked = client.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "k"})
    assert asked.startswith(f"{endpoint}k?")
    given = client._request_signer._credentials
    assert (given.access_key, given.secret_key, given.token) == ("a", "hidden", "t")
