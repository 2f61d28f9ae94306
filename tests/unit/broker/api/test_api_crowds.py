"""Much of the same in one request, and in one answer."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import FakeConnection, Harness, frame, running

from dray.base.runtime import EndlessRoom
from dray.broker.api import metadata
from dray.broker.api.dispatcher import DECODED_AT_ONCE, ELEMENTS_OF_A_PIECE, LIGHT, MANY
from dray.broker.api.shared import RefuseConnection, context, large_answers
from dray.broker.api.shared.context import PIECES_PER_TURN
from dray.broker.topics import NewTopic
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ErrorCode, Request
from dray.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    RequestedEntryData,
)
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dray.kafka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from dray.kafka.protocol.messages.describe_topic_partitions import TopicRequest as TopicOfPage
from dray.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.kafka.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.kafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from dray.kafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderTopic as TopicOfEpoch
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

T = TypeVar("T")


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


@pytest.mark.parametrize("version", [0, 9, 13])
async def test_all_topics_are_described_in_several_turns(
    broker: Harness, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    for number in range(20):
        await broker.topics.create(NewTopic(f"t{number:02}", 2))
    request = MetadataRequest(topics=[] if version == 0 else None)
    whole, before = await turns_of(broker, request, version)
    monkeypatch.setattr(metadata, "PARTS_A_TURN", 6)
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
        monkeypatch.setattr(context, "AT_ONCE", 200)
        monkeypatch.setattr(large_answers, "AT_ONCE", 200)
        in_parts, turns = await turns_of(broker, request, 3)
        assert in_parts == whole
        assert turns >= before + 40 // 6 - 1


# --- requests of many elements


async def test_a_request_of_too_many_elements_is_an_invalid_request_or_ends_the_connection() -> None:
    async with running(room_settings.api(request_elements=100)) as broker:
        names = [MetadataRequestTopic(name=f"t{number}") for number in range(101)]
        assert len((await broker.ask(MetadataRequest(topics=names[1:]), 13)).topics) == 100
        answer = await broker.ask(MetadataRequest(topics=names), 13)
        assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])
        with pytest.raises(RefuseConnection, match=r"more than 100 elements \(limits.request_elements\)"):
            await broker.ask(MetadataRequest(topics=names), 12)  # which has no place for an error
        entries = [RequestedEntryData([EntityData("user", str(number))]) for number in range(101)]
        with pytest.raises(RefuseConnection, match="AlterClientQuotas"):
            await broker.ask(AlterClientQuotasRequest(entries=entries), 1)
        left = await broker.ask(LeaveGroupRequest("g", members=[MemberIdentity()] * 101), 5)
        assert (left.error_code, left.members) == (ErrorCode.INVALID_REQUEST, [])
        assert broker.observed == [(MetadataRequest.API_KEY, "ok")], "the others reached no handler"


class Threads:
    """Notes what a broker runs in threads, and lets it go on when told to."""

    def __init__(self, broker: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[int] = []
        self.go_on = asyncio.Event()
        monkeypatch.setattr(broker.runtime, "in_thread", self._in_thread)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        self.begun.append(len(arguments[1]))
        await self.go_on.wait()
        return function(*arguments)


LARGE = 2 * DECODED_AT_ONCE // 10


def commit(*partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(one, 7) for one in partitions]
            )
        ],
    )


async def test_large_requests_are_decoded_in_a_thread_one_at_a_time(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(broker, monkeypatch)
    asked = [asyncio.ensure_future(broker.ask(commit(*range(LARGE)), 9, FakeConnection())) for _ in range(3)]
    await settled()
    assert len(threads.begun) == 1
    assert threads.begun[0] > DECODED_AT_ONCE
    small = await broker.ask(commit(1), 9, FakeConnection())
    assert small.topics, "another client does not wait for that"
    threads.go_on.set()
    for one in asked:
        assert len((await one).topics[0].partitions) == LARGE
    assert len(threads.begun) == 3


async def test_addresses_take_turns_at_the_thread(broker: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred connections with a large request each kept all other large requests waiting."""
    threads = Threads(broker, monkeypatch)

    def ask(peer: str, partitions: int) -> asyncio.Future[Any]:
        connection = FakeConnection()
        connection.peer = peer
        return asyncio.ensure_future(broker.ask(commit(*range(partitions)), 9, connection))

    asked = [ask(f"192.0.2.1:{number}", LARGE) for number in range(4)]
    await settled()
    asked.append(ask("192.0.2.2:7", 2 * LARGE))
    await settled()
    threads.go_on.set()
    await asyncio.gather(*asked)
    assert threads.begun.index(max(threads.begun)) == 2, "behind the one that runs, and the next one's turn"


