"""Whether a group may be loaded here, as the coordinator asks before it loads one.

Alone it lets every group in. A cluster to which groups come from elsewhere hands an `Admission` of its own to
the coordinator, which knows no more about it than this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from dray.broker.groups.classic import ClassicGroup
from dray.broker.groups.coordinator.contract import GroupUnavailable
from dray.broker.groups.coordinator.ledger import Ledger, Place
from dray.broker.groups.coordinator.storage import GroupStorage
from dray.broker.groups.offsets import CommittedOffset
from dray.kafka.protocol import ErrorCode

if TYPE_CHECKING:
    from dray.broker.groups.coordinator.active import ActiveGroup


class KnownOffsets:
    """Offsets of a group that is not loaded, to be read as a `Ledger` is."""

    def __init__(self, offsets: Mapping[Place, CommittedOffset]) -> None:
        self._offsets = offsets

    def find(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._offsets.get((topic, partition))

    def topics(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self._offsets):
            found.setdefault(topic, []).append(partition)
        return found


class OffsetsElsewhere(GroupUnavailable):
    """The group is here, and offsets that were asked for are not yet. Clients ask again by themselves."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)


class NotAdmitted(GroupUnavailable):
    """The group may not be loaded yet. Clients ask again by themselves."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)

    def offsets(self) -> KnownOffsets:
        """Those that tools are shown meanwhile."""
        return KnownOffsets({})


class Admitted:
    """A group that was let in, for as long as it is in memory."""

    made: ClassicGroup | None = None
    """The group, where letting it in has made it: there was no record of it before."""

    def doubt(self) -> None:
        """Topics came that were elsewhere before."""

    async def check_offsets(self, group: ActiveGroup, wanted: Iterable[Place]) -> None:
        """Raises `OffsetsElsewhere` where one of these is not here yet."""


class Admission:
    """Lets every group in."""

    async def may_load(self, group_id: str) -> None:
        """Raises `NotAdmitted`. Asked each time, before the group's lease is taken."""

    async def is_expected(self, group_id: str) -> bool:  # noqa: ARG002
        """Whether a group is there although it has no record yet. Raises `Unreachable`."""
        return False

    async def admit(self, storage: GroupStorage, ledger: Ledger) -> Admitted:  # noqa: ARG002
        """Asked when both are loaded and the lease is held, so that no other broker lets it in meanwhile.
        Raises `NotAdmitted` and `Unreachable`."""
        return Admitted()

    async def kept_out(self, domain: int, known: Collection[str]) -> Iterable[str]:  # noqa: ARG002
        """Groups that may not be loaded, for lists: of one domain, without those that are known already.
        Raises the store's errors."""
        return ()
