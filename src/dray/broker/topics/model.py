"""A topic, and the two values that are stored for one: its record, and its tombstone.

A topic is *one* value under one compare-and-set, so that its partitions, their streams and its config
can never be seen half changed. Both are JSON behind the version byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol
from uuid import UUID

from pydantic import Field

from dray.broker.topics.configs import effective_value, split_list
from dray.metadata.values import NOT_IF_NONE, HexUuid, JsonCodec, ValueCorrupt

# --- effective settings: overrides over the broker's defaults over Kafka's, parsed once

_LEVELLED: Final = frozenset({"gzip", "lz4", "zstd"})


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The configs that Dray acts on; everything else a topic may set is stored and reported only."""

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


# --- the stored values

TOPIC_FORMAT: Final = 1
# Of topics whose leader epoch was raised. A build that does not know the epoch would drop it with the next
# change of the topic's config, and clients that have seen the higher one would be refused: so it refuses the
# topic by name instead.
EPOCH_FORMAT: Final = 2
TOMBSTONE_FORMAT: Final = 1
FIRST_LEADER_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: UUID
    streams: tuple[int, ...]  # the index is the partition
    config: Mapping[str, str]  # overrides only
    created_ms: int
    settings: TopicSettings = field(compare=False, repr=False)
    replication_factor: int | None = None  # as it was asked for, and only ever shown; None: nothing was asked
    # Clients are told this one: it never goes back. Only a log that began elsewhere has one above the first.
    leader_epoch: int = FIRST_LEADER_EPOCH

    def stream_of(self, partition: int) -> int | None:
        return self.streams[partition] if 0 <= partition < len(self.streams) else None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The streams that must be closed and swept before a deleted topic is forgotten."""

    name: str
    topic_id: Annotated[HexUuid, Field(alias="id")]
    streams: tuple[int, ...]
    deleted_ms: int


@dataclass(frozen=True, slots=True)
class _StoredTopic:
    """The stored value of a topic: its name is the key, and its settings come of its config."""

    id: HexUuid
    streams: tuple[int, ...]
    config: Mapping[str, str]
    created_ms: int
    # No new format: builds from before this field read past it, and a topic that they change loses it.
    replication_factor: Annotated[int | None, NOT_IF_NONE] = None
    # Only where it is not the first, and then in a format of its own.
    leader_epoch: Annotated[int | None, NOT_IF_NONE] = None


_TOPIC_CODEC: Final = JsonCodec(_StoredTopic, EPOCH_FORMAT)
_TOMBSTONE_CODEC: Final = JsonCodec(Tombstone, TOMBSTONE_FORMAT)


def encode_topic(topic: Topic) -> bytes:
    raised = topic.leader_epoch != FIRST_LEADER_EPOCH
    return _TOPIC_CODEC.encode(
        _StoredTopic(
            topic.topic_id,
            topic.streams,
            topic.config,
            topic.created_ms,
            topic.replication_factor,
            topic.leader_epoch if raised else None,
        ),
        EPOCH_FORMAT if raised else TOPIC_FORMAT,
    )


def decode_topic(name: str, value: bytes, defaults: Mapping[str, str]) -> Topic:
    what = f"topic '{name}'"
    version, stored = _TOPIC_CODEC.decode_versioned(what, value)
    if (version == EPOCH_FORMAT) != (stored.leader_epoch is not None):
        raise ValueCorrupt(what, f"format {version} does not fit its leader epoch, {stored.leader_epoch}")
    try:
        settings = TopicSettings.of(stored.config, defaults)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueCorrupt(what, repr(error)) from error
    return Topic(
        name,
        stored.id,
        stored.streams,
        stored.config,
        stored.created_ms,
        settings,
        stored.replication_factor,
        FIRST_LEADER_EPOCH if stored.leader_epoch is None else stored.leader_epoch,
    )


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return _TOMBSTONE_CODEC.encode(tombstone)


def decode_tombstone(key: str, value: bytes) -> Tombstone:
    return _TOMBSTONE_CODEC.decode(f"the tombstone {key}", value)


# --- the part of the log that topics need


class Streams(Protocol):
    async def create_streams(self, count: int) -> list[int]:
        """Fresh stream ids; each can be appended to when this returns, before any topic names it."""

    async def close_streams(self, streams: Sequence[int]) -> None:
        """From now on no broker can append to them. Closing one that is closed or swept does nothing."""

    async def sweep_streams(self, streams: Sequence[int]) -> None:
        """Remove what closed streams left behind. Sweeping twice does nothing."""
