"""What administrators ask of groups: descriptions, and offsets to be deleted."""

from __future__ import annotations

from collections.abc import Iterable

from dray.groups import classic, consumer
from dray.groups.coordinator.faults import GroupUnavailable
from dray.groups.coordinator.ledger import Place
from dray.groups.coordinator.service import Groups
from dray.protocol import ErrorCode


async def describe_classic(groups: Groups, group_id: str, version: int) -> classic.ClassicGroupDescription:
    """As DescribeGroups shows it: a group of the other protocol is none. Raises `GroupUnavailable`."""
    state = await groups.state(group_id)
    if isinstance(state, classic.ClassicGroup):
        return classic.description_of(state)
    return classic.description_of_none(group_id, version)


async def describe_consumer(groups: Groups, group_id: str) -> consumer.ConsumerGroupDescription:
    """Raises `GroupUnavailable`, with GROUP_ID_NOT_FOUND where there is no such group of this protocol."""
    state = await groups.state(group_id)
    if isinstance(state, consumer.ConsumerGroup):
        return consumer.description_of(state, groups.view, groups.settings.consumer)
    what = "not found" if state is None else "not a consumer group"
    raise GroupUnavailable(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is {what}.")


async def delete_offsets(groups: Groups, group_id: str, places: Iterable[Place]) -> dict[Place, ErrorCode]:
    """What became of each; deleted where that is NONE. Raises `GroupUnavailable`."""
    group = await groups.existing(group_id)
    if group is None:
        raise GroupUnavailable(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not found.")
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
