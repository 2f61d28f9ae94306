"""What happens without each rule of a live move: one small patch for each, and the seed that notices it.

Of the ten that the design names, `append_while_the_source_owns_the_log`, `mirror_without_producers` (no
snapshot) and `aborted_list_dropped` are here. `foreign_mutations.py` has `switch_without_version`,
`leave_overlaps`, `adopt_without_references` and `attach_unfinished_segments`. No probe, and a boundary from
before the fence, are taken out of the model (`tests/model/moving.py`: "no-probe", "end-before-fence") and of
the switch alone (`tests/unit/upstream/test_switch.py`). A group that is copied after it moved is in
`tests/unit/upstream/test_followed_groups.py`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.simulation.noticing import Mutation

from dray.log import mirrored_pieces, mirroring
from dray.log.entries import HighWatermark
from dray.log.mirror_states import MirrorStates
from dray.protocol.messages.fetch import FetchPartition
from dray.upstream import mirror as upstream_mirror
from dray.upstream.partition_switch import PartitionSwitch
from dray.upstream.source import SourceTopic


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

    async def never(_: SourceTopic, __: int, ___: int) -> int:
        return 1 << 60

    patch.setattr(SourceTopic, "end_of_epoch", never)
    patch.setattr(upstream_mirror, "FetchPartition", _without_epoch)


def _without_epoch(**fields: Any) -> FetchPartition:
    return FetchPartition(**{**fields, "last_fetched_epoch": -1})


MUTATIONS: Final[dict[str, tuple[Mutation, int]]] = {
    mutation.__name__: (mutation, seed)
    for mutation, seed in (
        (append_while_the_source_owns_the_log, 2),
        (mirror_without_producers, 40),
        (aborted_list_dropped, 7),
        (history_not_compared, 28),
    )
}
"""By name, each with the seed from which on it is looked for."""
