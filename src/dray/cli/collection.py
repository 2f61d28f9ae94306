"""One round of the WAL collectors, outside of any broker."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from dray.cli.failures import Failure

if TYPE_CHECKING:
    from dray.config import Settings


def collect(settings: Settings, *, now: bool) -> dict[str, int]:
    """What the round saw and did, by name."""
    return asyncio.run(_collect(settings, now=now))


async def _collect(settings: Settings, *, now: bool) -> dict[str, int]:
    from dray.cli.stores import open_stores
    from dray.cluster.identity import decode_cluster
    from dray.log.collector import Collector
    from dray.log.stream_store import StreamStore
    from dray.metadata import keys
    from dray.metadata.contract import MetadataError
    from dray.node import log_settings
    from dray.objects import ObjectError
    from dray.runtime import SystemRuntime

    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    knobs = log_settings(settings)
    if now:
        knobs = replace(knobs, grace_seconds=0.0, orphan_seconds=0.0)
    try:
        record = await stores.metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        if record is None:
            raise Failure("there is no cluster on these stores yet: nothing to collect")
        streams = StreamStore(stores.metadata, decode_cluster(record.value).domains, knobs.producer_expiry_ms)
        return asdict(await Collector(streams, stores.objects, runtime, knobs).run())
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
