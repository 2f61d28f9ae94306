"""Whether a remote store can be used at all, asked once when a process starts.

A bucket that does not exist, credentials that are refused and an endpoint without a server would
otherwise be found by the first producer. What is tried is what a broker does later: list, put, delete.
"""

from __future__ import annotations

from dray.objects.contract import ObjectError
from dray.objects.failures import RemoteFailure
from dray.objects.remote import RemoteStore

TRIAL = "dray-access-check"
"""The object that is put and deleted. One name for all, so that a crash leaves one at most."""

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_REFUSED = (401, 403)


async def check_access(store: RemoteStore) -> None:
    """`ObjectError` with a line that says what to do."""
    try:
        async for _ in store.list(TRIAL):
            break
        await store.put(TRIAL, [b"Dray was here."])
        await store.delete(TRIAL)
    except RemoteFailure as failure:
        raise ObjectError(f"{_advice(failure)} ({failure})") from None


def _advice(failure: RemoteFailure) -> str:
    if failure.code in _NO_BUCKET:
        return "the bucket does not exist: create it, or correct objects.url"
    if failure.status in _REFUSED:
        return (
            "access is refused: check objects.secrets (or the provider's environment variables), "
            "and that they allow to list, get, put and delete objects there"
        )
    if failure.status is None:
        return "no answer: check objects.options.endpoint and the network"
    return "it does not work as configured: check objects.url, objects.options and objects.secrets"
