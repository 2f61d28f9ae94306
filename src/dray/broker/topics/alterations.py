"""Kafka's rules for two things that clients ask of a topic: pure functions.

An alteration changes a topic's overrides. A manual assignment of replicas is checked and then not used: the
object store replicates, so no broker is given anything here. A tool that sends one still has to hear that it
makes no sense: it may be meant for another cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from dray.base.runtime import cut
from dray.broker.topics.configs import CONFIGS, ConfigType, check_configs, split_list
from dray.broker.topics.errors import InvalidConfig, InvalidReplicaAssignment


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
        raise InvalidConfig(f"Null value not supported for topic configs: {cut(','.join(nameless))}")
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
            raise InvalidConfig(f"Null value not supported for topic configs: {cut(name)}")
        if alteration.operation is AlterOperation.SET:
            altered[name] = value
            continue
        definition = CONFIGS.get(name)
        if definition is None:
            raise InvalidConfig(f"Unknown topic config name: {cut(name)}")
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


# --- manual assignments


def count_assigned(
    assignments: Sequence[tuple[int, Sequence[int]]], known_brokers: Collection[int] | None
) -> int:
    """How many partitions a new topic has by its assignments, each a partition and its brokers."""
    partitions: set[int] = set()
    for partition, _ in assignments:
        if partition in partitions:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {partition}"
            )
        partitions.add(partition)
    check_assignments((brokers for _, brokers in assignments), known_brokers)
    if partitions != set(range(len(partitions))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return len(partitions)


def check_assignments(assignments: Iterable[Sequence[int]], known_brokers: Collection[int] | None) -> None:
    """The brokers of each partition: some, none twice, all of them known, and everywhere as many. With
    `known_brokers` None, any id will do."""
    replicas: int | None = None
    for brokers in assignments:
        if not brokers:
            raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
        seen: set[int] = set()
        for broker in brokers:
            if broker in seen:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes the broker {broker} more than once."
                )
            seen.add(broker)
            if known_brokers is not None and broker not in known_brokers:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {broker}, but no such broker is "
                    "registered."
                )
        if replicas is not None and len(brokers) != replicas:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but "
                f"this is not consistent with previous partitions, which have {replicas} replica(s)."
            )
        replicas = len(brokers)
