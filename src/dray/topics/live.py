"""Which topics there are, asked anew for every cycle: a compactor is no broker and follows no watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import structlog

from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.metadata.values import UnreadableValue
from dray.topics.model import Topic, decode_topic
from dray.topics.table_names import TableNames

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LiveTopics:
    """Every topic that exists, at one moment."""

    known: list[Topic]
    unreadable: frozenset[str] = frozenset()
    """Names of those that are there and that this build cannot read: nothing of theirs is garbage."""

    def are_without(self, name: str, topic_id: UUID) -> bool:
        """Whether the topic is certainly gone, or another has its name by now."""
        return name not in self.unreadable and all(topic.topic_id != topic_id for topic in self.known)


class TopicSource(Protocol):
    async def live(self) -> LiveTopics:
        """Every topic that exists, as it is now."""


class StoredTopics:
    """The topics as the metadata store holds them."""

    def __init__(
        self, store: MetadataStore, defaults: Mapping[str, str], tables: TableNames | None = None
    ) -> None:
        """`tables`: which names become tables; not asked where it is left out, as in brokers."""
        self._tables = tables
        self._excluded: set[UUID] = set()  # topics already logged as not becoming tables
        self._store = store
        self._defaults = defaults  # the brokers' own defaults for topic configs

    async def live(self) -> LiveTopics:
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        end = keys.prefix_end(keys.TOPICS)
        known: list[Topic] = []
        unreadable: set[str] = set()
        for record in await self._store.scan(keys.CLUSTER_DOMAIN, keys.TOPICS, end):
            name = keys.topic_of(record.key)
            if name is None:
                continue
            try:
                known.append(self._with_table_or_not(decode_topic(name, record.value, self._defaults)))
            except UnreadableValue as error:
                _log.error("a topic is neither compacted nor retained", topic=name, error=str(error))
                unreadable.add(name)
        self._excluded &= {topic.topic_id for topic in known}
        return LiveTopics(known, frozenset(unreadable))

    def _with_table_or_not(self, topic: Topic) -> Topic:
        """The topic with its table on or off. If its name keeps it from becoming a table, that is logged once
        per topic."""
        if self._tables is None:
            return topic
        seen = self._tables.applied_to(topic)
        if seen is not topic and topic.topic_id not in self._excluded:
            self._excluded.add(topic.topic_id)
            pattern = self._tables.pattern_of(topic)
            _log.info("a topic does not become a table", topic=topic.name, iceberg_exclude_topics=pattern)
        return seen
