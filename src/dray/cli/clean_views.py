"""What of compacted topics is clean, dirty and gone, for `drayd admin`.

Kafka's protocol has no word for it, so it comes from the metadata store, as the config names it; and only if
that is the store of the very cluster whose brokers were asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dray.cli.output import print_table
from dray.cluster.identity import decode_cluster
from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.settings import log_settings
from dray.daemon.stores import open_metadata
from dray.daemon.words import about_size
from dray.log.clean_shares import CleanShares, Share
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.runtime import SystemRuntime
from dray.telemetry import quiet_logs
from dray.topics.model import decode_topic

NOTHING = "-"
NOT_SHOWN = "what is clean and dirty: give the cluster's own --config or --data-dir"


async def read_clean_shares(
    settings: Settings, cluster_id: str, topics: Sequence[str]
) -> dict[str, list[CleanShares]]:
    """By topic, the shares of every partition. Nothing where the stores are not those of the cluster."""
    if settings.metadata.engine == "sqlite" and not settings.metadata_path.exists():
        return {}  # a command that only reads makes nothing
    runtime = SystemRuntime()
    try:
        with quiet_logs():
            store = await open_metadata(settings, runtime)
            try:
                return await _read(store, settings, cluster_id, topics)
            except MetadataError as error:
                raise Failure(f"the metadata store: {error}") from error
            finally:
                await store.close()
    finally:
        runtime.close()


async def _read(
    store: MetadataStore, settings: Settings, cluster_id: str, topics: Sequence[str]
) -> dict[str, list[CleanShares]]:
    record = await store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
    cluster = None if record is None else decode_cluster(record.value)
    if cluster is None or cluster.cluster_id != cluster_id:
        return {}
    streams = StreamStore(store, cluster.domains, log_settings(settings).producer_expiry_ms)
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