async def test_no_request_overtakes_one_that_is_decoded_in_a_thread(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits of one connection: the later one must be the last."""
    await broker.topics.create(NewTopic("t", LARGE))
    started: list[int] = []
    threads = Threads(broker, monkeypatch)

    async def noted(asked: OffsetCommitRequest, number: int) -> None:
        await broker.ask(asked, 9)
        started.append(number)

    last = commit(0)
    last.topics[0].partitions[0].committed_offset = 8
    asked = [
        asyncio.ensure_future(noted(commit(0, *range(1, LARGE)), 1)),
        asyncio.ensure_future(noted(last, 2)),
        asyncio.ensure_future(noted(last, 3)),
    ]
    await settled()
    assert started == []
    threads.go_on.set()
    await asyncio.gather(*asked)
    assert sorted(started) == [1, 2, 3]
    wanted = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    fetched = await broker.ask(OffsetFetchRequest(groups=[wanted]), 9)
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 8
    assert "decoding" not in broker.connection.state


def small_elements(count: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=9, coordinator_keys=[f"{number:x}" for number in range(count)])


async def test_requests_that_come_together_share_the_turns_of_the_loop(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was decoded and begun in the turn in which it came: a hundred made a turn of seconds."""
    decoded = 0
    whole = FindCoordinatorRequest.read

    def read(*arguments: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return whole(*arguments)

    monkeypatch.setattr(FindCoordinatorRequest, "read", staticmethod(read))
    request = small_elements(MANY - 100)
    assert LIGHT < len(frame(request, 6)) <= DECODED_AT_ONCE
    flood = [asyncio.ensure_future(broker.ask(request, 6, FakeConnection())) for _ in range(40)]
    elsewhere = FakeConnection()
    elsewhere.peer = "192.0.2.2:7"
    other = asyncio.ensure_future(broker.ask(small_elements(400), 6, elsewhere))
    light = asyncio.ensure_future(broker.ask(small_elements(20), 6, FakeConnection()))
    turns, in_a_turn = 0, []
    behind: dict[asyncio.Future[Any], int] = {}
    while not all(each.done() for each in flood):
        before = decoded
        await asyncio.sleep(0)
        turns += 1
        in_a_turn.append(decoded - before)
        for each in (other, light):
            if each.done():
                behind.setdefault(each, turns)
    assert sum(in_a_turn) == 42
    pieces = (MANY - 100) // ELEMENTS_OF_A_PIECE
    assert max(in_a_turn) <= 2 * (1 + PIECES_PER_TURN // pieces) + 2
    assert behind[light] < 10, "what is small waits for nothing"
    assert behind[other] < turns / 4, "addresses take turns"


async def test_a_request_that_waits_for_a_turn_is_overtaken_by_none_of_its_connection(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    whole = FindCoordinatorRequest.read

    def read(*arguments: Any) -> Any:
        found, end = whole(*arguments)
        begun.append(len(found.coordinator_keys))
        return found, end

    monkeypatch.setattr(FindCoordinatorRequest, "read", staticmethod(read))

    async def asks() -> None:
        broker.services.work.pay(10 * PIECES_PER_TURN)
        await asyncio.gather(*(broker.ask(small_elements(size), 6) for size in (400, 1, 401)))

    await asks()
    assert begun == [400, 1, 401]


@pytest.mark.parametrize("has_room", [True, False])
async def test_a_request_of_many_elements_is_decoded_when_those_before_it_are_answered(
    broker: Harness, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """Six of a connection that read no answer took eight MiB each, and more if it had left."""
    held: list[weakref.ref[Any]] = []
    whole = FindCoordinatorRequest.read

    class Held(FindCoordinatorRequest):
        __slots__ = ("__weakref__",)

    def read(*arguments: Any) -> Any:
        found, end = whole(*arguments)
        found = Held(key_type=found.key_type, coordinator_keys=found.coordinator_keys)
        held.append(weakref.ref(found))
        return found, end

    monkeypatch.setattr(FindCoordinatorRequest, "read", staticmethod(read))
    taken = asyncio.Event()
    broker.connection.turn = taken.wait  # type: ignore[assignment,method-assign]

    async def ask() -> Any:
        if not has_room:  # in the turn in which the request comes: the next one has room again
            broker.services.work.pay(10 * PIECES_PER_TURN)
        return await broker.ask(small_elements(MANY + 1), 6)

    asked = asyncio.ensure_future(ask())
    await settled()
    assert [each() for each in held] == [None]
    taken.set()
    assert (await asked).coordinators


async def test_the_answer_to_a_produce_of_many_partitions_is_reserved(broker: Harness) -> None:
    """114 kB of partitions that are not there became an answer of 3 MB, which nobody counted."""
    taken: list[int] = []

    class Room(EndlessRoom):
        def take(self, size: int) -> bool:
            taken.append(size)
            return True

    broker.connection.room = Room
    partitions = [PartitionProduceData(index=number, records=b"") for number in range(2000)]
    request = ProduceRequest(
        acks=-1, timeout_ms=9, topic_data=[TopicProduceData(name="t", partition_data=partitions)]
    )
    answer = await broker.ask(request, 11)
    assert len(answer.responses[0].partition_responses) == 2000
    assert max(taken) > 2000 * 30


async def test_a_large_request_that_is_no_request_ends_the_connection_and_the_next_one_goes_on(
    broker: Harness,
) -> None:
    cut = frame(commit(*range(LARGE)), 9)[:-10]
    with pytest.raises(RefuseConnection, match="OffsetCommit"):
        await broker.dispatcher.dispatch(cut, broker.connection)
    assert (await broker.ask(commit(1), 9)).topics


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("kind", "version", "request_of"),
    [
        ("DescribeTransactions", 0, lambda names: DescribeTransactionsRequest(transactional_ids=names)),
        (
            "DescribeTopicPartitions",
            0,
            lambda names: DescribeTopicPartitionsRequest(topics=[TopicOfPage(name) for name in names]),
        ),
        (
            "OffsetForLeaderEpoch",
            4,
            lambda names: OffsetForLeaderEpochRequest(topics=[TopicOfEpoch(name) for name in names]),
        ),
        (
            "ListOffsets",
            11,
            lambda names: ListOffsetsRequest(topics=[ListOffsetsTopic(name) for name in names]),
        ),
        (
            "DeleteRecords",
            2,
            lambda names: DeleteRecordsRequest(topics=[DeleteRecordsTopic(name) for name in names]),
        ),
    ],
)
async def test_rights_to_many_names_are_asked_some_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    version: int,
    request_of: Callable[[list[str]], Request[Any]],
) -> None:
    """That of 20,000, each with a line for the audit log, took a turn of more than a tenth of a second."""
    asked: list[str] = []
    in_a_turn, before = [], 0

    def noted(_context: context.Context, _check: Any, name: str = "", **_more: Any) -> bool:
        asked.append(name)
        return True

    for method in ("may", "sees"):
        monkeypatch.setattr(context.Context, method, noted)
    async with running() as broker:
        request = request_of([f"t{number}" for number in range(1000)])
        work = asyncio.ensure_future(broker.ask(request, version))
        while not work.done():
            before = len(asked)
            await asyncio.sleep(0)
            in_a_turn.append(len(asked) - before)
        await work
    assert len(asked) >= 1000, kind
    assert max(in_a_turn) <= 256, kind


# --- a name that is repeated


@pytest.mark.parametrize(
    ("request_", "version", "answers"),
    [
        (FindCoordinatorRequest(coordinator_keys=["g"] * 9), 6, lambda answer: answer.coordinators),
        (DescribeGroupsRequest(groups=["g"] * 9), 6, lambda answer: answer.groups),
        (ConsumerGroupDescribeRequest(group_ids=["g"] * 9), 1, lambda answer: answer.groups),
        (DeleteGroupsRequest(groups_names=["g"] * 9), 2, lambda answer: answer.results),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * 9),
            9,
            lambda answer: answer.groups,
        ),
        (
            DescribeConfigsRequest(resources=[DescribeConfigsResource(4, "0")] * 9),
            4,
            lambda answer: answer.results,
        ),
        (
            DeleteRecordsRequest(topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(0, -1)] * 3)] * 3),
            2,
            lambda answer: [part for topic in answer.topics for part in topic.partitions],
        ),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 9), 13, lambda answer: answer.topics),
        (
            DescribeProducersRequest(topics=[TopicRequest("t", [0] * 3)] * 3),
            0,
            lambda answer: [part for topic in answer.topics for part in topic.partitions],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_named_nine_times_is_answered_once(
    broker: Harness, request_: Request[Any], version: int, answers: Callable[[Any], list[Any]]
) -> None:
    assert len(answers(await broker.ask(request_, version))) == 1
