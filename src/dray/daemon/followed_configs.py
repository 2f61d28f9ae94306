"""The configs of a linked topic follow the source's, as long as it owns the topic."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from dray.client.cluster import Cluster
from dray.topics import Topics
from dray.topics.followed_configs import FollowedConfigs, alterations_to, followed_configs
from dray.upstream.source_configs import source_configs

_log = structlog.get_logger(__name__)


async def compare_configs(cluster: Cluster, topic: str, defaults: Mapping[str, str]) -> FollowedConfigs:
    """What a topic that is linked now begins with, and what of the source's it cannot have."""
    return followed_configs(await source_configs(cluster, topic), defaults)


async def follow_configs(cluster: Cluster, topics: Topics, topic: str) -> FollowedConfigs:
    """Not to be called while the switch is under way: a fence may be a config."""
    values = await source_configs(cluster, topic)
    followed = followed_configs(values, topics.options.defaults)
    found = await topics.refresh(topic, barrier=True)
    if found is None:
        return followed
    changes = alterations_to(found.config, followed, values)
    if changes:
        await topics.alter_config(topic, changes)
        _log.info(
            "the configs of a linked topic were changed", topic=topic, names=[each.name for each in changes]
        )
    return followed
