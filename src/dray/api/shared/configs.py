"""Configs of topics and of this broker as the wire describes them: value, source, synonyms, type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from dray.api.shared.broker_defaults import BROKER_DEFAULTS, BrokerDefault
from dray.protocol.messages.create_topics import CreatableTopicConfigs
from dray.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from dray.topics import CONFIGS, ConfigDefinition, ConfigType, Topic
from dray.topics.configs import NO_EFFECT, effective_value


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
    """What is set for a group, and else what the broker gives to all."""
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
