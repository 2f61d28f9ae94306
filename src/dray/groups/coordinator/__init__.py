"""What runs the groups' state machines: leases, storage, timers, parked requests, committed offsets."""

from dray.groups.coordinator.administration import delete_offsets, describe_classic, describe_consumer
from dray.groups.coordinator.faults import GroupUnavailable, NotCoordinator, TooLarge, Unreachable
from dray.groups.coordinator.lease import LeaseHolder
from dray.groups.coordinator.ledger import Ledger, Place
from dray.groups.coordinator.listing import GroupListing, list_groups
from dray.groups.coordinator.machines import GROUP_STATES
from dray.groups.coordinator.observer import GroupsObserver
from dray.groups.coordinator.service import Groups
from dray.groups.coordinator.settings import GroupsSettings

__all__ = [
    "GROUP_STATES",
    "GroupListing",
    "GroupUnavailable",
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
