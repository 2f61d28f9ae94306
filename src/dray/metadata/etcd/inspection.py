"""Whether these servers will do, asked once when a store is opened."""

from __future__ import annotations

import re
from typing import Final

import structlog

from dray.metadata.contract import MetadataError, Unavailable
from dray.metadata.etcd.calls import Calls, CannotLogIn
from dray.metadata.etcd.errors import TOO_MANY_OPERATIONS, UnusableEtcd
from dray.metadata.etcd.keys import Keyspace
from dray.metadata.etcd.settings import EtcdSettings
from dray.metadata.etcd.wire import etcd_pb2 as wire

_log = structlog.get_logger(__name__)


# Before these, a leader that was frozen and wakes up revokes leases that others have kept alive meanwhile.
MENDED: Final = {(3, 4): 31, (3, 5): 13}


async def inspect(calls: Calls, settings: EtcdSettings, keyspace: Keyspace) -> None:
    """`UnusableEtcd` says what to do. What is tried reads, and leaves nothing behind."""
    look = wire.RequestOp(request_range=wire.RangeRequest(key=keyspace.tick, count_only=True))
    most = settings.max_transaction_operations
    try:
        await calls.repeatable(lambda server: server.transaction, wire.TxnRequest(success=[look] * most))
        status = await calls.repeatable(lambda server: server.status, wire.StatusRequest())
    except CannotLogIn as error:
        raise UnusableEtcd(f"{error}: check metadata.etcd.user and metadata.etcd.password") from None
    except Unavailable as error:
        raise UnusableEtcd(_advice(str(error), most)) from None
    except MetadataError as error:
        raise UnusableEtcd(str(error)) from None
    if revokes_wrongly(status.version):
        _log.warning(
            "this etcd may end sessions too early when its leader was frozen: use 3.4.31, 3.5.13 or newer",
            version=status.version,
        )


def revokes_wrongly(version: str) -> bool:
    """Nothing of the log is at stake: it never rests on a session."""
    numbers = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    if numbers is None:
        return False
    major, minor, patch = map(int, numbers.groups())
    return patch < MENDED.get((major, minor), 0)


def _advice(said: str, most: int) -> str:
    if TOO_MANY_OPERATIONS in said:
        return (
            f"the servers allow fewer than {most} operations in a transaction: start them with "
            f"--max-txn-ops={most}, or set metadata.etcd.max_txn_ops"
        )
    if "permission denied" in said or "user name is empty" in said or "auth token" in said:
        return (
            f"access is refused ({said}): check metadata.etcd.user, password and token, and the role's keys"
        )
    if "no connection" in said:
        return f"{said}: check metadata.etcd.endpoints, the TLS settings and the network"
    return said
