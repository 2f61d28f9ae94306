"""ListGroups (16), versions 0 to 5: the groups that this broker lists.

Clients ask every broker, and each group is listed by one of them.

- v4: the answer can be held to some states, whatever their case.
- v5: and to some types (`classic`, `consumer`).
"""

from __future__ import annotations

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, DESCRIBE_GROUP, Denial
from dray.broker.groups.coordinator import GroupUnavailable, list_groups
from dray.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(
    ListGroupsRequest, 0, 5, checks={DESCRIBE_CLUSTER: Denial.OTHERWISE, DESCRIBE_GROUP: Denial.LEFT_OUT}
)
async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    try:
        listed = await list_groups(context.services.groups)
    except GroupUnavailable as refusal:
        return ListGroupsResponse(error_code=refusal.error)
    if not context.sees(DESCRIBE_CLUSTER):
        listed = [group for group in listed if context.sees(DESCRIBE_GROUP, group.group_id)]
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in listed
            if (not states or group.state.lower() in states)
            and (not types or group.group_type.lower() in types)
        ]
    )
