"""Configs on the wire: how those of topics and of this broker are described (value, source, synonyms, type),
and the rules that both ways to alter them share.

Of those: one resource at a time, only topics, groups and, one config after the other, loggers
(`shared/loggers`), and each config of one once and with a value. A broker's configuration is set where it is
started and read-only here; other resources do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from dray.base.runtime import cut, gather_some
from dray.broker.api.shared.broker_defaults import BROKER_DEFAULTS, BrokerDefault
from dray.broker.api.shared.checks import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    Check,
    NotAllowed,
)
from dray.broker.api.shared.context import Context
from dray.broker.api.shared.errors import topic_error
from dray.broker.api.shared.partitions import repeated
from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.topics import (
    CONFIGS,
    ConfigDefinition,
    ConfigType,
    InvalidTopicRequest,
    Topic,
    TopicError,
    TopicsUnavailable,
)
from dray.broker.topics.configs import NO_EFFECT, effective_value
from dray.kafka.acls import CLUSTER_NAME
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_topics import CreatableTopicConfigs
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def of_cluster(cls) -> tuple[ResourceType, ...]:
        """Those that are authorized as the cluster."""
        return cls.BROKER, cls.BROKER_LOGGER, cls.CLIENT_METRICS


def unsupported(resource_type: int) -> str:
    """By name, and with what there is instead."""
    match resource_type:
        case ResourceType.BROKER_LOGGER:
            return "AlterConfigs does not support BROKER_LOGGER: use IncrementalAlterConfigs."
        case ResourceType.CLIENT_METRICS:
            return (
                "CLIENT_METRICS is not supported: brokers take no metrics from clients (KIP-714); let "
                "clients export their own."
            )
    return (
        f"Unknown resource type {resource_type}: there are TOPIC (2), BROKER (4), BROKER_LOGGER (8) and "
        "GROUP (32)."
    )


class ConfigSource(IntEnum):
    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


_TYPES: Final[Mapping[ConfigType, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}


_PASSWORD: Final = 9
_UNKNOWN: Final = BrokerDefault(0, None)
"""Of settings that an authorizer has and Kafka itself does not know, `super.users` among them. Kafka keeps
their values to itself, as it does passwords."""
_IS_SET: Final = "A setting of this broker, under Kafka's name."
_OF_A_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(?P<base>.*)")


def describe_created(topic: Topic, defaults: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=name,
            value=effective_value(name, topic.config, defaults),
            config_source=_source(name, topic.config, defaults),
        )
        for name in sorted(CONFIGS)
    ]


def describe_config(
    definition: ConfigDefinition,
    topic: Topic,
    defaults: Mapping[str, str],
    *,
    synonyms: bool,
    documentation: bool,
) -> DescribeConfigsResourceResult:
    name = definition.name
    return DescribeConfigsResourceResult(
        name=name,
        value=effective_value(name, topic.config, defaults),
        config_source=_source(name, topic.config, defaults),
        synonyms=_synonyms(definition, topic.config, defaults) if synonyms else [],
        config_type=_TYPES[definition.type],
        documentation=definition.documentation if documentation else None,
    )


def describe_broker_configs(
    settings: Mapping[str, str], defaults: Mapping[str, str], *, synonyms: bool, documentation: bool
) -> Iterator[DescribeConfigsResourceResult]:
    """Every config that a Kafka broker has: this broker's own settings, what it gives to topics that do not
    say otherwise, and Kafka's default for what has no meaning here. All of it is read-only: it is set where
    the broker is started."""
    of_topics = {one.synonym: one for one in CONFIGS.values() if one.synonym is not None}
    given = {one.synonym: defaults[one.name].strip() for one in of_topics.values() if one.name in defaults}
    for name in sorted({*BROKER_DEFAULTS, *settings}):
        listeners_own = _OF_A_LISTENER.fullmatch(name)
        base = name if listeners_own is None else listeners_own["base"]
        kind, default = BROKER_DEFAULTS.get(base, _UNKNOWN)
        hidden = kind in (_PASSWORD, _UNKNOWN.type)
        value = settings.get(name, given.get(name))
        source = ConfigSource.DEFAULT if value is None else ConfigSource.STATIC_BROKER
        says = [] if value is None else [(name, value, ConfigSource.STATIC_BROKER)]
        if base != name and base in settings:
            says.append((base, settings[base], ConfigSource.STATIC_BROKER))
        says += [] if default is None else [(base, default, ConfigSource.DEFAULT)]
        topic = of_topics.get(name)
        text = _IS_SET if name in settings else NO_EFFECT if topic is None else topic.documentation
        yield DescribeConfigsResourceResult(
            name=name,
            value=None if hidden else default if value is None else value,
            read_only=True,
            config_source=source,
            is_sensitive=hidden,
            synonyms=[
                DescribeConfigsSynonym(name=named, value=None if hidden else one, source=by)
                for named, one, by in says
            ]
            if synonyms
            else [],
            config_type=kind,
            documentation=text if documentation else None,
        )


def describe_group_configs(
    effective: Mapping[str, str], overrides: Mapping[str, str], *, synonyms: bool
) -> Iterator[DescribeConfigsResourceResult]:
    """The configs of a group: those that are set for it, and else those that the broker gives to all."""
    for name, value in sorted(effective.items()):
        source = ConfigSource.GROUP if name in overrides else ConfigSource.DEFAULT
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            config_source=source,
            synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)] if synonyms else [],
            config_type=_TYPES[ConfigType.INT],
            documentation=None,
        )


def _source(name: str, overrides: Mapping[str, str], defaults: Mapping[str, str]) -> ConfigSource:
    if name in overrides:
        return ConfigSource.TOPIC
    return ConfigSource.STATIC_BROKER if name in defaults else ConfigSource.DEFAULT


def _synonyms(
    definition: ConfigDefinition, overrides: Mapping[str, str], defaults: Mapping[str, str]
) -> list[DescribeConfigsSynonym]:
    """Everything that has a say, the one that decides first; the broker's names for it are its own."""
    found = []
    if (value := overrides.get(definition.name)) is not None:
        found.append(
            DescribeConfigsSynonym(name=definition.name, value=value.strip(), source=ConfigSource.TOPIC)
        )
    if definition.synonym is not None:
        if (value := defaults.get(definition.name)) is not None:
            found.append(
                DescribeConfigsSynonym(
                    name=definition.synonym, value=value.strip(), source=ConfigSource.STATIC_BROKER
                )
            )
        # Some have none of their own: the default of log.retention.ms is that of log.retention.hours.
        if BROKER_DEFAULTS.get(definition.synonym, _UNKNOWN).value is not None:
            found.append(
                DescribeConfigsSynonym(
                    name=definition.synonym, value=definition.default, source=ConfigSource.DEFAULT
                )
            )
    return found


