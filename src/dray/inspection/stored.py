"""A Dray cluster's metadata store, to be read and never written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from dray.cluster.broker import Broker, decode_broker
from dray.cluster.clock_guard import StoredBeat, decode_beat
from dray.log.entries import IndexEntry
from dray.log.entry_times import time_in
from dray.log.jobs import Job
from dray.log.stream_store import StreamStore, StreamView
from dray.metadata import keys
from dray.metadata.contract import Change, Limits, MetadataStore, Operation, Outcome, Session, StoredValue
from dray.metadata.values import UnreadableValue
from dray.topics.model import Topic, decode_topic


class ReadOnly(Exception):
    """Something that only reads was about to write: a mistake in the code."""


class ReadOnlyMetadataStore:
    """Another store, without its writes and sessions."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def limits(self) -> Limits:
        return self._store.limits

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self._store.get(domain, key)

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._store.floor(domain, key, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._store.ceiling(domain, key, prefix)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        return await self._store.scan(domain, start, end, limit)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:  # noqa: ARG002
        _refuse()

    async def barrier(self, domain: int) -> None:
        await self._store.barrier(domain)

    def watch(self, domain: int) -> AsyncIterator[Change]:
        return self._store.watch(domain)

    async def session(self, domain: int, ttl: float) -> Session:  # noqa: ARG002
        _refuse()

    async def close(self) -> None:
        await self._store.close()


def _refuse() -> NoReturn:
    raise ReadOnly("the console reads the metadata store, and never writes it")


@dataclass(frozen=True)
class EntryOf:
    """Where an offset lies."""

    entry: IndexEntry
    is_head: bool


class StoredCluster:
    def __init__(
        self, store: MetadataStore, domains: int, defaults: Mapping[str, str], producer_expiry_ms: int
    ) -> None:
        """`defaults`: the brokers' own, for topic configs."""
        self._store = ReadOnlyMetadataStore(store)
        self._defaults = defaults
        self._streams = StreamStore(self._store, domains, producer_expiry_ms)

    async def registrations(self) -> list[Broker]:
        """The registrations of brokers, as they are stored; one that this build cannot read is left out."""
        found = []
        for record in await self._scan(keys.BROKERS):
            broker_id = keys.broker_of(record.key)
            if broker_id is None:
                continue
            try:
                found.append(decode_broker(broker_id, record.value))
            except UnreadableValue:
                continue
        return found

    async def processes(self) -> list[StoredBeat]:
        """The processes that describe themselves in their beats: compactors."""
        found = []
        for record in await self._scan(keys.CLOCKS):
            try:
                beat = decode_beat(record.value)
            except UnreadableValue:
                continue
            if beat.process is not None:
                found.append(beat)
        return found

    async def topic(self, name: str) -> Topic | None:
        """None where there is none, and where this build cannot read it."""
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        if record is None:
            return None
        try:
            return decode_topic(name, record.value, self._defaults)
        except UnreadableValue:
            return None

    async def view(self, stream: int) -> StreamView | None:
        return await self._streams.view(stream)

    async def job(self, stream: int) -> Job | None:
        record = await self._store.get(self._streams.domain(stream), keys.job(stream))
        if record is None:
            return None
        try:
            return Job.decode(record.value)
        except UnreadableValue:
            return None

    async def entry_of(self, stream: int, offset: int) -> EntryOf | None:
        """The newest state of a stream is read first: its head covers whatever was filed below it."""
        mark = await self._streams.high_watermark(stream)
        if mark is None:
            return None
        head = mark.value.head
        if head is not None and head.start <= offset < head.end:
            return EntryOf(head, True)
        for found in await self._streams.entries_above(stream, offset, limit=1):
            if found.value.start <= offset < found.value.end:
                return EntryOf(found.value, False)
        return None

    async def time_of(self, topic: str, partition: int, offset: int) -> int | None:
        """When the first record from an offset on was written, to its batch or row group."""
        known = await self.topic(topic)
        stream = None if known is None else known.stream_of(partition)
        if stream is None:
            return None
        start = (await self._streams.start(stream)).value
        found = await self.entry_of(stream, max(offset, start))
        return None if found is None else time_in(found.entry, max(offset, start))

    async def _scan(self, prefix: str) -> list[StoredValue]:
        return await self._store.scan(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix))
