"""What runs the groups' state machines: leases, storage, timers, parked requests, committed offsets."""

from dray.groups.coordinator.administration import (
    GroupListing,
    delete_offsets,
    describe_classic,
    describe_consumer,
    list_groups,
)
from dray.groups.coordinator.contract import (
    GroupsObserver,
    GroupsSettings,
    GroupUnavailable,
    NotCoordinator,
    TooLarge,
    Unreachable,
)
from dray.groups.coordinator.gate import CopiedOffsets, GroupWaits
from dray.groups.coordinator.lease import LeaseHolder
from dray.groups.coordinator.ledger import Ledger, Place
from dray.groups.coordinator.machines import GROUP_STATES
from dray.groups.coordinator.service import Groups

__all__ = [
    "GROUP_STATES",
    "CopiedOffsets",
    "GroupListing",
    "GroupUnavailable",
    "GroupWaits",
    "Groups",
    "GroupsObserver",
    "GroupsSettings",
    "LeaseHolder",
    "Ledger",
    "NotCoordinator",
    "Place",
    "TooLarge",
    "Unreachable",
    "delete_offsets",
    "describe_classic",
    "describe_consumer",
    "list_groups",
]
