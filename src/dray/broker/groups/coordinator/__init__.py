"""The runtime of the groups' state machines: leases, storage, timers, parked requests, committed offsets."""

from dray.broker.groups.coordinator.administration import (
    GroupListing,
    delete_offsets,
    describe_classic,
    describe_consumer,
    list_groups,
)
from dray.broker.groups.coordinator.admission import Admission, KnownOffsets, NotAdmitted
from dray.broker.groups.coordinator.contract import (
    GroupsObserver,
    GroupUnavailable,
    NotCoordinator,
    TooLarge,
    Unreachable,
)
from dray.broker.groups.coordinator.lease import LeaseHolder
from dray.broker.groups.coordinator.ledger import Ledger, Place
from dray.broker.groups.coordinator.machines import GROUP_STATES
from dray.broker.groups.coordinator.service import Groups

__all__ = [
    "GROUP_STATES",
    "Admission",
    "GroupListing",
    "GroupUnavailable",
    "Groups",
    "GroupsObserver",
    "KnownOffsets",
    "LeaseHolder",
    "Ledger",
    "NotAdmitted",
    "NotCoordinator",
    "Place",
    "TooLarge",
    "Unreachable",
    "delete_offsets",
    "describe_classic",
    "describe_consumer",
    "list_groups",
]
