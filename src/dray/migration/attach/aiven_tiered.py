"""A segment as Aiven's tiered-storage plugin left it: a manifest, the segment in chunks, and an object with
all its indexes.

The manifest is written last, so a segment that has one is whole. It says what the segment holds; sizes are
held against what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from dray.migration.attach.found import FoundSegment, MigrationRefused, naming, thinned, thinned_times
from dray.migration.attach.reading import SourceReader
from dray.migration.formats import ForeignDamage
from dray.migration.formats.aiven import (
    LARGEST_MANIFEST,
    AivenManifest,
    read_index_part,
    read_manifest,
    unwrap_key,
)
from dray.migration.formats.kafka_files import (
    read_epochs,
    read_offset_index,
    read_time_index,
    read_transaction_index,
)
from dray.migration.formats.remote_segments import RemoteSegment, TieredName, parse_aiven
from dray.objects.contract import ObjectInfo


class KeyRing(NamedTuple):
    """Private keys (PKCS 8) by the name under which the plugin knew them."""

    keys: Mapping[str, bytes]

    def data_key(self, manifest: AivenManifest) -> bytes | None:
        if manifest.key_id is None:
            return None
        private = self.keys.get(manifest.key_id)
        if private is None:
            raise MigrationRefused(
                f"its data is encrypted with the key {manifest.key_id!r}, which is not in the key ring"
            )
        return unwrap_key(manifest.wrapped_key, private)


@dataclass(frozen=True, slots=True)
class AivenFiles:
    name: TieredName
    files: dict[str, ObjectInfo] = field(default_factory=dict)


def gather_aiven(listed: Sequence[ObjectInfo], topic: str, prefix: str = "") -> dict[UUID, list[AivenFiles]]:
    found: dict[UUID, dict[UUID, AivenFiles]] = {}
    for info in listed:
        name = parse_aiven(info.path, prefix)
        if name is not None and name.topic == topic:
            of_topic = found.setdefault(name.topic_id, {})
            of_topic.setdefault(name.segment_id, AivenFiles(name)).files[name.suffix] = info
    return {topic_id: list(segments.values()) for topic_id, segments in found.items()}


async def read_aiven(
    source: SourceReader, files: AivenFiles, keys: KeyRing, finished: Mapping[UUID, RemoteSegment] | None
) -> FoundSegment | None:
    """None where its copy was not finished."""
    if finished is not None and files.name.segment_id not in finished:
        return None
    described = files.files.get("rsm-manifest")
    if described is None:
        return None
    data = await source.whole(described, LARGEST_MANIFEST)
    with naming(described.path):
        manifest = read_manifest(data)
        _compare(manifest, files.name)
    log, indexes = files.files.get("log"), files.files.get("indexes")
    if log is None or indexes is None:
        raise MigrationRefused(f"{described.path}: its .{'indexes' if log else 'log'} is missing")
    if log.size != manifest.object_size:
        raise MigrationRefused(
            f"{log.path}: it has {log.size} bytes, its manifest says {manifest.object_size}"
        )
    parts = await source.whole(indexes)
    with naming(indexes.path):
        key = keys.data_key(manifest)
        rows = read_offset_index(
            read_index_part(manifest, "offset", parts, key) or b"", manifest.start_offset
        )
        epochs = read_epochs(read_index_part(manifest, "leaderEpoch", parts, key) or b"")
        stamped = read_index_part(manifest, "timestamp", parts, key) or b""
        times = read_time_index(stamped, manifest.start_offset)
        aborted = read_transaction_index(read_index_part(manifest, "transaction", parts, key) or b"")
        if rows and rows[-1].position >= manifest.segment_size:
            raise ForeignDamage(f"it names byte {rows[-1].position} of {manifest.segment_size}")
        if rows and rows[-1].offset > manifest.end_offset:
            raise ForeignDamage(f"it names offset {rows[-1].offset}, the last one is {manifest.end_offset}")
    first = manifest.start_offset, 0
    thin = thinned([first, *[(row.offset, row.position) for row in rows if row.position]])
    return FoundSegment(
        segment_id=manifest.segment_id,
        path=log.path,
        object_size=log.size,
        segment_size=manifest.segment_size,
        start=manifest.start_offset,
        end=manifest.end_offset + 1,
        max_timestamp=manifest.max_timestamp,
        min_timestamp=times[0].timestamp if times else -1,
        epochs=tuple(epochs),
        rows=thin,
        times=thinned_times(times, thin),
        aborted=tuple(aborted),
        state_path=described.path,
    )


def _compare(manifest: AivenManifest, name: TieredName) -> None:
    said = manifest.topic, manifest.topic_id, manifest.partition, manifest.segment_id, manifest.start_offset
    named = name.topic, name.topic_id, name.partition, name.segment_id, name.base_offset
    if said != named:
        raise ForeignDamage(f"it describes {said[0]}-{said[2]} from offset {said[4]}, and has another's name")
