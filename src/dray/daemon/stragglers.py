"""`drayd migrate stragglers`: records that reached the source of a topic after it had become Dray's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from dray.client.cluster import Address, Cluster
from dray.client.errors import ClientError, RequestFailed, check
from dray.client.properties import ClientSecurity
from dray.client.records import produce as produce_to
from dray.config import Settings
from dray.daemon import migration
from dray.daemon.settings import log_settings
from dray.daemon.source_looks import SourcePatience
from dray.daemon.stores import open_stores, read_cluster
from dray.daemon.upstream_clusters import UnknownUpstream, UpstreamClusters
from dray.log.counters import decode as decode_counter
from dray.log.counters import id_space
from dray.log.producer_state import SEQUENCES, ProducerStates
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.migration.following import boundaries_of
from dray.migration.found import MigrationRefused
from dray.migration.record import MigrationRecord, Migrations
from dray.migration.straggler_reader import StragglerReader
from dray.migration.stragglers import ProducedStragglers, left_of, produce_again
from dray.protocol import ZERO_UUID, ErrorCode
from dray.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.records import NO_PRODUCER, BatchHeader
from dray.runtime import Runtime
from dray.upstream.mirror import MirrorStopped
from dray.upstream.source import SourceTopic
from dray.upstream.stragglers import Straggling, find_stragglers

REFUSALS: Final = (UnknownUpstream, RequestFailed, ClientError, MirrorStopped)
MOST_SHOWN: Final = 100
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Straggler:
    partition: int
    offset: int
    """At the source."""
    timestamp: int
    key: bytes | None
    size: int
    """Of key and value."""


@dataclass(frozen=True, slots=True)
class StragglersLeft:
    """`ranges` are the offsets at the source that were not produced again, by partition. Some of them may be
    of markers, or of what was aborted, or of records that are here too."""

    ranges: Mapping[int, Straggling]
    shown: Sequence[Straggler]
    are_all: bool
    """Whether no record is left but those that are shown."""

    @property
    def undecided(self) -> list[int]:
        """Partitions in which a transaction is open: what of it is a straggler is not known yet."""
        return [partition for partition, each in self.ranges.items() if each.decided < each.end]


def look(
    settings: Settings, topic: str, said: Callable[[str], None], most: int = MOST_SHOWN
) -> StragglersLeft:
    """Nothing is changed anywhere. `said` gets a line when the source makes us wait."""

    async def work(runtime: Runtime) -> StragglersLeft:
        async with _opened(settings, runtime, topic) as found:
            return await SourcePatience(topic, runtime, said).ask(found.cluster, lambda: _look(found, most))

    return migration.run(work, REFUSALS)


async def _look(found: _Opened, most: int) -> StragglersLeft:
    shown: list[Straggler] = []
    ranges = await found.left()
    for partition, each in ranges.items():
        async with aclosing(found.reader.read(partition, each.start, each.decided)) as records:
            async for record in records:
                if len(shown) == most:
                    return StragglersLeft(ranges, shown, are_all=False)
                size = len(record.key or b"") + len(record.value or b"")
                shown.append(Straggler(partition, record.offset, record.timestamp, record.key, size))
    return StragglersLeft(ranges, shown, are_all=True)


def produce(
    settings: Settings,
    topic: str,
    bootstrap: Sequence[Address],
    security: ClientSecurity,
    said: Callable[[str], None],
) -> int:
    """All that are left are produced to the topic at Dray, once. How many this call has sent."""

    async def work(runtime: Runtime) -> int:
        async with _opened(settings, runtime, topic) as found:
            ranges = await SourcePatience(topic, runtime, said).ask(found.cluster, found.left)
            if not ranges:
                return 0
            dial = security.dialer("drayd-migrate", runtime)
            async with Cluster(bootstrap, dial, runtime) as cluster:
                return await produce_again(
                    found.reader,
                    ranges,
                    found.produced,
                    lambda: _producer(cluster),
                    lambda partition, batch: _send(cluster, topic, partition, batch),
                )

    return migration.run(work, REFUSALS)


async def _producer(cluster: Cluster) -> tuple[int, int]:
    answer = await cluster.request(InitProducerIdRequest(transactional_id=None))
    check("cannot get a producer id", answer.error_code)
    return answer.producer_id, answer.producer_epoch


async def _send(cluster: Cluster, topic: str, partition: int, batch: bytes) -> None:
    """A batch that is there already counts as sent: it is one whose answer was lost."""

    async def attempt() -> None:
        if not cluster.view.by_leader([(topic, partition)]):
            await cluster.learn([topic])
        for leader in cluster.view.by_leader([(topic, partition)]):
            async with cluster.broker(leader) as broker:
                await produce_to(broker, topic, cluster.view.topic_ids[topic], {partition: batch})
            return
        raise RequestFailed(f"{topic}-{partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)

    try:
        await cluster.patiently(attempt, _PATIENCE_SECONDS)
    except RequestFailed as failure:
        if failure.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise


@dataclass(frozen=True, slots=True)
class _Opened:
    record: MigrationRecord
    cluster: Cluster
    source: SourceTopic
    reader: StragglerReader
    boundaries: Mapping[int, int]
    produced: ProducedStragglers
    known: KnownHere

    async def left(self) -> dict[int, Straggling]:
        progress = await self.produced.read()
        found = await find_stragglers(self.source, self.boundaries)
        topic, expected = self.source.topic, self.record.source_topic_id or ZERO_UUID
        if expected != ZERO_UUID and self.cluster.view.topic_ids.get(topic) != expected:
            raise MigrationRefused(
                f"topic {topic} at the source is another one by now: nothing is known of late records"
            )
        left = left_of(found, progress)
        await self.known.look(left)
        return left


class KnownHere:
    """Batches behind the boundary at the source that are in Dray's log too. A broker that stood still may
    have passed one on to a source whose writers were only said to be stopped; it is appended here then, and
    no producer was told of the other."""

    def __init__(self, streams: StreamStore, numbers: Sequence[int], metadata: MetadataStore) -> None:
        self._streams = streams
        self._numbers = numbers  # by partition
        self._metadata = metadata
        self._producers: dict[int, ProducerStates] = {}
        self._space = -1

    async def look(self, partitions: Collection[int]) -> None:
        """Raises `LogError`, `MetadataError`."""
        for partition in partitions:
            state = await load_stream_state(self._streams, self._numbers[partition])
            self._producers[partition] = state.producers
        counter = await self._metadata.get(keys.CLUSTER_DOMAIN, keys.PRODUCER_COUNTER)
        self._space = -1 if counter is None else id_space(decode_counter(counter.value))

    def is_here(self, partition: int, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER:
            return False
        if id_space(header.producer_id) == self._space:
            return True  # Dray gave the id: only a broker of Dray has sent it there
        return self._producers[partition].has_reached(
            header.producer_id,
            header.producer_epoch,
            (header.base_sequence + header.last_offset_delta) % SEQUENCES,
        )


@asynccontextmanager
async def _opened(settings: Settings, runtime: Runtime, topic: str) -> AsyncIterator[_Opened]:
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        record = await Migrations(stores.metadata, runtime).read(topic)
        if record is None or record.upstream is None:
            raise MigrationRefused(f"topic {topic} was not linked: drayd migrate status")
        knobs = log_settings(settings)
        streams = StreamStore(stores.metadata, cluster.domains, knobs.producer_expiry_ms)
        boundaries = await _boundaries(streams, topic, record)
        upstream = UpstreamClusters(settings, runtime).open(record.upstream)
        async with upstream:
            source = SourceTopic(upstream, topic)
            known = KnownHere(streams, record.streams, stores.metadata)
            reader = StragglerReader(upstream, source, is_here=known.is_here)
            produced = ProducedStragglers(stores.metadata, runtime, topic, record.topic_id)
            yield _Opened(record, upstream, source, reader, boundaries, produced, known)
    finally:
        await stores.close()


async def _boundaries(streams: StreamStore, topic: str, record: MigrationRecord) -> Mapping[int, int]:
    found = await boundaries_of(streams, record)
    if len(found) < record.partitions:
        raise MigrationRefused(
            f"topic {topic} is {record.state}: the source owns it, and none of its records is late"
        )
    return found
