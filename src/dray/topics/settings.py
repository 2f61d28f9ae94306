"""A topic's effective settings: its overrides over the broker's defaults over Kafka's, parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.topics.configs import effective_value, split_list

_LEVELLED: Final = frozenset({"gzip", "lz4", "zstd"})


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What Dray acts on; everything else a topic may set is stored and reported only."""

    max_message_bytes: int
    stamps_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: str  # "producer": batches are kept as they came
    compression_level: int | None  # None: the codec's own
    retention_ms: int
    retention_bytes: int
    deletes: bool
    compacts: bool
    iceberg_enabled: bool
    partition_by_day: bool  # of the Iceberg table
    # Compaction by key
    dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int

    @classmethod
    def of(cls, overrides: Mapping[str, str], defaults: Mapping[str, str]) -> TopicSettings:
        def value(name: str) -> str:
            return effective_value(name, overrides, defaults)

        compression = value("compression.type")
        level = int(value(f"compression.{compression}.level")) if compression in _LEVELLED else None
        policies = split_list(value("cleanup.policy"))
        return cls(
            max_message_bytes=int(value("max.message.bytes")),
            stamps_append_time=value("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
            timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
            compression=compression,
            compression_level=None if (compression, level) == ("gzip", -1) else level,
            retention_ms=int(value("retention.ms")),
            retention_bytes=int(value("retention.bytes")),
            deletes="delete" in policies,
            compacts="compact" in policies,
            iceberg_enabled=value("dray.iceberg.enabled").strip().lower() == "true",
            partition_by_day=value("dray.iceberg.partition.by.day").strip().lower() == "true",
            dirty_ratio=float(value("min.cleanable.dirty.ratio")),
            min_compaction_lag_ms=int(value("min.compaction.lag.ms")),
            max_compaction_lag_ms=int(value("max.compaction.lag.ms")),
            delete_retention_ms=int(value("delete.retention.ms")),
        )
