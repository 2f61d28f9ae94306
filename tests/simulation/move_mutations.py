"""What happens without each rule of a live move: one small patch for each, and the seed that notices it.

Of the ten that the design names, `append_while_the_source_owns_the_log`, `mirror_without_producers` (no
snapshot), `aborted_list_dropped`, `boundary_before_the_fence`, `no_probe` and `group_copied_after_it_moved`
are here; all but two of them in runs that lay a trap for them (`simulation/dray_simulation/kinds.py`).
`foreign_mutations.py` has `switch_without_version`, `leave_overlaps`, `adopt_without_references` and
`attach_unfinished_segments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from tests.simulation.noticing import Mutation

from dray.kafka.protocol.messages.fetch import FetchPartition
from dray.log.append.failed_sequences import FailedSequences
from dray.log.entries import HighWatermark
from dray.log.producer_state import ProducerStates
from dray.migration.entries.kind import ForeignEntries
from dray.migration.groups.copies import StoredCopy
from dray.migration.live import switch
from dray.migration.live.migration import LiveMigration
from dray.migration.live.switch import TopicSwitch
from dray.migration.mirror import mirrored_pieces, mirroring
from dray.migration.mirror.mirror_states import MirrorStates
from dray.migration.mirror.mirroring import StreamMirror
from dray.migration.record import MigrationRecord
from dray.migration.source import mirror as upstream_mirror
from dray.migration.source.partition_switch import PartitionSwitch
from dray.migration.source.source import Probe, SourceTopic, all_of
from dray_simulation.kinds import (
    Trap,
    forgotten_consumers,
    late_fence,
    late_lift,
    lost_answers,
    overtaken,
    silent_producers,
    slow_fence,
    slow_mirror,
)


def append_while_the_source_owns_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HighWatermark, "is_classic", False)


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

    async def never(_: SourceTopic, epochs: Mapping[int, int]) -> dict[int, int]:
        return dict.fromkeys(epochs, 1 << 60)

    patch.setattr(SourceTopic, "ends_of_epochs", never)
    patch.setattr(upstream_mirror, "FetchPartition", _without_epoch)


def no_probe(patch: pytest.MonkeyPatch) -> None:
    """The fence is believed in once the source has said that it is up."""
    patch.setattr(switch, "PartitionSwitch", lambda _, moment: PartitionSwitch(False, moment))


def boundary_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    """The fence is seen up before a partition is decided; but its end was measured before that."""
    genuine = TopicSwitch._decide

    async def decide(self: TopicSwitch, partition: int, ready: PartitionSwitch) -> int:
        while all_of(await self.source.probe([partition]))[partition][1] is Probe.OPEN:
            await self.runtime.sleep(self.pause_seconds)
        return await genuine(self, partition, ready)

    no_probe(patch)
    patch.setattr(TopicSwitch, "_decide", decide)


def lift_late(patch: pytest.MonkeyPatch) -> None:
    """A migrator lifts a fence, whatever the record says by now."""
    genuine = LiveMigration.lift

    async def lift(self: LiveMigration, record: MigrationRecord) -> None:
        is_same = self._is_same

        async def looked(found: MigrationRecord) -> bool:
            await is_same(found)
            return True

        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(self, "_is_same", looked)
            await genuine(self, record)

    patch.setattr(LiveMigration, "lift", lift)


def fence_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """Once a fence is lifted, nobody looks whether a call that was on its way has put it up again."""

    async def never(_: LiveMigration, __: MigrationRecord) -> bool:
        return False

    patch.setattr(LiveMigration, "_finds_a_fence", never)


def producers_not_taken_over(patch: pytest.MonkeyPatch) -> None:
    genuine = StreamMirror.decide

    async def decide(self: StreamMirror, stream: int, boundary: int, is_allowed: Any, _: Any) -> bool:
        return await genuine(self, stream, boundary, is_allowed)

    patch.setattr(StreamMirror, "decide", decide)


def group_copied_after_it_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredCopy, "has_moved", False)


def more_is_passed_over_than_was_deleted(patch: pytest.MonkeyPatch) -> None:
    """Where the source has deleted what is next, the mirror goes on at its end instead of its start."""

    async def last_stable(self: SourceTopic, partition: int) -> int:
        return all_of(await self.measure([partition]))[partition].last_stable

    patch.setattr(SourceTopic, "start", last_stable)


def answers_reach_over_holes(patch: pytest.MonkeyPatch) -> None:
    """A transaction that was aborted before a hole hides what its producer wrote behind it."""
    patch.setattr(ForeignEntries, "stands_alone", lambda *_: False)


def producers_kept_over_a_hole(patch: pytest.MonkeyPatch) -> None:
    """What was known of producers before the hole counts on, also for the switch. A gap is given no time:
    a run would be over before it counts as one."""
    patch.setattr(ProducerStates, "clear", lambda _: None)
    patch.setattr(PartitionSwitch, "compared", _content)
    patch.setattr(FailedSequences, "young_gap", lambda *_: None)


def _without_epoch(**fields: Any) -> FetchPartition:
    return FetchPartition(**{**fields, "last_fetched_epoch": -1})


MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    mutation.__name__: (mutation, seed)
    for mutation, seed in (
        (append_while_the_source_owns_the_log, 2),
        (aborted_list_dropped, 7),
        (history_not_compared, 577),
    )
}
"""By name, each with the seed from which on it is looked for."""

TRAPPED: Final[dict[str, tuple[Mutation, Trap, int]]] = {
    mutation.__name__: (mutation, trap, seed)
    for mutation, trap, seed in (
        (mirror_without_producers, lost_answers, 1),
        (no_probe, late_fence, 1),
        (boundary_before_the_fence, slow_mirror, 0),
        (lift_late, late_lift, 4),
        (fence_not_looked_for, slow_fence, 2),
        (producers_not_taken_over, silent_producers, 0),
        (group_copied_after_it_moved, forgotten_consumers, 4),
        (more_is_passed_over_than_was_deleted, overtaken, 1),
        (answers_reach_over_holes, overtaken, 14),
        (producers_kept_over_a_hole, overtaken, 27),
    )
}
"""By name, each with the trap that is laid for it, and the seed from which on it is looked for."""
