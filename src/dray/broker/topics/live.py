"""The topics that exist, asked anew for every cycle (a compactor is no broker and follows no watch), and
which of them become tables.

Topics in which tools keep their own state do not: such a table has no use. A topic's own config
`dray.iceberg.enabled` decides, either way. If it says nothing, the topic's name does, and then the cluster's
default.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Protocol
from uuid import UUID

import structlog

from dray.base.runtime import in_turns
from dray.broker.topics.model import Topic, decode_topic
from dray.metadata import keys
from dray.metadata.contract import MetadataStore, StoredValue
from dray.metadata.values import UnreadableValue

_IN_A_TURN: Final = 1_000

ENABLED: Final = "dray.iceberg.enabled"


class TableNames:
    """Patterns of names of topics that do not become tables: `*` is any text, `?` any character."""

    def __init__(self, without: Sequence[str]) -> None:
        self._without = tuple(without)

    def applied_to(self, topic: Topic) -> Topic:
        """The topic with settings that say whether it becomes a table."""
        if not topic.settings.iceberg_enabled or self.pattern_of(topic) is None:
            return topic
        return replace(topic, settings=replace(topic.settings, iceberg_enabled=False))

    def pattern_of(self, topic: Topic) -> str | None:
        """The pattern that keeps the topic from becoming a table, if one does."""
        if ENABLED in topic.config:
            return None
        return next((pattern for pattern in self._without if fnmatchcase(topic.name, pattern)), None)

    def why_not(self, topic: Topic, defaults: Mapping[str, str]) -> str | None:
        """Why the topic does not become a table, and what to do about it; None if it does."""
        if (pattern := self.pattern_of(topic)) is not None:
            return (
                f"its name matches {pattern} of iceberg.exclude_topics; "
                f"set {ENABLED}=true on the topic if it is to have one"
            )
        if topic.settings.iceberg_enabled:
            return None
        if ENABLED in topic.config:
            return f"the topic's config has {ENABLED}={topic.config[ENABLED]}"
        return f"topics.defaults has {ENABLED}={defaults[ENABLED]}; set it to true on the topic"


# --- the topics of a cycle

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
        records = await self._store.scan(keys.CLUSTER_DOMAIN, keys.TOPICS, end)
        return await in_turns(self._decoding(records))

    def _decoding(self, records: Sequence[StoredValue]) -> Generator[None, None, LiveTopics]:
        known: list[Topic] = []
        unreadable: set[str] = set()
        for number, record in enumerate(records, 1):
            if not number % _IN_A_TURN:
                yield
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
