"""From a URL and its options to an object store.

    file:PATH            our own durable engine; `file:///path` is the same
    memory:              gone with the process
    s3://BUCKET/PREFIX   also any store that speaks S3, by the option `endpoint`
    gs://BUCKET/PREFIX
    az://CONTAINER/PREFIX

Option of the local engine: `page_cache`, `true` to write and read through it; by default large objects go
past it, where the file system has a way.

Options of the remote stores: `endpoint`, `ca_file` (certificates to trust besides the system's), `region`,
`path_style` and `unsigned_payload` (S3), `timeout` and `connect_timeout` of a request, `retries`,
`retry_timeout`, `backoff` (before the first retry; it doubles) and `max_backoff`, `multipart_threshold`,
`part_size`.
Any other name is an option of obstore's for that store, such as `account_name` on Azure. Credentials
come the same way, as `secrets`, which appear in no error and no log; without any, the provider's own
environment variables and instance roles are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dray.base.runtime import Runtime
from dray.objects.contract import ObjectError, ObjectStore
from dray.objects.local.direct import WORTHWHILE
from dray.objects.local.store import LocalStore
from dray.objects.memory import MemoryObjects

_OF_TABLES: Final = "compaction/"
"""The files of the log that are those of tables too: other programs may delete them."""


async def open_store(
    url: str,
    options: Mapping[str, str],
    runtime: Runtime,
    secrets: Mapping[str, str] | None = None,
    allocate: Callable[[int], bytearray] = bytearray,
    *,
    check: bool = False,
    patience: float | None = None,
) -> ObjectStore:
    """`ValueError` with one line for a URL or an option that makes no sense; `ObjectError` if the
    local disk refuses. A remote store is first asked when it is first used, or now with `check`. With
    `patience`, one that says nothing for so many seconds, or is overloaded, is let through, and tried before
    the first put."""
    scheme, _, rest = url.partition(":")
    if scheme in ("file", "memory"):
        known = {"page_cache"} if scheme == "file" else set()
        if unknown := [name for name in (*options, *(secrets or ())) if name not in known]:
            raise ValueError(f"object store {url}: it has no option {unknown[0]!r}")
        if scheme == "memory":
            return MemoryObjects(runtime)
        path = rest.removeprefix("//")
        if not path:
            raise ValueError(f"object store {url}: it names no directory")
        page_cache = options.get("page_cache", "false")
        if page_cache not in ("true", "false"):
            raise ValueError(f"object store {url}: page_cache is true or false, not {page_cache!r}")
        direct_from = WORTHWHILE if page_cache == "false" else None
        return await LocalStore.open(
            path, runtime, allocate=allocate, direct_from=direct_from, second_names=_OF_TABLES
        )
    # A broker on local files has no need to load a client for three clouds.
    from dray.objects.remote.providers import open_remote
    from dray.objects.remote.store import check_access

    store = open_remote(url, options, secrets or {}, runtime)
    if check:
        try:
            async with asyncio.timeout(patience):
                await check_access(store, runtime)
        except TimeoutError:
            store.try_before_puts(partial(check_access, store, runtime))
        except ObjectError as error:
            if patience is None or not error.is_passing:
                await store.close()
                raise
            store.try_before_puts(partial(check_access, store, runtime))
    return store
