"""A topic, and the two values that are stored for one: its record, and its tombstone.

A topic is *one* value under one compare-and-set, so that its partitions, their streams and its config
can never be seen half changed. Version 1 of both formats is JSON behind the version byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from dray.metadata.values import ValueCorrupt, seal_json, unseal_json
from dray.topics.settings import TopicSettings

TOPIC_FORMAT: Final = 1
TOMBSTONE_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: UUID
    streams: tuple[int, ...]  # the index is the partition
    config: Mapping[str, str]  # overrides only
    created_ms: int
    settings: TopicSettings = field(compare=False, repr=False)
    replication_factor: int | None = None  # as it was asked for, and only ever shown; None: nothing was asked

    def stream_of(self, partition: int) -> int | None:
        return self.streams[partition] if 0 <= partition < len(self.streams) else None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What must be closed and swept before a deleted topic is forgotten."""

    name: str
    topic_id: UUID
    streams: tuple[int, ...]
    deleted_ms: int


def encode_topic(topic: Topic) -> bytes:
    fields: dict[str, Any] = {
        "id": topic.topic_id.hex,
        "streams": topic.streams,
        "config": dict(topic.config),
        "created_ms": topic.created_ms,
    }
    if topic.replication_factor is not None:
        # No new format: builds from before this field read past it, and a topic that they change loses it.
        fields["replication_factor"] = topic.replication_factor
    return seal_json(TOPIC_FORMAT, fields)


def decode_topic(name: str, value: bytes, defaults: Mapping[str, str]) -> Topic:
    what = f"topic '{name}'"
    _, fields = unseal_json(what, value, TOPIC_FORMAT)
    try:
        config = {str(key): str(text) for key, text in fields["config"].items()}
        asked = fields.get("replication_factor")
        return Topic(
            name=name,
            topic_id=UUID(hex=fields["id"]),
            streams=_streams(fields),
            config=config,
            created_ms=int(fields["created_ms"]),
            settings=TopicSettings.of(config, defaults),
            replication_factor=None if asked is None else int(asked),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueCorrupt(what, repr(error)) from error


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return seal_json(
        TOMBSTONE_FORMAT,
        {
            "name": tombstone.name,
            "id": tombstone.topic_id.hex,
            "streams": tombstone.streams,
            "deleted_ms": tombstone.deleted_ms,
        },
    )


def decode_tombstone(key: str, value: bytes) -> Tombstone:
    what = f"the tombstone {key}"
    _, fields = unseal_json(what, value, TOMBSTONE_FORMAT)
    try:
        return Tombstone(
            name=str(fields["name"]),
            topic_id=UUID(hex=fields["id"]),
            streams=_streams(fields),
            deleted_ms=int(fields["deleted_ms"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueCorrupt(what, repr(error)) from error


def _streams(fields: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(stream) for stream in fields["streams"])
