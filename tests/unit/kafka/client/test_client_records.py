"""Records in and out: what is asked of a broker, what is made of its answer, and how to connect to it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any
from uuid import UUID

import pytest
from tests.services.batches import batch, plain
from tests.unit.kafka.client.client_fakes import FrameBroker, ScriptedBroker, Write, answer, running

from dray.kafka.client import ClientError, Dialer, RequestFailed
from dray.kafka.client.byte_stream import ByteStream
from dray.kafka.client.records import count_records, fetch, produce
from dray.kafka.protocol import ApiKey, ErrorCode, RequestHeader
from dray.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from dray.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dray.kafka.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC_ID = UUID(int=7)


def produced(*codes: int) -> ProduceResponse:
    answers = [
        PartitionProduceResponse(index=index, error_code=code, error_message="no" if code else None)
        for index, code in enumerate(codes)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])


async def test_a_batch_for_each_partition_in_one_request() -> None:
    broker = ScriptedBroker(ProduceRequest=produced(0, 0))
    await produce(broker, "t", TOPIC_ID, {0: b"first", 1: b"second"})
    [request] = broker.seen
    [topic] = request.topic_data
    assert (request.acks, topic.name, topic.topic_id) == (-1, "t", TOPIC_ID)
    assert [(data.index, data.records) for data in topic.partition_data] == [(0, b"first"), (1, b"second")]


async def test_a_batch_that_is_refused_is_named() -> None:
    broker = ScriptedBroker(ProduceRequest=produced(0, ErrorCode.MESSAGE_TOO_LARGE))
    with pytest.raises(RequestFailed, match="cannot produce to t-1: MESSAGE_TOO_LARGE: no") as caught:
        await produce(broker, "t", TOPIC_ID, {0: b"first", 1: b"second"})
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_fetch_answers_partition_by_partition() -> None:
    parts = [
        PartitionData(partition_index=0, records=b"bytes"),
        PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    broker = ScriptedBroker(
        FetchRequest=FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])
    )
    assert await fetch(broker, "t", TOPIC_ID, {0: 5, 1: 6}, max_bytes=100, partition_bytes=50) == parts
    [request] = broker.seen
    [topic] = request.topics
    asked = [(each.partition, each.fetch_offset, each.partition_max_bytes) for each in topic.partitions]
    assert (request.max_bytes, asked) == (100, [(0, 5, 50), (1, 6, 50)])


async def test_a_fetch_that_fails_as_a_whole() -> None:
    broker = ScriptedBroker(FetchRequest=FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID))
    with pytest.raises(RequestFailed, match="cannot fetch from t: UNKNOWN_TOPIC_ID"):
        await fetch(broker, "t", TOPIC_ID, {0: 5}, max_bytes=100)


def test_whole_batches_are_counted_and_a_cut_off_one_is_not() -> None:
    first, second = batch(plain(*[b"x"] * 3)), batch(plain(*[b"y"] * 5), base_offset=3)
    both = bytes(first + second)
    assert count_records(both) == (8, 8)
    for cut in range(len(first), len(both)):
        assert count_records(memoryview(both)[:cut]) == (3, 3)
    assert count_records(None) == count_records(b"") == (0, 0)


# --- how to connect


async def test_a_dialler_hands_out_connections_whose_versions_are_known() -> None:
    async def handler(header: RequestHeader, _body: memoryview, write: Write) -> None:
        if header.api_key == ApiKey.API_VERSIONS:
            served = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=9)]
            write(answer(header, ApiVersionsResponse(api_keys=served)))
        else:
            write(answer(header, MetadataResponse(cluster_id="here")))

    async with running(handler) as broker:
        connection = await Dialer(client_id="somebody")("127.0.0.1", broker.port)
        assert connection.version_for(ApiKey.METADATA) == 9
        assert (await connection.request(MetadataRequest(topics=None))).cluster_id == "here"
        assert {header.client_id for header in broker.requests} == {"somebody"}
        await connection.close()


async def test_a_broker_that_does_not_negotiate_leaves_no_connection_behind() -> None:
    async def handler(header: RequestHeader, _body: memoryview, write: Write) -> None:
        write(answer(header, ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))

    broker: FrameBroker
    async with running(handler) as broker:
        with pytest.raises(ClientError, match="refused ApiVersions: CLUSTER_AUTHORIZATION_FAILED"):
            await Dialer(client_id="somebody")("127.0.0.1", broker.port)
        async with asyncio.timeout(60):
            await broker.client_gone.wait()


async def test_tls_is_the_diallers_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    async def open_stream(_host: str, _port: int, tls: object) -> Any:
        given["ssl"] = tls
        raise OSError("no network here")

    monkeypatch.setattr(ByteStream, "open", open_stream)
    context = ssl.create_default_context()
    with pytest.raises(ClientError, match="cannot reach there:1"):
        await Dialer(client_id=None, tls=context)("there", 1)
    assert given["ssl"] is context