# --- alter

_CHECKS: Final[Mapping[int, Check]] = {
    ResourceType.TOPIC: ALTER_TOPIC_CONFIGS,
    ResourceType.GROUP: ALTER_GROUP_CONFIGS,
    **dict.fromkeys(ResourceType.of_cluster(), ALTER_CLUSTER_CONFIGS),
}


class Resource(Protocol):
    resource_type: int
    resource_name: str


ResourceKind = TypeVar("ResourceKind", bound=Resource)


async def alter_each(
    context: Context,
    resources: Sequence[ResourceKind],
    alter: Callable[[ResourceKind], Awaitable[None]],
    changes_nothing: Callable[[ResourceKind], bool] = lambda _: False,
    alterable: Collection[int] = (ResourceType.TOPIC, ResourceType.GROUP),
) -> list[tuple[ErrorCode, str | None]]:
    """The code and message of each resource, in their order. `changes_nothing`: what may also be asked of a
    resource that cannot be altered."""
    twice = repeated((resource.resource_type, resource.resource_name) for resource in resources)

    async def one(resource: ResourceKind) -> tuple[ErrorCode, str | None]:
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise InvalidTopicRequest("Each resource must appear at most once.")
            check = _CHECKS.get(resource.resource_type)
            name = CLUSTER_NAME if check is ALTER_CLUSTER_CONFIGS else resource.resource_name
            about = f"configs of {resource.resource_name or 'all brokers'}" if name == CLUSTER_NAME else ""
            if check is not None and not context.may(check, name, about=about):
                return check.refusal, check.reason
            if not changes_nothing(resource):
                _check_alterable(resource, alterable)
                await alter(resource)
        except NotAllowed as refused:
            return refused.code, str(refused)
        except GroupUnavailable as refusal:
            return refusal.error, refusal.message
        except TopicError as error:
            if isinstance(error, TopicsUnavailable):
                context.logger().warning("configs were not altered", error=str(error))
            return topic_error(error), str(error)
        return ErrorCode.NONE, None

    return await gather_some(one(resource) for resource in resources)


def check_named(names: Collection[str], without_value: Collection[str]) -> None:
    """Check the configs of one resource: none is named twice, and none lacks a value that it needs."""
    if twice := repeated(names):
        raise InvalidTopicRequest(f"Error due to duplicate config keys: {cut(', '.join(sorted(twice)))}")
    if without_value:
        raise InvalidTopicRequest(f"Null value not supported for: {cut(', '.join(without_value))}")


def _check_alterable(resource: Resource, alterable: Collection[int]) -> None:
    if resource.resource_type == ResourceType.BROKER:
        raise InvalidTopicRequest("A broker's configs are set where it is started and cannot be altered.")
    if resource.resource_type not in alterable:
        raise InvalidTopicRequest(unsupported(resource.resource_type))
    if not resource.resource_name:
        raise InvalidTopicRequest("A resource without a name cannot be altered.")
