"""The cluster's own record: made once by the first process, and read by all later ones.

The number of domains decides which keys share a shard, so it can never change: a broker configured
with another number logs that and follows the record.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

import structlog
from pydantic import Field

from dray.base.runtime import Runtime
from dray.broker.cluster.levels import BASE, NEWEST, ClusterLevel
from dray.metadata import keys
from dray.metadata.contract import ABSENT, MetadataStore, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import JsonCodec, ValueCorrupt

_log = structlog.get_logger(__name__)

CLUSTER_FORMAT: Final = 2
"""Above the base level: builds that know of no level refuse it. At the base level it is 1, which all read."""

_BASE_FORMAT: Final = 1
_UNSAID: Final = ClusterLevel()


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: Annotated[str, Field(alias="id")]
    domains: int
    created_ms: int
    level: Annotated[ClusterLevel, Field(exclude_if=lambda level: level == _UNSAID)] = _UNSAID

    def domain_of(self, stream: int) -> int:
        return keys.domain_of_stream(stream, self.domains)


def uuid_text(value: UUID) -> str:
    """A UUID as Kafka prints one: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


_CODEC: Final = JsonCodec(ClusterInfo, CLUSTER_FORMAT)


def encode_cluster(cluster: ClusterInfo) -> bytes:
    return _CODEC.encode(cluster, _format_at(cluster.level))


def decode_cluster(value: bytes) -> ClusterInfo:
    version, cluster = _CODEC.decode_versioned("the cluster record", value)
    if version != _format_at(cluster.level):
        raise ValueCorrupt("the cluster record", f"format {version} does not fit its level")
    return cluster


def _format_at(level: ClusterLevel) -> int:
    return _BASE_FORMAT if level.number == BASE else CLUSTER_FORMAT


async def has_cluster(store: MetadataStore, runtime: Runtime) -> bool:
    """Is there a cluster on the store already? Raises the store's errors."""

    async def attempt() -> bool:
        return await store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER) is not None

    return await update(runtime, attempt, ALL_FAILURES)


async def open_cluster(
    store: MetadataStore, runtime: Runtime, domains: int, configured: bool = True, level: int = NEWEST
) -> ClusterInfo:
    """The cluster's record, made now, at `level`, if this is its first broker. Raises the store's errors.
    Whoever `configured` the number of domains is told where it is another one; a default gives way
    silently."""
    if domains < 1:
        raise ValueError(f"a cluster has at least one domain, not {domains}")
    cluster_id = uuid_text(_presentable_uuid(runtime))
    fresh = ClusterInfo(cluster_id, domains, runtime.wall_ms(), ClusterLevel(level))
    put = Put(keys.CLUSTER, encode_cluster(fresh), ABSENT)

    async def attempt() -> ClusterInfo | None:
        record = await store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        if record is not None:
            return decode_cluster(record.value)
        # Whatever the reply: the next attempt reads what then stands there.
        await store.write(keys.CLUSTER_DOMAIN, [put])
        await store.barrier(keys.CLUSTER_DOMAIN)
        return None

    cluster = await update(runtime, attempt, ALL_FAILURES)
    if configured:
        _warn_of_difference(cluster, domains)
    return cluster


def _presentable_uuid(runtime: Runtime) -> UUID:
    """As Kafka, none that starts with a dash: command lines would take it for an option."""
    while True:
        value = runtime.uuid()
        if not uuid_text(value).startswith("-"):
            return value


def _warn_of_difference(cluster: ClusterInfo, domains: int) -> None:
    if cluster.domains != domains:
        _log.warning(
            "the number of domains is fixed when a cluster is created; the configured one is not used",
            configured=domains,
            stored=cluster.domains,
        )
