"""The topics this broker knows: read without waiting on the hot path. They may be behind the store.

Being behind is safe. An append by a stale entry goes to a stream that is closed or still the topic's;
the handler that meets a closed stream re-reads and answers by what it then finds.

A topic whose record this build cannot read is *unreadable*, which is neither known nor absent: asking for it
raises, and its name stays taken. Only a record that is not there says that a topic is gone.

Reads overlap, so each takes a ticket when it starts, and what it found is dropped if something newer
is known: a slow read must not bring back a topic that a faster one already saw deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import AT_A_TIME, Runtime, in_turns
from dray.broker.topics.model import Topic, decode_topic
from dray.broker.topics.names import unified
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore, StoredValue
from dray.metadata.values import UnreadableValue

_log = structlog.get_logger(__name__)

_IN_A_TURN: Final = 1_000


class TopicCache:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        defaults: Mapping[str, str],
        unknown_id_pause: float,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._defaults = defaults
        self._unknown_id_pause = unknown_id_pause
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self.unreadable: dict[str, str] = {}  # by name: what is wrong with its record
        self.changes = 0  # moves with every topic that comes, goes, is altered or becomes unreadable
        self._by_unified: dict[str, set[str]] = {}
        self._versions: dict[str, int] = {}
        self._ticket = 0
        self._applied: dict[str, int] = {}  # the ticket of what is known of a name
        self._applied_all = 0  # the ticket of the last scan: what is known of every other name
        self._reading: asyncio.Task[MetadataError | None] | None = None
        self._read_started = float("-inf")
        self._scans = 0
        self._lookups = asyncio.Semaphore(AT_A_TIME)

    # --- what is known now

    def colliding(self, name: str) -> str | None:
        """An existing topic whose name differs from `name` only by '.' and '_'."""
        others = self._by_unified.get(unified(name), set()) - {name}
        return min(others, default=None)

    # --- reading

    async def refresh(self, name: str, *, barrier: bool = False) -> Topic | None:
        """Raises `UnreadableValue` for a topic that is there and cannot be read."""
        if barrier:
            await self._store.barrier(keys.CLUSTER_DOMAIN)
        await self._read(name)
        if (fault := self.unreadable.get(name)) is not None:
            raise UnreadableValue(fault)
        return self.by_name.get(name)

    async def _read(self, name: str) -> None:
        ticket = self._next_ticket()
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        self._apply(name, record, ticket)

    async def refresh_id(self, topic_id: UUID) -> Topic | None:
        """There is no index by id: an unknown one costs a scan, shared, not repeated at once. Its end wakes
        some of those who wait in a turn. Raises `UnreadableValue` where the id may be that of a topic that
        cannot be read."""
        async with self._lookups:
            if self._runtime.monotonic() - self._read_started >= self._unknown_id_pause:
                await self.refresh_all()
            elif self._reading is not None and (error := await asyncio.shield(self._reading)) is not None:
                raise error
        topic = self.by_id.get(topic_id)
        if topic is None and self.unreadable:
            raise UnreadableValue(next(iter(self.unreadable.values())))
        return topic

    async def refresh_key(self, key: str) -> None:
        """Read one topic again, for a watch. A topic that cannot be read is noted, and is no failure."""
        if (name := keys.topic_of(key)) is not None:
            await self._read(name)

    async def refresh_all(self) -> None:
        """Callers that come while a scan is under way share the one that starts after it."""
        asked = self._scans
        while True:
            reading = self._reading
            if reading is None or reading.done():
                self._scans += 1
                self._read_started = self._runtime.monotonic()
                reading = self._reading = self._runtime.spawn(self._scan(), "read all topics")
            if self._scans > asked:
                if (error := await asyncio.shield(reading)) is not None:
                    raise error
                return
            await asyncio.wait([reading])

    async def _scan(self) -> MetadataError | None:
        """An error is returned, not raised: it is the answer to all callers that share this task."""
        ticket = self._next_ticket()
        try:
            records = await self._store.scan(keys.CLUSTER_DOMAIN, keys.TOPICS, keys.prefix_end(keys.TOPICS))
        except MetadataError as error:
            return error
        found = {name: record for record in records if (name := keys.topic_of(record.key)) is not None}
        await in_turns(self._applying(found, ticket))
        self._applied_all = max(self._applied_all, ticket)
        self._applied = {name: known for name, known in self._applied.items() if known > ticket}
        return None

    # --- applying

    def _applying(self, found: Mapping[str, StoredValue], ticket: int) -> Generator[None, None, None]:
        """A later ticket keeps what comes meanwhile."""
        names = [*self._versions, *(name for name in found if name not in self._versions)]
        for number, name in enumerate(names, 1):
            self._apply(name, found.get(name), ticket)
            if not number % _IN_A_TURN:
                yield

    def wrote(self, topic: Topic, version: int) -> None:
        """This broker's own write is newer than every read that started before it returned."""
        self._applied[topic.name] = self._next_ticket()
        self._remember(topic, version)

    def deleted(self, name: str) -> None:
        self._applied[name] = self._next_ticket()
        self._forget(name)

    def _next_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _apply(self, name: str, record: StoredValue | None, ticket: int) -> None:
        if ticket <= max(self._applied.get(name, 0), self._applied_all):
            return
        self._applied[name] = ticket
        if record is None:
            self._forget(name)
            return
        if self._versions.get(name) == record.version:
            return
        try:
            topic = decode_topic(name, record.value, self._defaults)
        except UnreadableValue as error:
            # One topic of a newer build must not take the others away from this broker.
            _log.error("a topic cannot be read, and is not served", topic=name, error=str(error))
            self._forget(name)
            self.changes += 1
            self.unreadable[name] = str(error)
            self._occupy(name, record.version)
            return
        self._remember(topic, record.version)

    def _remember(self, topic: Topic, version: int) -> None:
        self._forget(topic.name)
        self.changes += 1
        self.by_name[topic.name] = topic
        self.by_id[topic.topic_id] = topic
        self._occupy(topic.name, version)

    def _occupy(self, name: str, version: int) -> None:
        self._by_unified.setdefault(unified(name), set()).add(name)
        self._versions[name] = version

    def _forget(self, name: str) -> None:
        if self._versions.pop(name, None) is None:
            return
        self.changes += 1
        self.unreadable.pop(name, None)
        if (topic := self.by_name.pop(name, None)) is not None:
            self.by_id.pop(topic.topic_id, None)
        names = self._by_unified[unified(name)]
        names.discard(name)
        if not names:
            del self._by_unified[unified(name)]
