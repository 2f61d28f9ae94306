"""What happens without each rule of streams that began elsewhere: one small patch for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from tests.simulation.noticing import Mutation

from dray.log.entries import HighWatermark, IndexEntry
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.migration.attach import inventory, kafka_tiered
from dray.migration.entries import kind as foreign_reader
from dray.migration.entries import lay_down as foreign_attach
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.mirror import switching


def append_while_the_source_owns_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HighWatermark, "is_classic", False)


def switch_without_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switching, "Put", lambda key, value, _: Put(key, value))


def forget_the_boundary(patch: pytest.MonkeyPatch) -> None:
    genuine = HighWatermark.at.__func__  # type: ignore[attr-defined]

    def at(cls: type[HighWatermark], head: IndexEntry, _: Any = None) -> HighWatermark:
        mark: HighWatermark = genuine(cls, head)
        return mark

    patch.setattr(HighWatermark, "at", classmethod(at))


def drop_the_aborted_list(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(foreign_reader, "aborted_in", lambda *_: [])


def attach_without_producers(patch: pytest.MonkeyPatch) -> None:
    def nothing(_: Any, end: int, expiry_ms: int) -> ProducerSnapshot:
        return ProducerSnapshot(end, ProducerStates(expiry_ms))

    patch.setattr(foreign_attach, "snapshot_of", nothing)


def leave_overlaps(patch: pytest.MonkeyPatch) -> None:
    genuine = foreign_attach._entries_of

    def untrimmed(segment: Any, *arguments: Any) -> list[IndexEntry]:
        found = genuine(segment, *arguments)
        return [replace(found[0], start=min(found[0].start, segment.rows[0][0])), *found[1:]]

    patch.setattr(foreign_attach, "_entries_of", untrimmed)


def adopt_without_references(patch: pytest.MonkeyPatch) -> None:
    async def own(self: ForeignOwnership, stream: int, segment_id: Any, _: Any, owned: bytes) -> None:
        await self._store.write(stream, [Put(keys.wal_object(segment_id), owned)])

    patch.setattr(ForeignOwnership, "_own_segment", own)


def attach_unfinished_segments(patch: pytest.MonkeyPatch) -> None:
    """What Kafka says of its copies is not asked."""
    genuine = kafka_tiered.read_local

    async def whole(source: Any, files: Any, _: Any) -> Any:
        return await genuine(source, files, None)

    patch.setattr(inventory, "read_local", whole)


MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    mutation.__name__: (mutation, seed)
    for mutation, seed in (
        (append_while_the_source_owns_the_log, 0),
        (switch_without_version, 14),
        (forget_the_boundary, 0),
        (drop_the_aborted_list, 0),
        (attach_without_producers, 0),
        (leave_overlaps, 0),
        (adopt_without_references, 0),
    )
}
"""By name, each with the seed from which on it is looked for."""

CHOICE_MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    attach_unfinished_segments.__name__: (attach_unfinished_segments, 0)
}
"""Of what is chosen for an attach: `unfinished_segments.py`."""
