"""Much of the same in one request, and in one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.unit.api.fakes import Harness, running

from dray.api import describe_acls, metadata
from dray.api.shared import AT_A_TIME, PARTS_A_TURN, LargeAnswer, crowds, gather_some
from dray.protocol import Request
from dray.protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource
from dray.protocol.messages.metadata import MetadataRequest
from dray.runtime import SystemRuntime
from dray.security.acls.model import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.topics import NewTopic


async def test_some_at_a_time_and_in_their_order() -> None:
    running = most = 0

    async def one(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    count = 3 * AT_A_TIME + 7
    assert await gather_some(one(number) for number in range(count)) == list(range(count))
    assert most == AT_A_TIME
    assert await gather_some(one(number) for number in range(0)) == []


async def turns_of(broker: Harness, request: Request, version: int) -> tuple[object, int]:  # type: ignore[type-arg]
    """The answer, and how many turns of the event loop others had meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(others())
    try:
        return await broker.ask(request, version), turns
    finally:
        beside.cancel()


async def test_parts_are_encoded_some_in_each_turn() -> None:
    slept: list[int] = []

    class Counting(SystemRuntime):
        async def sleep(self, seconds: float) -> None:
            assert seconds == 0
            slept.append(made)

    made = 0

    def parts() -> Iterator[AclDescription]:
        nonlocal made
        for number in range(3 * PARTS_A_TURN):
            made += 1
            yield AclDescription(f"User:{number}", "*", 3, 3)

    large = LargeAnswer(Counting(threads=1), 3)
    written = DescribeAclsResource(2, "t", 3, [await large.written(part) for part in parts()])
    assert slept == [PARTS_A_TURN, 2 * PARTS_A_TURN, 3 * PARTS_A_TURN]
    at_once, in_parts = bytearray(), bytearray()
    DescribeAclsResource(2, "t", 3, list(parts())).write(at_once, 3, [])
    written.write(in_parts, 3, [])
    assert at_once == in_parts
    slept.clear()
    await large.written(AclDescription(), PARTS_A_TURN)
    assert len(slept) == 1, "one part may be as heavy as many"


@pytest.mark.parametrize("version", [0, 9, 13])
async def test_all_topics_are_described_in_several_turns(
    broker: Harness, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    for number in range(20):
        await broker.topics.create(NewTopic(f"t{number:02}", 2))
    request = MetadataRequest(topics=[] if version == 0 else None)
    whole, before = await turns_of(broker, request, version)
    monkeypatch.setattr(metadata, "AT_A_TIME", 5)
    monkeypatch.setattr(crowds, "PARTS_A_TURN", 6)
    in_parts, turns = await turns_of(broker, request, version)
    assert in_parts == whole
    assert turns >= before + 8, "a topic of two partitions is three parts"


async def test_acls_are_described_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(authorizes=True) as broker:
        assert broker.acls is not None
        await broker.acls.create(
            [
                AclBinding(
                    AclResourceType.TOPIC,
                    PatternType.LITERAL,
                    f"t{number % 2}",
                    f"User:{number}",
                    "*",
                    AclOperation.READ,
                    Permission.ALLOW,
                )
                for number in range(40)
            ]
        )
        request = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        whole, before = await turns_of(broker, request, 3)
        monkeypatch.setattr(describe_acls, "PARTS_A_TURN", 6)
        monkeypatch.setattr(crowds, "PARTS_A_TURN", 6)
        in_parts, turns = await turns_of(broker, request, 3)
        assert in_parts == whole
        assert turns >= before + 40 // 6 - 1
