"""DescribeGroups (15), versions 0 to 6: classic groups with their members, as they are now.

A group that does not exist, or speaks the consumer protocol, is `Dead` without an error. One that is named
twice is answered once.

- v3: a client may ask what it is allowed to do.
- v6: such a group is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from dray.base.runtime import cut
from dray.broker.api.shared import NO_OPERATIONS, Context, handles
from dray.broker.api.shared.checks import DESCRIBE_GROUP, Denial
from dray.broker.groups.coordinator import GroupUnavailable, describe_classic
from dray.kafka.acls import AclResourceType
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


@handles(DescribeGroupsRequest, 0, 6, checks={DESCRIBE_GROUP: Denial.GROUP})
async def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    described = await context.large.gather(
        _describe(context, group_id, request.include_authorized_operations)
        for group_id in dict.fromkeys(request.groups)
    )
    return DescribeGroupsResponse(groups=described)


async def _describe(context: Context, group_id: str, operations: bool) -> DescribedGroup:
    if not context.may(DESCRIBE_GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=DESCRIBE_GROUP.refusal, error_message=None)
    try:
        group = await describe_classic(context.services.groups, group_id, context.version)
    except GroupUnavailable as refusal:
        return DescribedGroup(group_id=group_id, error_code=refusal.error, error_message=refusal.message)
    found = group.error is ErrorCode.NONE
    return DescribedGroup(
        error_code=group.error,
        error_message=None if found else f"Group {cut(group_id)} not found.",
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=context.operations(AclResourceType.GROUP, group_id)
        if operations and found
        else NO_OPERATIONS,
    )
