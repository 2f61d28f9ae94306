"""Records that reached the source after a partition had become Dray's.

A fence does not hold for everybody: `stopped` rests on an operator's word, and super users pass an ACL. What
such a writer is told is stored there is nowhere here: it is named, and can be produced again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.client.cluster import Cluster
from dray.client.errors import RequestFailed
from dray.foreign.batches import walk_batches
from dray.protocol import ErrorCode
from dray.records import Record, decode

from .mirror import Aborted, MirrorPlace, MirrorReader
from .source import Source, SourceTopic

_MOST_UNFOLDED: Final = 256 << 20


class Straggling(NamedTuple):
    """What the source holds of a partition beyond the boundary: offsets from `start` up to before `end`."""

    start: int
    end: int


async def find_stragglers(source: Source, boundaries: Mapping[int, int]) -> dict[int, Straggling]:
    """By partition, those that have any now. Raises `RequestFailed` where a partition has no leader: what
    cannot be seen is not nothing."""
    await source.learn()
    found: dict[int, Straggling] = {}
    for partition, boundary in sorted(boundaries.items()):
        end = (await source.measure(partition)).high_watermark
        if end > boundary:
            found[partition] = Straggling(boundary, end)
    return found


@dataclass(frozen=True, slots=True)
class StragglerReader:
    """Reads them as a read_committed consumer does: neither markers nor what was aborted."""

    cluster: Cluster
    source: SourceTopic
    max_bytes: int = 8 << 20

    async def read(self, partition: int, start: int, end: int) -> AsyncIterator[Record]:
        """Those with offsets from `start` up to before `end`. It ends early where a transaction is open."""
        reader = MirrorReader(
            self.cluster, self.source, max_bytes=self.max_bytes, partition_bytes=self.max_bytes
        )
        place = MirrorPlace(start)
        while place.offset < end:
            [leader] = reader.by_leader({partition: place}) or [None]
            if leader is None:
                raise RequestFailed(
                    f"{self.source.topic}-{partition} has no leader at the source",
                    ErrorCode.LEADER_NOT_AVAILABLE,
                )
            [piece] = await reader.read(leader, {partition: place})
            for record in committed_records(piece.batches, piece.aborted):
                if start <= record.offset < end:
                    yield record
            if piece.place.offset <= place.offset:
                return
            place = MirrorPlace(piece.place.offset)


def committed_records(batches: memoryview, aborted: tuple[Aborted, ...]) -> list[Record]:
    """Of whole batches, without control records and without what an aborted transaction wrote."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    dropped: set[int] = set()
    found: list[Record] = []
    for batch in walk_batches(batches):
        producer_id = batch.header.producer_id
        while waiting and waiting[0].first_offset <= batch.last_offset:
            dropped.add(waiting.pop(0).producer_id)
        if batch.is_control:
            dropped.discard(producer_id)
            continue
        if batch.is_transactional and producer_id in dropped:
            continue
        columns = decode(
            batches[batch.position : batch.end], max_decompressed_bytes=_MOST_UNFOLDED, sparse=True
        )
        found.extend(columns.records())
    return found
