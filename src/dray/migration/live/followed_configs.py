"""The configs of a linked topic follow the source's, as long as it owns the topic.

Configs that are set on the topic there are set here. The values of the brokers there are set here too, if
Dray's own default is another one: a topic that was kept for a month must not be cut to a week because nobody
had to say so. Configs that only steer Kafka's files are taken only if the topic itself sets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import structlog

from dray.broker.topics import Topics
from dray.broker.topics.alterations import Alteration, AlterOperation
from dray.broker.topics.configs import CONFIGS, NO_EFFECT, effective_value
from dray.broker.topics.errors import InvalidConfig
from dray.kafka.client.admin import DYNAMIC_TOPIC_CONFIG, TOPIC_RESOURCE
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import check
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.migration.source.fences import LARGEST_BATCH

_log = structlog.get_logger(__name__)

_OURS: Final = ("dray.", "diskless.enable")


class FollowedConfigs(NamedTuple):
    wanted: Mapping[str, str]
    """The overrides of the topic at Dray."""
    refused: Mapping[str, str]
    """The configs that are set on the topic at the source and cannot be set here."""


async def compare_configs(cluster: Cluster, topic: str, defaults: Mapping[str, str]) -> FollowedConfigs:
    """The configs with which a newly linked topic begins, and those of the source that it cannot have."""
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


def followed_configs(values: Mapping[str, tuple[str, bool]], defaults: Mapping[str, str]) -> FollowedConfigs:
    """`values` are those of the source: each with whether it is set on the topic. `defaults` are Dray's."""
    wanted: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, (value, is_own) in sorted(values.items()):
        definition = CONFIGS.get(name)
        if definition is None or name.startswith(_OURS):
            if is_own:
                refused[name] = value
            continue
        if not is_own and definition.documentation == NO_EFFECT:
            continue
        try:
            definition.check(value)
        except InvalidConfig:
            if is_own:
                refused[name] = value
            continue
        if is_own or value != effective_value(name, {}, defaults):
            wanted[name] = value
    return FollowedConfigs(wanted, refused)


def alterations_to(
    current: Mapping[str, str], followed: FollowedConfigs, values: Collection[str]
) -> list[Alteration]:
    """The alterations that make them so. `values` are the names that the source has. Configs that only Dray
    has stay, as do those of which the source says nothing; all else is the source's to say until the
    switch."""
    changes = [
        Alteration(name, AlterOperation.SET, value)
        for name, value in followed.wanted.items()
        if current.get(name) != value
    ]
    gone = [
        name
        for name in sorted(current)
        if name in values and name not in followed.wanted and not name.startswith(_OURS)
    ]
    return changes + [Alteration(name, AlterOperation.DELETE, None) for name in gone]


# --- the configs of a topic at the source: what holds for it there, and what of that is its own

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
