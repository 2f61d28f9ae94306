"""The configs that a topic may set: one table of names, types, defaults and bounds.

Names, defaults, bounds and the text of refusals are Kafka's, so that its tools and its users' scripts
work unchanged. A config that only steers Kafka's own files on disk is accepted, stored and reported,
and its documentation says that it has no effect here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.base.runtime import DAY_MS, cut
from dray.broker.topics.errors import InvalidConfig

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_WEEK_MS: Final = 7 * 24 * 3600 * 1000

NO_EFFECT: Final = "Accepted so that Kafka's tools work; it has no effect in Dray."


class ConfigType(Enum):
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


# A bound is checked on the parsed value and answers why it is not allowed, or None.
Bound = Callable[[object], str | None]


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    name: str
    type: ConfigType
    default: str
    documentation: str
    synonym: str | None = None  # the broker-level name that gives the default
    bound: Bound | None = None

    def check(self, value: str) -> None:
        """Raises `InvalidConfig` for a value that is not allowed."""
        parsed = self._parse(value)
        if self.bound is not None and (fault := self.bound(parsed)) is not None:
            raise InvalidConfig(f"Invalid value {cut(value)} for configuration {self.name}: {fault}")

    def _parse(self, value: str) -> object:
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise self._invalid(value, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.LONG:
                limit = _INT_MAX if self.type is ConfigType.INT else _LONG_MAX
                number = _decimal(text)
                if number is None or not -limit - 1 <= number <= limit:
                    raise self._invalid(value, f"Not a number of type {self.type.value}")
                return number
            case ConfigType.DOUBLE:
                try:
                    double = float(text)
                except ValueError:
                    raise self._invalid(value, "Not a number of type DOUBLE") from None
                if not math.isfinite(double):
                    raise self._invalid(value, "Not a number of type DOUBLE")
                return double
            case ConfigType.LIST:
                return split_list(text)
            case ConfigType.STRING:
                return text

    def _invalid(self, value: str, why: str) -> InvalidConfig:
        return InvalidConfig(f"Invalid value {cut(value)} for configuration {self.name}: {why}")


def _decimal(text: str) -> int | None:
    digits = text[1:] if text[:1] in {"-", "+"} else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None


def split_list(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _at_least(least: int) -> Bound:
    return lambda value: (
        f"Value must be at least {least}" if isinstance(value, int | float) and value < least else None
    )


def _between(least: float, most: float) -> Bound:
    def check(value: object) -> str | None:
        if isinstance(value, int | float):
            if value < least:
                return f"Value must be at least {least}"
            if value > most:
                return f"Value must be no more than {most}"
        return None

    return check


def _one_of(*allowed: str) -> Bound:
    return lambda value: None if value in allowed else f"String must be one of: {', '.join(allowed)}"


def _each_of(*allowed: str) -> Bound:
    def check(value: object) -> str | None:
        assert isinstance(value, list)
        if any(part not in allowed for part in value):
            return f"String must be one of: {', '.join(allowed)}"
        return "the list must not name anything twice" if len(set(value)) < len(value) else None

    return check


def _gzip_level(value: object) -> str | None:
    fits = value == -1 or (isinstance(value, int) and 1 <= value <= 9)
    return None if fits else "Value must be between 1 and 9 or equal to -1"


def _only_false(value: object) -> str | None:
    return "Topics are in object storage already; tiered storage cannot be enabled" if value else None


def _only_true(value: object) -> str | None:
    return None if value else "records of topics are in object storage, and go nowhere else"


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

_DEFINITIONS: Final[Sequence[ConfigDefinition]] = (
    # --- what Dray acts on
    ConfigDefinition(
        "cleanup.policy",
        _LIST,
        "delete",
        "What happens to old records: 'delete' drops them by retention, 'compact' those that a later one of "
        "the same key supersedes, once compactors have put them into files. Empty, nothing happens to them.",
        "log.cleanup.policy",
        _each_of("compact", "delete"),
    ),
    ConfigDefinition(
        "compression.type",
        _S,
        "producer",
        "The codec batches are stored with; 'producer' keeps each batch as its producer made it.",
        "compression.type",
        _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigDefinition(
        "compression.gzip.level",
        _I,
        "-1",
        "The level to use when compression.type is gzip.",
        "compression.gzip.level",
        _gzip_level,
    ),
    ConfigDefinition(
        "compression.lz4.level",
        _I,
        "9",
        "The level to use when compression.type is lz4.",
        "compression.lz4.level",
        _between(1, 17),
    ),
    ConfigDefinition(
        "compression.zstd.level",
        _I,
        "3",
        "The level to use when compression.type is zstd.",
        "compression.zstd.level",
        _between(-131072, 22),
    ),
    ConfigDefinition(
        "delete.retention.ms",
        _L,
        str(DAY_MS),
        "How long the tombstone of a key stays at least after its older records were compacted away.",
        "log.cleaner.delete.retention.ms",
        _at_least(0),
    ),
    ConfigDefinition(
        "diskless.enable",
        _B,
        "true",
        "True for each topic that is Dray's. One that is linked to another cluster shows false: set to true, "
        "it is switched. It cannot be set back.",
        None,
        _only_true,
    ),
    ConfigDefinition(
        "dray.iceberg.enabled",
        _B,
        "true",
        "Whether the topic is also an Iceberg table; false opts it out. Set on the topic, true also gives a "
        "table to one whose name is among the compactors' iceberg.exclude_topics.",
    ),
    ConfigDefinition(
        "dray.iceberg.partition.by.day",
        _B,
        "false",
        "Whether the topic's Iceberg table is partitioned by the day (UTC) of its records as well. Only for "
        "topics with message.timestamp.type=LogAppendTime, whose records come in the order of their days.",
    ),
    ConfigDefinition(
        "max.compaction.lag.ms",
        _L,
        str(_LONG_MAX),
        "With cleanup.policy=compact, how old a record that is not yet compacted by key may become.",
        "log.cleaner.max.compaction.lag.ms",
        _at_least(1),
    ),
    ConfigDefinition(
        "max.message.bytes",
        _I,
        "1048588",
        "The largest record batch, after compression, that the topic takes.",
        "message.max.bytes",
        _at_least(0),
    ),
    ConfigDefinition(
        "message.timestamp.after.max.ms",
        _L,
        "3600000",
        "How far a record's CreateTime may run ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms",
        _at_least(0),
    ),
    ConfigDefinition(
        "message.timestamp.before.max.ms",
        _L,
        str(_LONG_MAX),
        "How far a record's CreateTime may lie behind the broker's clock.",
        "log.message.timestamp.before.max.ms",
        _at_least(0),
    ),
    ConfigDefinition(
        "message.timestamp.type",
        _S,
        "CreateTime",
        "Whether records keep their producer's time (CreateTime) or get the broker's (LogAppendTime).",
        "log.message.timestamp.type",
        _one_of("CreateTime", "LogAppendTime"),
    ),
    ConfigDefinition(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        "With cleanup.policy=compact, a partition is compacted by key once this share of its files is not.",
        "log.cleaner.min.cleanable.ratio",
        _between(0, 1),
    ),
    ConfigDefinition(
        "min.compaction.lag.ms",
        _L,
        "0",
        "With cleanup.policy=compact, how old records are at least before any goes.",
        "log.cleaner.min.compaction.lag.ms",
        _at_least(0),
    ),
    ConfigDefinition(
        "retention.bytes",
        _L,
        "-1",
        "How much a partition may hold before its oldest records are deleted; -1 for no limit.",
        "log.retention.bytes",
    ),
    ConfigDefinition(
        "retention.ms",
        _L,
        str(_WEEK_MS),
        "How long records are kept before they may be deleted; -1 for ever.",
        "log.retention.ms",
        _at_least(-1),
    ),
    # --- what only steers Kafka's files and replicas
    ConfigDefinition(
        "file.delete.delay.ms", _L, "60000", NO_EFFECT, "log.segment.delete.delay.ms", _at_least(0)
    ),
    ConfigDefinition(
        "flush.messages", _L, str(_LONG_MAX), NO_EFFECT, "log.flush.interval.messages", _at_least(1)
    ),
    ConfigDefinition("flush.ms", _L, str(_LONG_MAX), NO_EFFECT, "log.flush.interval.ms", _at_least(0)),
    ConfigDefinition("follower.replication.throttled.replicas", _LIST, "", NO_EFFECT),
    ConfigDefinition("index.interval.bytes", _I, "4096", NO_EFFECT, "log.index.interval.bytes", _at_least(0)),
    ConfigDefinition("leader.replication.throttled.replicas", _LIST, "", NO_EFFECT),
    ConfigDefinition(
        "local.retention.bytes", _L, "-2", NO_EFFECT, "log.local.retention.bytes", _at_least(-2)
    ),
    ConfigDefinition("local.retention.ms", _L, "-2", NO_EFFECT, "log.local.retention.ms", _at_least(-2)),
    ConfigDefinition(
        "min.insync.replicas",
        _I,
        "1",
        "Accepted, with no effect: an acknowledged record is in object storage, which does the replicating.",
        "min.insync.replicas",
        _at_least(1),
    ),
    ConfigDefinition("preallocate", _B, "false", NO_EFFECT, "log.preallocate"),
    ConfigDefinition("remote.log.copy.disable", _B, "false", NO_EFFECT),
    ConfigDefinition("remote.log.delete.on.disable", _B, "false", NO_EFFECT),
    ConfigDefinition("remote.storage.enable", _B, "false", NO_EFFECT, None, _only_false),
    ConfigDefinition("segment.bytes", _I, str(2**30), NO_EFFECT, "log.segment.bytes", _at_least(14)),
    ConfigDefinition(
        "segment.index.bytes", _I, str(10 * 1024 * 1024), NO_EFFECT, "log.index.size.max.bytes", _at_least(4)
    ),
    ConfigDefinition("segment.jitter.ms", _L, "0", NO_EFFECT, "log.roll.jitter.ms", _at_least(0)),
    ConfigDefinition("segment.ms", _L, str(_WEEK_MS), NO_EFFECT, "log.roll.ms", _at_least(1)),
    ConfigDefinition(
        "unclean.leader.election.enable", _B, "false", NO_EFFECT, "unclean.leader.election.enable"
    ),
)

CONFIGS: Final[Mapping[str, ConfigDefinition]] = {definition.name: definition for definition in _DEFINITIONS}


def effective_value(name: str, overrides: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    """The value that holds for a topic: its override, else the broker's default, else Kafka's."""
    value = overrides.get(name)
    if value is None:
        value = defaults.get(name)
    return CONFIGS[name].default if value is None else value.strip()


def check_configs(configs: Mapping[str, str]) -> None:
    """Raises `InvalidConfig` unless these overrides may stand together."""
    for name, value in configs.items():
        definition = CONFIGS.get(name)
        if definition is None:
            raise InvalidConfig(f"Unknown topic config name: {cut(name)}")
        definition.check(value)
    if (
        effective_value("dray.iceberg.partition.by.day", configs, {}).lower() == "true"
        and effective_value("message.timestamp.type", configs, {}) != "LogAppendTime"
    ):
        raise InvalidConfig(
            "dray.iceberg.partition.by.day=true needs message.timestamp.type=LogAppendTime on the topic too: "
            "producers' own times put records of many days into one file"
        )
    least = int(effective_value("min.compaction.lag.ms", configs, {}))
    most = int(effective_value("max.compaction.lag.ms", configs, {}))
    if least > most:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
