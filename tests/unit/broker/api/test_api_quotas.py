"""Quotas: described and altered as in Kafka, and what becomes of the clients that are above one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.services import room_settings
from tests.simulation.scripted import Fate
from tests.unit.broker.api.fakes import FakeConnection, Harness, batch, frame, running
from tests.unit.broker.topics.fakes import eventually

from dray.broker.topics import NewTopic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.quotas import LONGEST_NAME

EXACT, DEFAULT, ANY = 0, 1, 2
EXCEEDED = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def change(entity: dict[str, str | None], ops: dict[str, float | None]) -> RequestedEntryData:
    return RequestedEntryData(
        [EntityData(kind, name) for kind, name in entity.items()],
        [OpData(key, value or 0.0, value is None) for key, value in ops.items()],
    )


async def alter(
    broker: Harness, *changes: RequestedEntryData, validate_only: bool = False, version: int = 1
) -> list[tuple[int, str | None]]:
    request = AlterClientQuotasRequest(list(changes), validate_only)
    response = await broker.ask(request, version)
    return [(entry.error_code, entry.error_message) for entry in response.entries]


async def set_quota(broker: Harness, entity: dict[str, str | None], **quotas: float) -> None:
    assert await alter(broker, change(entity, dict(quotas))) == [(0, None)]


async def described(
    broker: Harness, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    request = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
    response = await broker.ask(request, 1)
    assert response.error_code == 0
    return [
        (
            {one.entity_type: one.entity_name for one in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in response.entries or ()
    ]


async def test_what_is_altered_is_described() -> None:
    async with running() as broker:
        await set_quota(broker, {"user": "alice"}, producer_byte_rate=1024, request_percentage=12.5)
        await set_quota(broker, {"user": "alice", "client-id": None}, consumer_byte_rate=2048)
        await set_quota(broker, {"user": None}, producer_byte_rate=1)
        await set_quota(broker, {"client-id": "app"}, controller_mutation_rate=0.5)
        await set_quota(broker, {"ip": "10.0.0.1"}, connection_creation_rate=7)
        await set_quota(broker, {"ip": None}, connection_creation_rate=8)
        alice = ({"user": "alice"}, {"producer_byte_rate": 1024, "request_percentage": 12.5})
        both = ({"client-id": None, "user": "alice"}, {"consumer_byte_rate": 2048})
        any_user = ({"user": None}, {"producer_byte_rate": 1})
        app = ({"client-id": "app"}, {"controller_mutation_rate": 0.5})
        addresses = [
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 7}),
            ({"ip": None}, {"connection_creation_rate": 8}),
        ]
        assert await described(broker) == [alice, both, any_user, app, *addresses]
        assert await described(broker, strict=True) == []
        assert await described(broker, ("user", ANY, None)) == [alice, both, any_user]
        assert await described(broker, ("user", ANY, None), strict=True) == [alice, any_user]
        assert await described(broker, ("user", EXACT, "alice")) == [alice, both]
        assert await described(broker, ("user", DEFAULT, None)) == [any_user]
        assert await described(broker, ("user", EXACT, "alice"), ("client-id", DEFAULT, None)) == [both]
        assert await described(broker, ("ip", ANY, None)) == addresses
        assert await described(broker, ("user", EXACT, "bob")) == []
        await alter(broker, change({"user": "alice"}, {"producer_byte_rate": None}))
        assert await described(broker, ("user", EXACT, "alice"), strict=True) == [
            ({"user": "alice"}, {"request_percentage": 12.5})
        ]
        await alter(broker, change({"user": "alice"}, {"request_percentage": None, "unknown": None}))
        assert await described(broker, ("user", EXACT, "alice"), strict=True) == []


async def test_validate_only_changes_nothing() -> None:
    async with running() as broker:
        good = change({"user": "alice"}, {"producer_byte_rate": 1024})
        bad = change({"user": "bob"}, {"producer_byte_rate": -1})
        assert await alter(broker, good, bad, validate_only=True) == [
            (0, None),
            (42, "Quota producer_byte_rate must be greater than 0"),
        ]
        assert await described(broker) == []


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"planet": "mars"}, {}, "Unhandled client quota entity type: planet"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"ip": "10.0.0.1", "user": "a"}, {}, "Invalid quota entity combination"),
        ({"ip": "no such host"}, {}, "no such host is not a valid IP or resolvable host."),
        ({"ip": "fe80::1%eth0"}, {}, "fe80::1%eth0 is not a valid IP or resolvable host."),
        ({"user": "a"}, {"what": 1.0}, "Invalid configuration key what"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        ({"user": "a" * (LONGEST_NAME + 1)}, {}, "The name of the user is longer than"),
    ],
)
async def test_what_is_refused(entity: Any, ops: Any, message: str) -> None:
    async with running() as broker:
        [(code, said)] = await alter(broker, change(entity, ops))
        assert (code, str(said)[: len(message)]) == (42, message)
        assert await described(broker) == []


async def test_entities_and_quotas_that_are_named_twice() -> None:
    async with running() as broker:
        first = change({"user": "alice"}, {"producer_byte_rate": 1})
        again = change({"user": "alice"}, {"producer_byte_rate": 2})
        [(code, message)] = await alter(broker, first, again)
        assert (code, message) == (42, "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})")
        assert await described(broker) == [({"user": "alice"}, {"producer_byte_rate": 1})]
        twice = RequestedEntryData(
            [EntityData("user", None), EntityData("client-id", "c")],
            [OpData("producer_byte_rate", 1.0), OpData("producer_byte_rate", 1.0)],
        )
        [(code, message)] = await alter(broker, twice)
        assert message == "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=null})"
        assert len(await described(broker)) == 1


async def test_a_request_of_too_many_changes_changes_nothing() -> None:
    async with running(room_settings.api(request_elements=100_000)) as broker:
        many = [change({"user": str(number)}, {"producer_byte_rate": 1}) for number in range(10_001)]
        outcomes = await alter(broker, *many)
        assert {code for code, _ in outcomes} == {int(ErrorCode.POLICY_VIOLATION)}
        assert await described(broker) == []


async def test_a_store_that_is_away() -> None:
    async with running() as broker:
        for _ in range(20):
            broker.store.trap(Fate.REFUSE, "write", "client-quotas")
        [(code, _)] = await alter(broker, change({"user": "alice"}, {"producer_byte_rate": 1}))
        assert code == ErrorCode.REQUEST_TIMED_OUT
        assert await described(broker) == []


# --- above a quota


async def topic(broker: Harness, name: str = "t") -> None:
    await broker.topics.create(NewTopic(name, 1))


def produce(size: int = 1000, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch(b"x" * size))])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def fetch(offset: int = 0, max_bytes: int = 1 << 20) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_bytes=max_bytes, topics=[FetchTopic(topic="t", partitions=[part])])


async def test_a_producer_above_its_quota_is_answered_and_throttled() -> None:
    async with running() as broker:
        await topic(broker)
        assert (await broker.ask(produce(), 9)).throttle_time_ms == 0
        await set_quota(broker, {"client-id": "greedy"}, producer_byte_rate=100)
        other = FakeConnection()
        throttled: list[int] = []
        for _ in range(3):
            answered = await broker.ask(produce(), 9, client_id="greedy")
            assert answered.responses[0].partition_responses[0].error_code == 0
            throttled.append(answered.throttle_time_ms)
            assert (await broker.ask(produce(), 9, other)).throttle_time_ms == 0
        assert throttled == sorted(throttled), "the more it sends, the longer it waits"
        assert throttled[1] > 0
        waits = [wait / 1000 for wait in throttled if wait]
        assert broker.connection.throttled == waits
        assert other.throttled == []
        assert broker.log.streams[broker.topics.cached("t").streams[0]].end == 7  # type: ignore[union-attr]


async def test_a_producer_that_wants_no_answer_is_throttled_too() -> None:
    async with running() as broker:
        await topic(broker)
        await set_quota(broker, {"user": None}, producer_byte_rate=10)
        assert await broker.dispatcher.dispatch(frame(produce(acks=0), 9), broker.connection) is None
        assert len(broker.connection.throttled) == 1


async def test_the_user_of_a_connection_is_measured() -> None:
    async with running() as broker:
        await topic(broker)
        await set_quota(broker, {"user": "alice"}, producer_byte_rate=10)
        await set_quota(broker, {"user": "ANONYMOUS"}, producer_byte_rate=1_000_000)
        alice = FakeConnection()
        alice.principal = "User:alice"
        await broker.ask(produce(), 9, alice)
        await broker.ask(produce(), 9)
        assert (len(alice.throttled), len(broker.connection.throttled)) == (1, 0)
        await set_quota(broker, {"user": "ANONYMOUS"}, producer_byte_rate=10)
        await broker.ask(produce(), 9)
        assert len(broker.connection.throttled) == 1


async def test_a_consumer_above_its_quota_gets_no_records_and_later_all() -> None:
    async with running() as broker:
        await topic(broker)
        for _ in range(4):
            await broker.ask(produce(3000), 9)
        await set_quota(broker, {"user": None}, consumer_byte_rate=2000)
        first = await broker.ask(fetch(), 12)
        assert len(first.responses[0].partitions[0].records or b"") > 12_000
        assert first.throttle_time_ms == 0, "ten seconds' worth may be sent at once"
        second = await broker.ask(fetch(), 12)
        assert (second.responses, second.error_code) == ([], 0)
        assert second.throttle_time_ms > 0
        third = await broker.ask(fetch(), 12)
        assert third.throttle_time_ms == pytest.approx(second.throttle_time_ms, abs=1000), (
            "what was not sent does not count"
        )
        await broker.ask(fetch(), 12, FakeConnection(), client_id="another")
        assert broker.log.fetches[-1][2] == 2000, "no more is read than a second's worth"


async def test_request_time_is_that_of_the_event_loop() -> None:
    """What a request waits does not count; what it computes does, step by step."""
    async with running() as broker:
        clock = [0.0]
        broker.dispatcher._monotonic = lambda: clock[0]
        await set_quota(broker, {"user": None}, request_percentage=1)

        async def computes(*_: Any) -> Any:
            for _step in range(5):
                clock[0] += 0.1
                await asyncio.sleep(0)
            return await real(*_)

        async def waits(*_: Any) -> Any:
            async def later() -> None:
                clock[0] += 1000

            await asyncio.get_running_loop().create_task(later())
            return await real(*_)

        [handler] = [one for one in broker.dispatcher._table.values() if one.name == "ApiVersions"]
        real = handler.function
        request = ApiVersionsRequest("test", "1")
        for work, throttled in ((waits, 0), (computes, 1000)):
            object.__setattr__(handler, "function", work)
            try:
                assert (await broker.ask(request, 4)).throttle_time_ms == throttled
            finally:
                object.__setattr__(handler, "function", real)


async def test_errors_pass_through_the_measuring_of_time() -> None:
    async with running() as broker:
        await set_quota(broker, {"user": None}, request_percentage=1)
        held = broker.log.held = asyncio.Event()
        await topic(broker)
        asked = FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=100, topics=fetch().topics)
        task = asyncio.get_running_loop().create_task(broker.ask(asked, 12))
        await eventually(lambda: bool(broker.log.fetches))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.get_running_loop().create_task(broker.ask(asked, 12))
        await asyncio.sleep(0)
        held.set()
        assert (await task).error_code == 0


def creation(*names: str, partitions: int = 10) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, -1) for name in names], timeout_ms=10_000)


def codes(results: Sequence[Any]) -> list[int]:
    return [result.error_code for result in results]


async def test_mutations_above_the_quota_are_refused() -> None:
    async with running() as broker:
        await set_quota(broker, {"user": None}, controller_mutation_rate=1)
        first = await broker.ask(creation("a", "b"), 6)
        assert (codes(first.topics), first.throttle_time_ms) == ([0, 0], 0)
        over = await broker.ask(creation("c"), 6)
        assert codes(over.topics) == [EXCEEDED]
        assert over.topics[0].error_message == "The throttling quota has been exceeded."
        assert over.throttle_time_ms == pytest.approx(9000, abs=1000)
        assert broker.connection.throttled == [over.throttle_time_ms / 1000]
        assert await broker.topics.get("c") is None
        more = CreatePartitionsRequest([CreatePartitionsTopic("a", 11, None)], timeout_ms=10_000)
        assert codes((await broker.ask(more, 3)).results) == [EXCEEDED]
        assert len((await broker.topics.get("a")).streams) == 10  # type: ignore[union-attr]
        gone = DeleteTopicsRequest([DeleteTopicState("a")], timeout_ms=10_000)
        assert codes((await broker.ask(gone, 6)).responses) == [EXCEEDED]
        by_id = DeleteTopicsRequest(
            [DeleteTopicState(None, broker.topics.cached("a").topic_id)],  # type: ignore[union-attr]
            timeout_ms=10_000,
        )
        assert codes((await broker.ask(by_id, 6)).responses) == [EXCEEDED]
        assert await broker.topics.get("a") is not None
        bad = await broker.ask(creation("a", "no/name"), 6)
        assert codes(bad.topics) == [36, 17], "what is refused anyhow is not counted"


async def test_older_clients_wait_after_their_mutations() -> None:
    async with running() as broker:
        await set_quota(broker, {"user": None}, controller_mutation_rate=1)
        first = await broker.ask(creation("a", "b"), 5)
        assert codes(first.topics) == [0, 0]
        assert first.throttle_time_ms == pytest.approx(9000, abs=1000)
        more = CreatePartitionsRequest([CreatePartitionsTopic("a", 12, None)], timeout_ms=10_000)
        second = await broker.ask(more, 2)
        assert codes(second.results) == [0]
        assert second.throttle_time_ms > first.throttle_time_ms
        gone = await broker.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 4)
        assert codes(gone.responses) == [0]
        assert gone.throttle_time_ms > second.throttle_time_ms
        assert len(broker.connection.throttled) == 3


async def test_topics_that_are_created_because_they_are_asked_for_count() -> None:
    async with running() as broker:
        await set_quota(broker, {"user": None}, controller_mutation_rate=0.01)
        asked = MetadataRequest([MetadataRequestTopic(name="fresh")], allow_auto_topic_creation=True)
        answered = await broker.ask(asked, 8)
        assert codes(answered.topics) == [0]
        assert answered.throttle_time_ms > 0
        assert (await broker.ask(asked, 8)).throttle_time_ms == 0, "it is there by now"


async def test_without_quotas_nothing_is_measured() -> None:
    async with running() as broker:
        await topic(broker)
        await set_quota(broker, {"user": "alice"}, producer_byte_rate=1, consumer_byte_rate=1)
        await broker.ask(produce(), 9)
        await broker.ask(fetch(), 12)
        assert broker.connection.throttled == []
        assert len(broker.services.throttle._rates) == 0, "who has no quota is not measured"
