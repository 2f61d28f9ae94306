"""Configs of topics and of this broker as the wire describes them: value, source, synonyms, type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from dray.protocol.messages.create_topics import CreatableTopicConfigs
from dray.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from dray.topics import CONFIGS, ConfigDefinition, ConfigType, Topic
from dray.topics.configs import effective_value


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


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
    """The broker's own settings, and what it gives to topics that do not say otherwise, under the names that
    a Kafka broker has for them. All of it is read-only: it is set where the broker is started."""
    for definition in CONFIGS.values():
        if definition.synonym is not None:
            yield DescribeConfigsResourceResult(
                name=definition.synonym,
                value=effective_value(definition.name, {}, defaults),
                read_only=True,
                config_source=_source(definition.name, {}, defaults),
                synonyms=_synonyms(definition, {}, defaults) if synonyms else [],
                config_type=_TYPES[definition.type],
                documentation=definition.documentation if documentation else None,
            )
    source = ConfigSource.STATIC_BROKER
    for name, value in settings.items():
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=source,
            synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)] if synonyms else [],
            config_type=_TYPES[ConfigType.STRING],
            documentation=None,
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
        found.append(
            DescribeConfigsSynonym(
                name=definition.synonym, value=definition.default, source=ConfigSource.DEFAULT
            )
        )
    return found
