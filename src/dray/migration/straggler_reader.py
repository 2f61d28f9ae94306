"""The records behind the boundary at the source, as a read_committed consumer would see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dray.client.cluster import Cluster
from dray.foreign.batches import walk_batches
from dray.log.foreign_pieces import as_data
from dray.records import BatchHeader, Record, decode
from dray.upstream.mirror import Aborted, MirrorPlace, MirrorReader
from dray.upstream.source import SourceTopic, no_leader

_MOST_UNFOLDED: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class StragglerReader:
    """Reads them as a read_committed consumer does: neither markers nor what was aborted."""

    cluster: Cluster
    source: SourceTopic
    max_bytes: int = 8 << 20
    is_here: Callable[[int, BatchHeader], bool] = lambda *_: False
    """Is a batch that is there in Dray's log of the partition too?"""

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[Record, None]:
        """Those with offsets from `start` up to before `end`. It ends early where a transaction is open."""
        reader = MirrorReader(
            self.cluster, self.source, max_bytes=self.max_bytes, partition_bytes=self.max_bytes
        )
        place = MirrorPlace(start)
        while place.offset < end:
            [leader] = reader.by_leader({partition: place}) or [None]
            if leader is None:
                raise no_leader(self.source.topic, partition)
            [piece] = await reader.read(leader, {partition: place})
            here = partial(self.is_here, partition)
            for record in committed_records(piece.batches, piece.aborted, here):
                if start <= record.offset < end:
                    yield record
            if piece.place.offset <= place.offset:
                return
            place = MirrorPlace(piece.place.offset)


def committed_records(
    batches: memoryview,
    aborted: Sequence[Aborted],
    is_here: Callable[[BatchHeader], bool] = lambda _: False,
) -> list[Record]:
    """Of whole batches, without control records and without what an aborted transaction wrote; nor what is
    here."""
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
        if (batch.is_transactional and producer_id in dropped) or is_here(batch.header):
            continue
        plain = as_data(batches[batch.position : batch.end], with_producer=False)
        columns = decode(plain, max_decompressed_bytes=_MOST_UNFOLDED, sparse=True)
        found.extend(columns.records())
    return found
