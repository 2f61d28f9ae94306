"""The groups that this broker tells of. Clients ask every broker and put the answers together, so each group
is told of by one: the holder of its lease, or where nobody holds it, whoever would be asked to take it."""

from __future__ import annotations

from typing import NamedTuple

import structlog

from dray.groups import classic
from dray.groups.coordinator.faults import Unreachable
from dray.groups.coordinator.lease import LeaseHolder, decode_holder
from dray.groups.coordinator.machines import State, decode_state
from dray.groups.coordinator.record import decode_record
from dray.groups.coordinator.service import Groups
from dray.metadata import keys
from dray.metadata.contract import MetadataError, StoredValue
from dray.metadata.values import UnreadableValue

_log = structlog.get_logger(__name__)


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


async def list_groups(groups: Groups) -> list[GroupListing]:
    """Raises `Unreachable`."""
    listed = {group.group_id: _listing(group.group_id, group.state) for group in groups.active()}
    for domain in range(groups.domains):
        try:
            records = await _scan(groups, domain, keys.GROUPS)
            holders = _holders(await _scan(groups, domain, keys.GROUP_LEASES))
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        for record in records:
            group_id = keys.group_of(record.key)
            if group_id is None:
                continue
            if group_id not in listed and groups.tells_of(group_id, holders.get(group_id)):
                listed[group_id] = _listing(group_id, _stored_state(group_id, record))
    return [listing for _, listing in sorted(listed.items()) if listing is not None]


async def _scan(groups: Groups, domain: int, prefix: str) -> list[StoredValue]:
    return await groups.store.scan(domain, prefix, keys.prefix_end(prefix))


def _holders(leases: list[StoredValue]) -> dict[str, LeaseHolder]:
    """Without those that cannot be read: such a group may be told of twice, which is better than never."""
    holders = {}
    for lease in leases:
        group_id = keys.group_of_lease(lease.key)
        if group_id is None:
            continue
        try:
            holders[group_id] = decode_holder(group_id, lease.value)
        except UnreadableValue as error:
            _log.error("the holder of a group is not known", group=group_id, error=str(error))
    return holders


def _stored_state(group_id: str, record: StoredValue) -> State:
    try:
        return decode_state(group_id, decode_record(group_id, record.value))
    except UnreadableValue as error:
        # One group of a newer build must not hide the others.
        _log.error("a group is left out", group=group_id, error=str(error))
        return None


def _listing(group_id: str, state: State) -> GroupListing | None:
    if state is None:
        return None
    if isinstance(state, classic.ClassicGroup):
        listing = classic.listing_of(state)
        return GroupListing(group_id, listing.protocol_type, listing.state.value, listing.group_type)
    return GroupListing(group_id, "consumer", state.state.value, "consumer")
