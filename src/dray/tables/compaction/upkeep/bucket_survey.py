"""A survey of a bucket that has no owner yet: does this metadata store know its objects?

A survey is made once for a bucket that is older than owners of buckets. WAL objects are known by their keys,
files and metadata of tables by their topic. All of these have random ids: no other cluster has the same. One
unknown object in the sample is enough to ask a person: it may be an upload that came too late, or a file of a
topic long deleted, but it may also belong to another cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeVar
from uuid import UUID

from dray.broker.topics.model import decode_topic
from dray.log.wal import PREFIX as WAL_PREFIX
from dray.log.wal import WalPath, parse_object_path
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectStore
from dray.tables.compaction.paths import PREFIX as FILES_PREFIX
from dray.tables.compaction.paths import TABLES_PREFIX, parse_file_path, parse_metadata_path

T = TypeVar("T")

_MOST_LISTED: Final = 100_000
_SAMPLE: Final = 256
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class BucketSurvey:
    listed: int  # objects that Dray wrote, by their paths; counting stops at some number
    looked_at: int
    unknown: int
    examples: tuple[str, ...]  # some of the unknown ones

    def doubt(self) -> str | None:
        """None where the bucket is empty, or this cluster's as far as that can be seen."""
        if not self.unknown:
            return None
        return f"{self.unknown} of {self.looked_at} objects looked at are unknown, such as {self.examples[0]}"


async def survey_bucket(
    store: MetadataStore, domains: int, objects: ObjectStore, random: Random
) -> BucketSurvey:
    """Lists the bucket first, then reads the metadata behind barriers: an object of this cluster is known
    before it is listed."""
    wal = await _sample(objects, WAL_PREFIX, parse_object_path, random)
    files = await _sample(objects, FILES_PREFIX, _topic_of_file, random)
    metadata = await _sample(objects, TABLES_PREFIX, _topic_of_metadata, random)
    for domain in range(domains):
        await store.barrier(domain)
    unknown = [path for path, parsed in wal.chosen if not await _knows(store, domains, parsed)]
    topics = await _topics(store) if files.chosen or metadata.chosen else set()
    unknown += [path for path, topic in [*files.chosen, *metadata.chosen] if topic not in topics]
    samples = (wal, files, metadata)
    return BucketSurvey(
        sum(sample.listed for sample in samples),
        sum(len(sample.chosen) for sample in samples),
        len(unknown),
        tuple(unknown[:_EXAMPLES]),
    )


@dataclass(slots=True)
class _Sample(Generic[T]):
    listed: int
    chosen: list[tuple[str, T]]


async def _sample(
    objects: ObjectStore, prefix: str, parse: Callable[[str], T | None], random: Random
) -> _Sample[T]:
    """A random sample of the objects listed: the oldest alone would say little about the rest."""
    sample: _Sample[T] = _Sample(0, [])
    async for info in objects.list(prefix):
        parsed = parse(info.path)
        if parsed is None:
            continue
        sample.listed += 1
        if len(sample.chosen) < _SAMPLE:
            sample.chosen.append((info.path, parsed))
        elif (place := random.randrange(sample.listed)) < _SAMPLE:
            sample.chosen[place] = info.path, parsed
        if sample.listed >= _MOST_LISTED:
            break
    return sample


def _topic_of_file(path: str) -> UUID | None:
    parsed = parse_file_path(path)
    return None if parsed is None else parsed.topic_id


def _topic_of_metadata(path: str) -> UUID | None:
    parsed = parse_metadata_path(path)
    return None if parsed is None else parsed[1]


async def _knows(store: MetadataStore, domains: int, path: WalPath) -> bool:
    if path.domain >= domains:
        return False
    if await store.get(path.domain, keys.wal_object(path.wal_id)) is not None:
        return True
    prefix = keys.references(path.wal_id)
    return bool(await store.scan(path.domain, prefix, keys.prefix_end(prefix), 1))


async def _topics(store: MetadataStore) -> set[UUID]:
    """The ids of the topics there are, and of those whose deletion is still known."""
    found: set[UUID] = set()
    for record in await store.scan(keys.CLUSTER_DOMAIN, keys.TOPICS, keys.prefix_end(keys.TOPICS)):
        try:
            found.add(decode_topic(keys.topic_of(record.key) or "", record.value, {}).topic_id)
        except UnreadableValue:
            continue  # a topic that cannot be read proves nothing: its files count as unknown
    deleted = await store.scan(keys.CLUSTER_DOMAIN, keys.DELETED_TOPICS, keys.prefix_end(keys.DELETED_TOPICS))
    return found | {topic_id for record in deleted if (topic_id := keys.deleted_topic_of(record.key))}
