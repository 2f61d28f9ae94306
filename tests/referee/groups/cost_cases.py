"""Requests about groups that are made to cost: one name again and again, members that say much."""

from __future__ import annotations

from typing import Any

from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.referee.cases import group_case
from tests.referee.groups.members import ConsumerMember
from tests.referee.groups.offset_cases import commit
from tests.referee.session import Session


@group_case
async def groups_named_again_and_again(s: Session) -> None:
    """How many are answered."""
    await commit(s, "a commit", await s.create())
    for count in (1, 2):
        names = [s.group] * count
        of_each = [OffsetFetchRequestGroup(group_id=s.group, topics=None)] * count
        asked: tuple[tuple[str, Any, int, str], ...] = (
            ("described", DescribeGroupsRequest(groups=names), 5, "groups"),
            ("described as consumers", ConsumerGroupDescribeRequest(group_ids=names), 1, "groups"),
            ("coordinators", FindCoordinatorRequest(coordinator_keys=names), 4, "coordinators"),
            ("offsets", OffsetFetchRequest(groups=of_each), 8, "groups"),
        )
        for what, request, version, field in asked:
            label = f"{what} of {count}"
            answer = await s.ask(label, request, version)
            s.notes[label] = len(getattr(answer, field))


@group_case
async def members_that_say_much(s: Session) -> None:
    """A member's metadata is stored with its group, in a record of a size that has a bound."""
    for size in (900_000, 1_100_000, 5_000_000):
        group = s.group_named(str(size))
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", bytes(size))],
        )
        joined = await s.ask(f"join with {size}", join, 3)
        s.notes[f"join with {size}"] = joined.error_code
        share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[share],
        )
        synced = await s.ask(f"sync with {size}", sync, 2)
        s.notes[f"sync with {size}"] = synced.error_code


@group_case
async def patterns_that_are_long(s: Session) -> None:
    for length in (1000, 1001):
        member = ConsumerMember(s, f"of {length}", group=s.group_named(str(length)), regex="x" * length)
        await member.join(f"a pattern of {length}")
        await member.leave(f"leaves {length}")
