"""Requests of administrators about groups: lists, descriptions, and offsets to be deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import structlog

from dray.base.runtime import cut
from dray.broker.groups import classic, consumer
from dray.broker.groups.coordinator.admission import NotAdmitted
from dray.broker.groups.coordinator.contract import GroupUnavailable, Unreachable, consumer_settings
from dray.broker.groups.coordinator.lease import LeaseHolder, decode_holder
from dray.broker.groups.coordinator.ledger import Place
from dray.broker.groups.coordinator.machines import State, decode_state
from dray.broker.groups.coordinator.service import Groups
from dray.broker.groups.coordinator.storage import decode_record
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import MetadataError, StoredValue
from dray.metadata.values import UnreadableValue

_log = structlog.get_logger(__name__)


async def describe_classic(groups: Groups, group_id: str, version: int) -> classic.ClassicGroupDescription:
    """As DescribeGroups shows it: a group of the other protocol is none. Raises `GroupUnavailable`."""
    try:
        state = await groups.state(group_id)
    except NotAdmitted:
        return classic.description_of(classic.ClassicGroup(group_id, 0))
    if isinstance(state, classic.ClassicGroup):
        return classic.description_of(state)
    return classic.description_of_none(group_id, version)


async def describe_consumer(groups: Groups, group_id: str) -> consumer.ConsumerGroupDescription:
    """Raises `GroupUnavailable`, with GROUP_ID_NOT_FOUND where there is no such group of this protocol."""
    state: State
    try:
        state = await groups.state(group_id)
    except NotAdmitted:  # it is shown as a classic one, until its members say what they speak
        state = classic.ClassicGroup(group_id, 0)
    if isinstance(state, consumer.ConsumerGroup):
        return consumer.description_of(state, groups.view, consumer_settings(groups.settings))
    what = "not found" if state is None else "not a consumer group"
    raise GroupUnavailable(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {cut(group_id)} is {what}.")


async def delete_offsets(groups: Groups, group_id: str, places: Iterable[Place]) -> dict[Place, ErrorCode]:
    """The outcome of each; NONE means deleted. Raises `GroupUnavailable`."""
    group = await groups.existing(group_id)
    if group is None:
        raise GroupUnavailable(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {cut(group_id)} is not found.")
    state = group.state
    if isinstance(state, classic.ClassicGroup):
        fault = classic.offset_deletion_fault(state)
        if fault is not ErrorCode.NONE:
            raise GroupUnavailable(fault)
    errors = {
        place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if _subscribed(state, place[0]) else ErrorCode.NONE
        for place in places
    }
    await group.ledger.change({place: None for place, error in errors.items() if error is ErrorCode.NONE})
    return errors


def _subscribed(state: classic.ClassicGroup | consumer.ConsumerGroup | None, topic: str) -> bool:
    if isinstance(state, consumer.ConsumerGroup):
        return consumer.is_subscribed(state, topic)
    return state is not None and state.is_subscribed_to(topic)


# --- listing
#
# Clients ask every broker and put the answers together, so each group is listed by one broker: the holder of
# its lease, or where there is none, the broker that would be asked to take it.


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
            for record in records:
                group_id = keys.group_of(record.key)
                if group_id is None:
                    continue
                if group_id not in listed and groups.tells_of(group_id, holders.get(group_id)):
                    listed[group_id] = _listing(group_id, _stored_state(group_id, record))
            kept_out = await groups.admission.kept_out(domain, listed)
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        for group_id in kept_out:
            if groups.tells_of(group_id, holders.get(group_id)):
                listed[group_id] = _listing(group_id, classic.ClassicGroup(group_id, 0))
    return [listing for _, listing in sorted(listed.items()) if listing is not None]


async def _scan(groups: Groups, domain: int, prefix: str) -> list[StoredValue]:
    return await groups.store.scan(domain, prefix, keys.prefix_end(prefix))


def _holders(leases: list[StoredValue]) -> dict[str, LeaseHolder]:
    """Without those that cannot be read: such a group may be listed twice, which is better than never."""
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
