"""The clean, dirty and gone parts of compacted topics, and the builds of processes, for `drayd admin`.

Kafka's protocol has no word for it, so it comes from the metadata store, as the config names it; and only if
that is the store of the very cluster whose brokers were asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.cluster.identity import decode_cluster
from dray.broker.topics.model import decode_topic
from dray.cli.output import print_table
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.assembly.words import about_size
from dray.daemons.config import Settings
from dray.inspection.storage.stored import KnownBuilds, StoredCluster
from dray.log.jobs.clean_shares import CleanShares, Share
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore

T = TypeVar("T")

NOTHING = "-"
NOT_SHOWN = (
    "the topic is compacted by key; how far that is, the metadata store alone knows: give the cluster's own "
    "--config or --data-dir to see it"
)


async def read_clean_shares(
    settings: Settings, cluster_id: str, topics: Sequence[str]
) -> dict[str, list[CleanShares]]:
    """By topic, the shares of every partition. Nothing where the stores are not those of the cluster."""

    async def read(store: MetadataStore, domains: int) -> dict[str, list[CleanShares]]:
        return await _read(store, settings, domains, topics)

    return await _in_store_of(settings, cluster_id, read) or {}


async def read_builds(settings: Settings, cluster_id: str) -> KnownBuilds | None:
    """Which build each process is. None where the store is not that of the cluster."""

    async def read(store: MetadataStore, domains: int) -> KnownBuilds:
        return await StoredCluster(store, domains, {}, 0).builds()

    return await _in_store_of(settings, cluster_id, read)


async def _in_store_of(
    settings: Settings, cluster_id: str, read: Callable[[MetadataStore, int], Awaitable[T]]
) -> T | None:
    """What is read from the cluster's metadata store, given the number of its domains."""
    if settings.metadata.engine == "sqlite" and not settings.metadata_path.exists():
        return None  # a command that only reads makes nothing
    runtime = SystemRuntime()
    try:
        with quiet_logs():
            store = await open_metadata(settings, runtime)
            try:
                record = await store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
                cluster = None if record is None else decode_cluster(record.value)
                if cluster is None or cluster.cluster_id != cluster_id:
                    return None
                return await read(store, cluster.domains)
            except MetadataError as error:
                raise Failure(f"the metadata store: {error}") from error
            finally:
                await store.close()
    finally:
        runtime.close()


async def _read(
    store: MetadataStore, settings: Settings, domains: int, topics: Sequence[str]
) -> dict[str, list[CleanShares]]:
    streams = StreamStore(store, domains, settings.log.producer_expiry_ms)
    found: dict[str, list[CleanShares]] = {}
    for name in topics:
        topic = await store.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        if topic is not None:
            ids = decode_topic(name, topic.value, settings.topics.defaults).streams
            found[name] = [await clean_shares_of(streams, stream) for stream in ids]
    return found


async def clean_shares_of(streams: StreamStore, stream: int) -> CleanShares:
    view = await streams.view(stream)
    return CleanShares() if view is None else CleanShares.of(view)


def print_clean_shares(partitions: Sequence[CleanShares]) -> None:
    print_table(
        ["partition", "clean point", "cleaned", "clean", "dirty", "ratio", "in no file", "removed"],
        [
            (
                number,
                NOTHING if shares.clean_end is None else shares.clean_end,
                NOTHING if shares.cleaned_ms is None else time_of(shares.cleaned_ms),
                _words(shares.clean),
                _words(shares.dirty),
                f"{shares.dirty_ratio:.2f}",
                _words(shares.waiting),
                shares.removed,
            )
            for number, shares in enumerate(partitions)
        ],
    )


def clean_shares_as_plain(partition: int, shares: CleanShares) -> dict[str, Any]:
    """For `--json`."""
    return {
        "partition": partition,
        "clean_point": shares.clean_end,
        "cleaned_ms": shares.cleaned_ms,
        "clean": shares.clean._asdict(),
        "dirty": shares.dirty._asdict(),
        "dirty_ratio": round(shares.dirty_ratio, 4),
        "waiting": shares.waiting._asdict(),
        "removed": shares.removed,
    }


def time_of(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _words(share: Share) -> str:
    return f"{share.records} ({about_size(share.size)})" if share.records else "0"
