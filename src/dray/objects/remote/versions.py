"""Deleted objects in a bucket of S3 that keeps versions, and how they come back.

A delete there only puts a marker on top of the versions of an object, and who takes the marker away has the
object again: nothing is copied. The client of all other requests cannot list versions, so this is work for
boto3, an optional package, with the address and the credentials that the other makes of the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from dray.base.runtime import Runtime
from dray.objects.contract import ObjectError
from dray.objects.remote.providers import client_maker

T = TypeVar("T")

AT_ONCE: Final = 16
_MOST_PAGES: Final = 10  # of a thousand versions and markers of one object
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A deleted object as a bucket keeps it: the size of its newest version, and the markers that hide it."""

    size: int
    markers: tuple[str, ...]


class Versions:
    """Raises `ObjectError` with the store's own code."""

    def __init__(
        self, url: str, options: Mapping[str, str], secrets: Mapping[str, str], runtime: Runtime
    ) -> None:
        store = client_maker(url, options)[0](dict(secrets.items()))
        self._bucket: str = store.config["bucket"]
        self._folder = f"{store.prefix}/" if store.prefix else ""
        self._runtime = runtime
        with _translated("reach", self._bucket):
            self._client = _client(store.config, options.get("ca_file"))

    async def kept(self, path: str) -> KeptVersion | None:
        """None: the bucket has no version of it."""
        return await self._ask("list the versions of", path, self._kept)

    async def uncover(self, path: str, kept: KeptVersion) -> None:
        """Take its markers away."""

        def delete(key: str) -> None:
            for marker in kept.markers:
                self._client.delete_object(Bucket=self._bucket, Key=key, VersionId=marker)

        await self._ask("take a delete marker from", path, delete)

    async def _ask(self, action: str, path: str, request: Callable[[str], T]) -> T:
        with _translated(action, path):
            return await self._runtime.in_thread(request, self._folder + path)

    def _kept(self, key: str) -> KeptVersion | None:
        pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=key)
        versions, markers = [], []
        for page in islice(pages, _MOST_PAGES):
            versions += [each for each in page.get("Versions", ()) if each["Key"] == key]
            markers += [each["VersionId"] for each in page.get("DeleteMarkers", ()) if each["Key"] == key]
        if not versions:
            return None
        newest = max(versions, key=lambda each: each["LastModified"])  # of equal ones the first, as listed
        return KeptVersion(newest["Size"], () if newest["IsLatest"] else tuple(markers))


def _client(config: Mapping[str, str], ca_file: str | None) -> Any:
    import boto3
    from botocore.config import Config

    virtual = config.get("virtual_hosted_style_request") == "true"
    endpoint = config.get("endpoint")
    if endpoint is not None and virtual:
        endpoint = endpoint.replace(f"//{config['bucket']}.", "//", 1)  # boto3 puts it there itself
    session = boto3.Session(
        aws_access_key_id=config.get("access_key_id"),
        aws_secret_access_key=config.get("secret_access_key"),
        aws_session_token=config.get("session_token"),
        region_name=config.get("region", "us-east-1"),
    )
    return session.client(
        "s3",
        endpoint_url=endpoint,
        verify=ca_file,
        config=Config(
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=AT_ONCE,
            retries={"mode": "standard", "max_attempts": 5},
            s3={"addressing_style": "virtual" if virtual else "path"},
        ),
    )


@contextmanager
def _translated(action: str, path: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        reason = f"{told.get('Code')}: {told.get('Message')}"
    except BotoCoreError as error:
        reason = str(error)
    else:
        return
    raise ObjectError(f"cannot {action} {path}: {' '.join(reason.split())[:_LONGEST]}")
