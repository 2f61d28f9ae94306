"""The configs of a topic at the source: what holds for it there, and what of that is its own."""

from __future__ import annotations

from typing import Final, NamedTuple

from dray.client.admin import DYNAMIC_TOPIC_CONFIG, TOPIC_RESOURCE
from dray.client.cluster import Cluster
from dray.client.errors import check
from dray.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from .fences import LARGEST_BATCH

_FENCE: Final = (LARGEST_BATCH, "0")


class SourceConfig(NamedTuple):
    value: str
    is_own: bool
    """Set on the topic; otherwise it is what the source's brokers have."""


async def source_configs(cluster: Cluster, topic: str) -> dict[str, SourceConfig]:
    """Without a fence of ours that stands, or was left behind: that is no setting of the topic."""
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    [result] = (await cluster.request(DescribeConfigsRequest(resources=[resource]))).results
    check(f"cannot read the configs of topic {topic} at the source", result.error_code, result.error_message)
    return {
        each.name: SourceConfig(each.value, each.config_source == DYNAMIC_TOPIC_CONFIG)
        for each in result.configs
        if each.value is not None and (each.name, each.value) != _FENCE
    }
