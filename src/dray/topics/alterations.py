"""What an alteration makes of a topic's overrides: pure functions, Kafka's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from dray.topics.configs import CONFIGS, ConfigType, check_configs, split_list
from dray.topics.errors import InvalidConfig


class AlterOperation(IntEnum):
    """The numbers are the wire's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    name: str
    operation: AlterOperation
    value: str | None


def replace_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """A full alteration (AlterConfigs, CreateTopics): what is not named is gone."""
    nameless = [name for name, value in configs.items() if value is None]
    if nameless:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nameless)}")
    replaced = {name: value for name, value in configs.items() if value is not None}
    check_configs(replaced)
    return replaced


def alter_configs(
    configs: Mapping[str, str], alterations: Sequence[Alteration], defaults: Mapping[str, str]
) -> dict[str, str]:
    """An incremental alteration. Appending to a config without an override starts from its default."""
    altered = dict(configs)
    for alteration in alterations:
        name, value = alteration.name, alteration.value
        if alteration.operation is AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        if alteration.operation is AlterOperation.SET:
            altered[name] = value
            continue
        definition = CONFIGS.get(name)
        if definition is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        if definition.type is not ConfigType.LIST:
            verb = alteration.operation.name
            raise InvalidConfig(f"Can't {verb} to key {name} because its type is not LIST.")
        parts = split_list(altered.get(name, defaults.get(name, definition.default)))
        if alteration.operation is AlterOperation.APPEND:
            parts.extend(part for part in dict.fromkeys(split_list(value)) if part not in parts)
        else:
            parts = [part for part in parts if part not in split_list(value)]
        altered[name] = ",".join(parts)
    check_configs(altered)
    return altered
