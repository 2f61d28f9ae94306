"""Which topics there are, asked anew for every cycle: a compactor is no broker and follows no watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.metadata.values import UnreadableValue
from dray.topics.model import Topic, decode_topic

_log = structlog.get_logger(__name__)


class TopicSource(Protocol):
    async def live(self) -> list[Topic]:
        """Every topic that exists, as it is now."""


class StoredTopics:
    """The topics as the metadata store holds them."""

    def __init__(self, store: MetadataStore, defaults: Mapping[str, str]) -> None:
        self._store = store
        self._defaults = defaults  # the brokers' own defaults for topic configs

    async def live(self) -> list[Topic]:
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        end = keys.prefix_end(keys.TOPICS)
        found: list[Topic] = []
        for record in await self._store.scan(keys.CLUSTER_DOMAIN, keys.TOPICS, end):
            name = keys.parse_name(record.key.removeprefix(keys.TOPICS))
            try:
                found.append(decode_topic(name, record.value, self._defaults))
            except UnreadableValue as error:
                _log.error("a topic is not compacted", topic=name, error=str(error))
        return found
