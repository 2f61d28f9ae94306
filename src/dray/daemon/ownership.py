"""Whose bucket it is, for the commands that work on it. A fault is one line."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dray.cluster.bucket_owner import BucketGuard, BucketRefused, claim_bucket, put_owner, read_owner
from dray.cluster.identity import ClusterInfo
from dray.compaction.bucket_survey import BucketSurvey, survey_bucket
from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.stores import Stores, open_stores, read_cluster
from dray.metadata.contract import MetadataError
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectError
from dray.runtime import Runtime, SystemRuntime
from dray.telemetry import quiet_logs


async def claimed_bucket(stores: Stores, cluster: ClusterInfo, runtime: Runtime) -> BucketGuard:
    """For a compactor: the same rule as for a broker, since either may come first."""

    async def look_around() -> str | None:
        return (await _survey(stores, cluster, runtime)).doubt()

    try:
        await claim_bucket(stores.objects, cluster, look_around)
    except BucketRefused as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error
    return BucketGuard(stores.objects, cluster.cluster_id)


async def owned_bucket(stores: Stores, cluster: ClusterInfo) -> BucketGuard:
    """For a command that deletes: the bucket must be this cluster's already."""
    guard = BucketGuard(stores.objects, cluster.cluster_id)
    reason = await guard()
    if reason is not None:
        raise Failure(reason)
    return guard


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
