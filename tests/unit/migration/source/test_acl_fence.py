"""The fence of ACLs takes back what it has put up, and no ACL that was there before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dray.base.runtime import SystemRuntime
from dray.kafka.client.access import WireAcl
from dray.kafka.client.cluster import Cluster
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from dray.kafka.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dray.kafka.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from dray.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from dray.migration.source.fences import AclFence, FenceRefused, acls_before, is_fenced_by_acl
from dray.migration.source.source import SourceTopic
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

TOPIC = "orders"
DENIAL = WireAcl(2, 3, TOPIC, "User:*", "*", 4, 2)
REST = WireAcl(2, 3, TOPIC, "User:*", "*", 2, 3)
OF_A_READER = WireAcl(2, 3, TOPIC, "User:reader", "*", 3, 3)
DENIAL_OF_ONE = WireAcl(2, 3, TOPIC, "User:guest", "*", 4, 2)


class AclCluster:
    """A cluster with ACLs of one topic, and nothing else."""

    def __init__(self, *acls: WireAcl) -> None:
        self.acls = set(acls)
        self.is_super = False

    async def request(self, request: object) -> Any:
        if isinstance(request, CreateAclsRequest):
            for one in request.creations:
                self.acls.add(
                    WireAcl(
                        one.resource_type,
                        one.resource_pattern_type,
                        one.resource_name,
                        one.principal,
                        one.host,
                        one.operation,
                        one.permission_type,
                    )
                )
            return CreateAclsResponse(results=[AclCreationResult() for _ in request.creations])
        if isinstance(request, DeleteAclsRequest):
            for wanted in request.filters:
                self.acls.discard(
                    WireAcl(
                        wanted.resource_type_filter,
                        wanted.pattern_type_filter,
                        wanted.resource_name_filter,
                        wanted.principal_filter,
                        wanted.host_filter,
                        wanted.operation,
                        wanted.permission_type,
                    )
                )
            return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult() for _ in request.filters])
        assert isinstance(request, DescribeAclsRequest)
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    acl.resource_type,
                    acl.name or "",
                    acl.pattern_type,
                    [AclDescription(acl.principal or "", acl.host or "", acl.operation, acl.permission)],
                )
                for acl in self.acls
                if acl.name == request.resource_name_filter
            ]
        )

    async def learn(self, topics: list[str]) -> MetadataResponse:
        """As a user whom an ACL stops, or as a super user."""
        is_denied = not self.is_super and any(acl.name == topics[0] for acl in self.acls)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(topics=[MetadataResponseTopic(code, topics[0])])


@pytest.mark.parametrize(
    "before",
    [
        [],
        [OF_A_READER],
        [DENIAL],
        [DENIAL, OF_A_READER],
        [REST],
        [REST, DENIAL],
        [DENIAL_OF_ONE],
    ],
    ids=["none", "a reader", "the same", "the same and a reader", "all", "both", "one user"],
)
async def test_what_was_there_before_is_there_afterwards(before: list[WireAcl]) -> None:
    source = AclCluster(*before)
    cluster = cast(Cluster, source)
    noted = await acls_before(cluster, TOPIC)
    fence = AclFence(cluster, TOPIC, SystemRuntime(), noted.needs_rest, noted.is_denied)
    for _ in range(2):  # a successor repeats it
        await fence.put_up()
        assert DENIAL in source.acls
        assert REST in source.acls or before, "the first ACL of a topic cuts off nobody but writers"
    for _ in range(2):
        await fence.lift()
        assert source.acls == set(before)


NO_SOURCE = cast(SourceTopic, None)


async def test_a_fence_of_ours_is_told_from_what_operators_deny() -> None:
    source = AclCluster(DENIAL, OF_A_READER)
    cluster = cast(Cluster, source)
    assert not await is_fenced_by_acl(cluster, TOPIC)
    fence = AclFence(cluster, TOPIC, SystemRuntime(), allows_rest=False, is_denied=True)
    await fence.put_up()
    assert await is_fenced_by_acl(cluster, TOPIC)
    with pytest.raises(FenceRefused, match="its ACL of the topic dray-fence-orders"):
        await acls_before(cluster, TOPIC)
    await fence.lift()
    assert not await is_fenced_by_acl(cluster, TOPIC)
    assert (await acls_before(cluster, TOPIC)).is_denied


async def test_a_fence_that_is_lifted_in_part_is_still_found() -> None:
    """A process may die between two calls."""
    source = AclCluster(OF_A_READER)
    fence = AclFence(cast(Cluster, source), TOPIC, SystemRuntime(), allows_rest=False)
    await fence.put_up()
    deleted = 0
    genuine = source.request

    async def dies(request: object) -> Any:
        nonlocal deleted
        deleted += isinstance(request, DeleteAclsRequest)
        if deleted > 1:
            raise ConnectionError
        return await genuine(request)

    source.request = dies  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await fence.lift()
    source.request = genuine  # type: ignore[method-assign]
    assert DENIAL not in source.acls
    assert await is_fenced_by_acl(cast(Cluster, source), TOPIC)


@pytest.mark.parametrize("has_acls", [False, True])
@pytest.mark.parametrize("calls", range(4))
async def test_a_fence_that_comes_up_while_it_is_lifted_is_down_or_found(has_acls: bool, calls: int) -> None:
    """The call of a process that is dead by now, say, which its broker carries out at any moment."""
    source = AclCluster(*([OF_A_READER] if has_acls else []))
    fence = AclFence(cast(Cluster, source), TOPIC, SystemRuntime(), allows_rest=not has_acls)
    await fence.put_up()
    up = set(source.acls)
    done = 0
    genuine = source.request

    async def comes_up_late(request: object) -> Any:
        nonlocal done
        if done == calls:
            source.acls |= up
        done += 1
        return await genuine(request)

    source.request = comes_up_late  # type: ignore[method-assign]
    await fence.lift()
    if done == calls:
        source.acls |= up
    source.request = genuine  # type: ignore[method-assign]
    assert source.acls == ({OF_A_READER} if has_acls else set()) or await is_fenced_by_acl(
        cast(Cluster, source), TOPIC
    )


@pytest.mark.parametrize("by", ["the next check", "the fence", "the lift"])
def test_what_a_check_left_behind_that_died_is_taken_away(by: str) -> None:
    async def work() -> None:
        left = WireAcl(2, 3, f"dray-check-{TOPIC}", "User:*", "*", 8, 2)
        source = AclCluster(left)
        fence = AclFence(cast(Cluster, source), TOPIC, SimulatedRuntime(1), allows_rest=False)
        if by == "the next check":
            await fence.check(NO_SOURCE)
        elif by == "the fence":
            await fence.put_up()
        else:
            await fence.lift()
        assert left not in source.acls

    run(work())


def test_brokers_whose_appends_no_fence_stops_are_refused() -> None:
    """They log in with another user than the migrator, which cannot see by itself that theirs passes."""

    async def work() -> None:
        source, as_brokers = AclCluster(), AclCluster()
        as_brokers.acls = source.acls  # the same cluster
        fence = AclFence(
            cast(Cluster, source),
            TOPIC,
            SimulatedRuntime(1),
            allows_rest=False,
            as_brokers=cast(Cluster, as_brokers),
        )
        await fence.check(NO_SOURCE)
        as_brokers.is_super = True
        with pytest.raises(FenceRefused, match="the user of forward_config is a super user"):
            await fence.check(NO_SOURCE)
        assert not source.acls

    run(work())


def test_two_that_check_at_a_time_do_not_mislead_each_other() -> None:
    """One takes the ACL away that the other is about to see."""

    async def work() -> None:
        source = AclCluster()
        fence = AclFence(cast(Cluster, source), TOPIC, SimulatedRuntime(1), allows_rest=False)
        learn = source.learn
        asked = 0

        async def taken_away(topics: list[str]) -> MetadataResponse:
            nonlocal asked
            asked += 1
            if asked == 1:
                source.acls.clear()
            return await learn(topics)

        source.learn = taken_away  # type: ignore[method-assign]
        await fence.check(NO_SOURCE)
        assert not source.acls
        source.is_super = True
        with pytest.raises(FenceRefused, match="super user"):
            await fence.check(NO_SOURCE)
        assert not source.acls

    run(work())
