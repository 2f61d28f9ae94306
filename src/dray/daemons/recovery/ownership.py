"""The owner of a bucket, for the commands that work on it. A fault is one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.cluster import TallyKeeper
from dray.broker.cluster.bucket_owner import BucketRefused, claim_bucket, put_owner, read_owner
from dray.broker.cluster.identity import ClusterInfo
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import Stores, open_stores, read_cluster
from dray.daemons.config import Settings
from dray.metadata.contract import MetadataError
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectError
from dray.tables.compaction.upkeep.bucket_survey import BucketSurvey, survey_bucket

if TYPE_CHECKING:
    from dray.daemons.assembly.instrumented_stores import MeasuredStores


async def claimed_bucket(
    stores: Stores, cluster: ClusterInfo, runtime: Runtime, tally_interval: float, *, waits: bool = False
) -> TallyKeeper:
    """For a compactor: the same rule as for a broker, since either may come first. `waits`: for an object
    store that is slow or overloaded. The keeper is not started."""

    async def look_around() -> str | None:
        return (await _survey(stores, cluster, runtime)).doubt()

    def claim() -> Awaitable[None]:
        return claim_bucket(stores.objects, cluster, look_around)

    try:
        if waits:
            # Commands ask for the owner too, and load no parts of a broker for it.
            from dray.daemons.assembly.parts import while_it_passes

            await while_it_passes(claim, runtime)
        else:
            await claim()
    except BucketRefused as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    return TallyKeeper(stores.metadata, stores.objects, runtime, cluster.cluster_id, tally_interval)


async def owned_bucket(
    stores: Stores, cluster: ClusterInfo, runtime: Runtime, tally_interval: float
) -> TallyKeeper:
    """For a command: the bucket must be this cluster's already, and the metadata store no copy of its own.
    The keeper that is returned is asked before anything is deleted."""
    keeper = TallyKeeper(
        stores.metadata, stores.objects, runtime, cluster.cluster_id, tally_interval, is_quiet=True
    )
    reason = await keeper.owner() or await keeper.look()
    if reason is not None:
        raise Failure(reason)
    return keeper


def hold_writes(stores: MeasuredStores, keeper: TallyKeeper) -> None:
    """All that is written and deleted through these stores waits while the metadata store is held."""
    stores.metadata.held = stores.objects.held = keeper.held


async def _survey(stores: Stores, cluster: ClusterInfo, runtime: Runtime) -> BucketSurvey:
    return await survey_bucket(stores.metadata, cluster.domains, stores.objects, runtime.random)


@dataclass(frozen=True, slots=True)
class Adoption:
    cluster_id: str
    survey: BucketSurvey | None  # None where the bucket was this cluster's already
    adopted: bool


def adopt(settings: Settings, *, confirmed: bool) -> Adoption:
    """Without `confirmed`, only look."""
    with quiet_logs():
        return asyncio.run(_adopt(settings, confirmed=confirmed))


async def _adopt(settings: Settings, *, confirmed: bool) -> Adoption:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        owner = await read_owner(stores.objects)
        if owner is None:
            survey = await _survey(stores, cluster, runtime)
            if not confirmed:
                return Adoption(cluster.cluster_id, survey, adopted=False)
            owner = await put_owner(stores.objects, cluster)
        else:
            survey = None
        if owner.cluster_id != cluster.cluster_id:
            raise Failure(
                f"the object store belongs to cluster {owner.cluster_id}, and the metadata store to cluster "
                f"{cluster.cluster_id}: what has an owner is not adopted"
            )
        return Adoption(cluster.cluster_id, survey, adopted=survey is not None)
    except UnreadableValue as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
