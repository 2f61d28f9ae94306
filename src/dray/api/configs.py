"""A topic's configs as the wire describes them: value, source, synonyms, type."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from dray.protocol.messages.create_topics import CreatableTopicConfigs
from dray.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from dray.topics import CONFIGS, ConfigDefinition, ConfigType, Topic
from dray.topics.configs import effective_value


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


_TYPES: Final[Mapping[ConfigType, int]] = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
}
STRING_TYPE: Final = _TYPES[ConfigType.STRING]


def describe_created(topic: Topic, defaults: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=name,
            value=effective_value(name, topic.config, defaults),
            config_source=_source(name, topic, defaults),
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
        config_source=_source(name, topic, defaults),
        synonyms=_synonyms(definition, topic, defaults) if synonyms else [],
        config_type=_TYPES[definition.type],
        documentation=definition.documentation if documentation else None,
    )


def _source(name: str, topic: Topic, defaults: Mapping[str, str]) -> ConfigSource:
    if name in topic.config:
        return ConfigSource.TOPIC
    return ConfigSource.STATIC_BROKER if name in defaults else ConfigSource.DEFAULT


def _synonyms(
    definition: ConfigDefinition, topic: Topic, defaults: Mapping[str, str]
) -> list[DescribeConfigsSynonym]:
    """Everything that has a say, the one that decides first; the broker's names for it are its own."""
    found = []
    if (value := topic.config.get(definition.name)) is not None:
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
