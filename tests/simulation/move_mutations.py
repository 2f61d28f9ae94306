"""What happens without each rule of a live move: one small patch for each, and the seed that notices it.

The ten of the design (section 5 of the migration's design): `append_while_the_source_owns_the_log`,
`switch_without_version`, `boundary_before_the_fence`, `no_probe`, `mirror_without_producers` (the mirror's;
the attach's is in `foreign_mutations.py`), `aborted_list_dropped`, `group_copied_after_it_moved` are here;
`attach_without_producers`, `leave_overlaps`, `adopt_without_references` and `attach_unfinished_segments` are
about cold segments, and in `foreign_mutations.py`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.simulation.noticing import Mutation

from dray.daemon.live_topic import KafkaTopic
from dray.groups.coordinator.copies import StoredCopy
from dray.log import mirrored_pieces, mirroring, switching
from dray.log.entries import HighWatermark
from dray.log.mirror_states import MirrorStates
from dray.metadata.contract import Put
from dray.protocol.messages.fetch import FetchPartition
from dray.upstream import mirror as upstream_mirror
from dray.upstream.partition_switch import PartitionSwitch
from dray.upstream.source import SourceEnd, SourceTopic
from dray.upstream.switch import TopicSwitch


def append_while_the_source_owns_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HighWatermark, "is_classic", False)


def switch_without_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switching, "Put", lambda key, value, _: Put(key, value))


def boundary_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    """What the source's high watermark was before the fence went up is its end."""
    seen: dict[tuple[int, int], int] = {}
    genuine, put_up = SourceTopic.measure, TopicSwitch._decided

    async def looked(self: TopicSwitch) -> dict[int, int]:
        for partition in self.source.leaderships:
            if isinstance(self.source, SourceTopic):
                end = await genuine(self.source, partition)
                seen[id(self.source), partition] = end.high_watermark
        return await put_up(self)

    async def measured(self: SourceTopic, partition: int) -> SourceEnd:
        now = await genuine(self, partition)
        top = seen.get((id(self), partition), now.high_watermark)
        return SourceEnd(now.leadership, now.start, top, top, top)

    patch.setattr(TopicSwitch, "_decided", looked)
    patch.setattr(SourceTopic, "measure", measured)


def no_probe(patch: pytest.MonkeyPatch) -> None:
    genuine = KafkaTopic.fence

    def unprobed(self: KafkaTopic, kind: str, undo: Any) -> Any:
        fence = genuine(self, kind, undo)
        object.__setattr__(fence, "is_probed", False)
        return fence

    patch.setattr(KafkaTopic, "fence", unprobed)


def end_by_high_watermark(patch: pytest.MonkeyPatch) -> None:
    genuine = SourceTopic.measure

    async def measured(self: SourceTopic, partition: int) -> SourceEnd:
        now = await genuine(self, partition)
        top = now.high_watermark
        return SourceEnd(now.leadership, now.start, top, top, top)

    patch.setattr(SourceTopic, "measure", measured)


def mirror_without_producers(patch: pytest.MonkeyPatch) -> None:
    """The snapshot says that it covers what was mirrored, and has nothing of it."""
    genuine = MirrorStates.put_snapshot

    async def put(self: MirrorStates, stream: int, state: Any, **options: Any) -> None:
        state.producers = type(state.producers)(state.producers.expiry_ms)
        await genuine(self, stream, state, **options)

    patch.setattr(MirrorStates, "put_snapshot", put)
    patch.setattr(PartitionSwitch, "compared", _content)


def _content(self: PartitionSwitch, *_: object) -> None:
    self._compared = True


def aborted_list_dropped(patch: pytest.MonkeyPatch) -> None:
    genuine = mirrored_pieces.pieces_of

    def without(batches: Any, end: int, _: Any, *rest: Any, **options: Any) -> Any:
        return genuine(batches, end, (), *rest, **options)

    patch.setattr(mirroring, "pieces_of", without)


def history_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Neither the mirror nor the switch asks whether the source's history is still the one that was read."""

    async def never(_: SourceTopic, __: int, ___: int) -> int:
        return 1 << 60

    patch.setattr(SourceTopic, "end_of_epoch", never)
    patch.setattr(upstream_mirror, "FetchPartition", _without_epoch)


def _without_epoch(**fields: Any) -> FetchPartition:
    return FetchPartition(**{**fields, "last_fetched_epoch": -1})


def lifted_without_forbidding(patch: pytest.MonkeyPatch) -> None:
    """A migrator lifts the fence while a decision of another may still apply."""

    async def nothing(_: KafkaTopic, __: int) -> None:
        return None

    patch.setattr(KafkaTopic, "forbid", nothing)


def group_copied_after_it_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredCopy, "has_moved", False)


MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    mutation.__name__: (mutation, seed)
    for mutation, seed in (
        (append_while_the_source_owns_the_log, 2),
        (switch_without_version, 2),
        (mirror_without_producers, 29),
        (aborted_list_dropped, 7),
        (history_not_compared, 28),
    )
}
"""By name, each with the seed from which on it is looked for."""

CANDIDATES: Final = (no_probe, boundary_before_the_fence)
