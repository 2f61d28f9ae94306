"""The committed offsets of many groups in few requests: one for the coordinators, one to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.client.cluster import Cluster, Place
from dray.client.errors import ClientError
from dray.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

NAMES_UNTIL: Final = 9
"""The last version of OffsetFetch and OffsetCommit that names topics: a topic that is gone has no id."""
SEVERAL_FROM: Final = 8
"""The first version of OffsetFetch that takes several groups."""


async def committed_together(
    cluster: Cluster, group_ids: Sequence[str]
) -> dict[str, dict[Place, int] | None]:
    """Of the groups that were answered so; the others have to be asked for one by one."""
    try:
        coordinators = await _coordinators(cluster, group_ids)
    except ClientError:
        return {}
    found: dict[str, dict[Place, int] | None] = {}
    for address, groups in coordinators.items():
        try:
            found.update(await _fetch(cluster, address, groups))
        except ClientError:
            continue
    return found


async def _coordinators(cluster: Cluster, group_ids: Sequence[str]) -> dict[tuple[str, int], list[str]]:
    answer = await cluster.request(FindCoordinatorRequest(key=group_ids[0], coordinator_keys=list(group_ids)))
    by_address: dict[tuple[str, int], list[str]] = {}
    for each in answer.coordinators:  # older brokers answer with one alone, outside of this list
        if not each.error_code and each.key in group_ids:
            by_address.setdefault((each.host, each.port), []).append(each.key)
    return by_address


async def _fetch(
    cluster: Cluster, address: tuple[str, int], groups: Sequence[str]
) -> dict[str, dict[Place, int] | None]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in groups])
    async with cluster.broker(address) as broker:
        version = min(NAMES_UNTIL, broker.version_for(request.API_KEY))
        if version < SEVERAL_FROM:
            return {}
        response = await broker.request(request, version)
    found: dict[str, dict[Place, int] | None] = {}
    for group in response.groups:
        partitions = [(topic.name, item) for topic in group.topics for item in topic.partitions]
        if group.error_code or any(item.error_code for _, item in partitions):
            continue  # asked for alone, it says why, or answers once it has moved
        found[group.group_id] = {
            (name, item.partition_index): item.committed_offset
            for name, item in partitions
            if item.committed_offset >= 0
        }
    return found
