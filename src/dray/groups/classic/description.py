"""A classic group as DescribeGroups and ListGroups show it."""

from __future__ import annotations

from typing import Final, NamedTuple

from dray.groups.classic.state import ClassicGroup, GroupState, Member
from dray.protocol import ErrorCode

GROUP_TYPE: Final = "classic"
"""As ListGroups says it; clients show it as "Classic" and filter by it in any case."""

FIRST_DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 6


class ClassicMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class ClassicGroupDescription(NamedTuple):
    error: ErrorCode
    group_id: str
    state: GroupState
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[ClassicMemberDescription, ...] = ()


class ClassicGroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str = GROUP_TYPE


def description_of(group: ClassicGroup) -> ClassicGroupDescription:
    """Only a stable group has settled what its protocol and its members' metadata are."""
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return ClassicGroupDescription(
        ErrorCode.NONE,
        group.group_id,
        group.state,
        group.protocol_type or "",
        protocol_name or "",
        tuple(_member(group.members[member_id], protocol_name) for member_id in sorted(group.members)),
    )


def description_of_none(group_id: str, version: int) -> ClassicGroupDescription:
    """Of a group that does not exist: older clients know no error for that."""
    known = version >= FIRST_DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND
    error = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.NONE
    return ClassicGroupDescription(error, group_id, GroupState.DEAD)


def listing_of(group: ClassicGroup) -> ClassicGroupListing:
    return ClassicGroupListing(group.group_id, group.protocol_type or "", group.state)


def _member(member: Member, protocol_name: str | None) -> ClassicMemberDescription:
    return ClassicMemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol_name) or b"",
        member.assignment,
    )
