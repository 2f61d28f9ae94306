"""`drayd migrate stragglers`: records that reached the source of a topic after it had become Dray's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from dray.base.runtime import Runtime
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.stores import open_stores, read_cluster
from dray.daemons.config import Settings
from dray.daemons.migrator import migration
from dray.daemons.migrator.source_looks import SourcePatience
from dray.daemons.migrator.upstream_clusters import UnknownUpstream, UpstreamClusters
from dray.kafka.client.cluster import Address, Cluster
from dray.kafka.client.errors import ClientError, RequestFailed, check
from dray.kafka.client.properties import ClientSecurity
from dray.kafka.client.records import produce as produce_to
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.log.stream_store import StreamStore
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.stragglers import (
    KnownHere,
    ProducedStragglers,
    StragglerReader,
    Stragglers,
    StragglersLeft,
    produce_again,
)
from dray.migration.live.switch import boundaries_of
from dray.migration.record import MigrationRecord, Migrations
from dray.migration.source.mirror import MirrorStopped
from dray.migration.source.source import SourceTopic

REFUSALS: Final = (UnknownUpstream, RequestFailed, ClientError, MirrorStopped)
MOST_SHOWN: Final = 100
_PATIENCE_SECONDS: Final = 60.0


def look(
    settings: Settings, topic: str, said: Callable[[str], None], most: int = MOST_SHOWN
) -> StragglersLeft:
    """Nothing is changed anywhere. `said` gets a line when the source makes us wait."""

    async def work(runtime: Runtime) -> StragglersLeft:
        async with _opened(settings, runtime, topic) as found:
            return await SourcePatience(topic, runtime, said).ask(found.cluster, lambda: found.look(most))

    return migration.run(work, REFUSALS)


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


@asynccontextmanager
async def _opened(settings: Settings, runtime: Runtime, topic: str) -> AsyncIterator[Stragglers]:
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
            yield Stragglers(upstream, source, record.source_topic_id, boundaries, reader, known, produced)
    finally:
        await stores.close()


async def _boundaries(streams: StreamStore, topic: str, record: MigrationRecord) -> Mapping[int, int]:
    found = await boundaries_of(streams, record)
    if len(found) < record.partitions:
        raise MigrationRefused(
            f"topic {topic} is {record.state}: the source owns it, and none of its records is late"
        )
    return found
