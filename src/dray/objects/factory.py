"""From a URL and its options to an object store.

    file:PATH            our own durable engine; `file:///path` is the same
    memory:              gone with the process
    s3://BUCKET/PREFIX   also any store that speaks S3, by the option `endpoint`
    gs://BUCKET/PREFIX
    az://CONTAINER/PREFIX

Options of the remote stores: `endpoint`, `region` and `path_style` (S3), `timeout` and
`connect_timeout` of a request, `retries` and `retry_timeout`, `multipart_threshold`, `part_size`.
Any other name is an option of obstore's for that store, such as `account_name` on Azure. Credentials
come the same way, as `secrets`, which appear in no error and no log; without any, the provider's own
environment variables and instance roles are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dray.objects.contract import ObjectStore
from dray.objects.local import LocalStore
from dray.objects.memory import MemoryObjects
from dray.runtime import Runtime


async def open_store(
    url: str,
    options: Mapping[str, str],
    runtime: Runtime,
    secrets: Mapping[str, str] | None = None,
    allocate: Callable[[int], bytearray] = bytearray,
) -> ObjectStore:
    """`ValueError` with one line for a URL or an option that makes no sense; `ObjectError` if the
    local disk refuses. A remote store is first asked when it is first used."""
    scheme, _, rest = url.partition(":")
    if scheme in ("file", "memory"):
        if options or secrets:
            name = next(iter((*options, *(secrets or ()))))
            raise ValueError(f"object store {url}: it has no option {name!r}")
        if scheme == "memory":
            return MemoryObjects(runtime)
        path = rest.removeprefix("//")
        if not path:
            raise ValueError(f"object store {url}: it names no directory")
        return await LocalStore.open(path, runtime, allocate=allocate)
    # A broker on local files has no need to load a client for three clouds.
    from dray.objects.providers import open_remote

    return open_remote(url, options, secrets or {}, runtime)
