"""The client against a broker made of a few lines: what it sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.kafka.client.client_fakes import FrameBroker, Write, answer, running

from dray.kafka.client import ClientError, KafkaConnection
from dray.kafka.protocol import ApiKey, EncodeError, ErrorCode, RequestHeader, request_class
from dray.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dray.kafka.protocol.messages.produce import ProduceRequest


async def silent(header: RequestHeader, body: memoryview, write: Write) -> None:
    """Never answers."""


async def connect(broker: FrameBroker, **options: int) -> KafkaConnection:
    return await KafkaConnection.connect("127.0.0.1", broker.port, client_id="tester", **options)  # type: ignore[arg-type]


async def test_a_request_comes_back_as_its_typed_response() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        request, _ = request_class(header.api_key).decode(body, 0, header.api_version)
        assert request == MetadataRequest(topics=None)
        write(answer(header, MetadataResponse(cluster_id="here")))

    async with running(handler) as broker, await connect(broker) as connection:
        response = await connection.request(MetadataRequest(topics=None), 12)
        assert response.cluster_id == "here"
        assert broker.requests[0].client_id == "tester"


async def test_pipelined_requests_are_matched_by_correlation_id() -> None:
    waiting: list[bytes] = []

    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        waiting.append(answer(header, HeartbeatResponse(throttle_time_ms=len(waiting))))
        if len(waiting) == 3:
            write(b"".join(reversed(waiting)))

    async with running(handler) as broker, await connect(broker) as connection:
        responses = await asyncio.gather(*(connection.request(HeartbeatRequest(), 4) for _ in range(3)))
        assert [response.throttle_time_ms for response in responses] == [0, 1, 2]


async def test_negotiation_settles_on_the_highest_common_version() -> None:
    served = [
        ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=7),
        ApiVersion(api_key=ApiKey.PRODUCE, min_version=0, max_version=99),
        ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=90, max_version=99),
        ApiVersion(api_key=ApiKey.FETCH, min_version=0, max_version=3),
        ApiVersion(api_key=9999, min_version=0, max_version=0),
    ]

    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        write(answer(header, ApiVersionsResponse(api_keys=served)))

    async with running(handler) as broker, await connect(broker) as connection:
        with pytest.raises(ClientError, match="not negotiated"):
            connection.version_for(ApiKey.METADATA)
        await connection.negotiate()
        assert connection.version_for(ApiKey.METADATA) == 7
        assert connection.version_for(ApiKey.PRODUCE) == ProduceRequest.VERSIONS[1]
        for missing in (ApiKey.HEARTBEAT, ApiKey.FETCH, ApiKey.LIST_OFFSETS, 9999):
            with pytest.raises(ClientError, match="serves no version"):
                connection.version_for(missing)


async def test_an_older_broker_answers_api_versions_in_version_0_and_is_asked_again() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)]
        error = ErrorCode.UNSUPPORTED_VERSION if header.api_version > 2 else ErrorCode.NONE
        write(answer(header, ApiVersionsResponse(error_code=error, api_keys=keys), 0 if error else 2))

    async with running(handler) as broker, await connect(broker) as connection:
        await connection.negotiate()
        assert [header.api_version for header in broker.requests] == [4, 2]
        assert connection.version_for(ApiKey.API_VERSIONS) == 2


async def test_a_broker_that_refuses_api_versions_is_named() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        write(answer(header, ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)))

    async with running(handler) as broker, await connect(broker) as connection:
        with pytest.raises(
            ClientError, match=f"127.0.0.1:{broker.port} refused ApiVersions: INVALID_REQUEST"
        ):
            await connection.negotiate()


async def test_a_request_without_a_version_uses_the_negotiated_one() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        if header.api_key == ApiKey.API_VERSIONS:
            keys = [ApiVersion(api_key=ApiKey.HEARTBEAT, min_version=0, max_version=1)]
            write(answer(header, ApiVersionsResponse(api_keys=keys)))
        else:
            write(answer(header, HeartbeatResponse()))

    async with running(handler) as broker, await connect(broker) as connection:
        await connection.negotiate()
        await connection.request(HeartbeatRequest())
        assert broker.requests[-1].api_version == 1


async def test_a_request_that_is_never_answered_can_be_sent() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        if header.api_key == ApiKey.HEARTBEAT:
            write(answer(header, HeartbeatResponse()))

    async with running(handler) as broker, await connect(broker) as connection:
        await connection.send(ProduceRequest(acks=0), 9)
        await connection.request(HeartbeatRequest(), 0)
        assert [header.api_key for header in broker.requests] == [ApiKey.PRODUCE, ApiKey.HEARTBEAT]


@pytest.mark.parametrize(
    ("bytes_sent", "complaint"),
    [
        (b"\x7f\xff\xff\xff", "announced a response of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "announced a response of -1 bytes"),
        (b"\0\0\0\x03abc", "announced a response of 3 bytes"),
        (b"\0\0\0\x04\0\0\x12\x34", "never sent"),
        (b"\0\0\0\x05\0\0\0\0\0", "malformed"),
    ],
)
async def test_nonsense_fails_the_request_and_ends_the_connection(bytes_sent: bytes, complaint: str) -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        write(bytes_sent)

    async with running(handler) as broker, await connect(broker, largest_frame=1000) as connection:
        with pytest.raises(ClientError, match=complaint):
            await connection.request(HeartbeatRequest(), 0)
        with pytest.raises(ClientError, match=complaint):
            await connection.request(HeartbeatRequest(), 0)
        await broker.client_gone.wait()


async def test_a_broker_that_goes_away_fails_everything_in_flight() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(40)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = await KafkaConnection.connect("127.0.0.1", port)
        requests = (connection.request(HeartbeatRequest(), 0) for _ in range(3))
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(result, ClientError) for result in results)
        await connection.close()


async def test_closing_fails_what_is_in_flight_and_what_comes_later() -> None:
    async with running(silent) as broker:
        connection = await connect(broker)
        request = asyncio.create_task(connection.request(HeartbeatRequest(), 0))
        await broker.asked.wait()
        await connection.close()
        with pytest.raises(ClientError, match="was closed"):
            await request
        with pytest.raises(ClientError, match="was closed"):
            await connection.request(HeartbeatRequest(), 0)
        await connection.close()
        await broker.client_gone.wait()


async def test_a_connection_that_is_given_up_ends_at_once_whatever_is_unsent() -> None:
    """The broker reads nothing: to close it in order would be to wait for the broker."""
    ended = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = await KafkaConnection.connect("127.0.0.1", port)
        assert not connection.is_broken
        large = HeartbeatRequest(group_id="x" * 32_000)
        requests = [asyncio.create_task(connection.request(large, 0)) for _ in range(1000)]
        await asyncio.sleep(0)
        connection.abort()
        assert connection.is_broken
        async with asyncio.timeout(60):
            results = await asyncio.gather(*requests, return_exceptions=True)
            await connection.close()
        assert {str(result) for result in results} == {f"the connection to 127.0.0.1:{port} was given up"}
        ended.set()


async def test_the_answer_to_a_cancelled_request_is_dropped() -> None:
    release = asyncio.Event()

    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        await release.wait()
        write(answer(header, HeartbeatResponse()))

    async with running(handler) as broker, await connect(broker) as connection:
        request = asyncio.create_task(connection.request(HeartbeatRequest(), 0))
        await broker.asked.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        release.set()
        assert await connection.request(HeartbeatRequest(), 0) == HeartbeatResponse()


async def test_a_request_that_cannot_be_encoded_does_no_harm() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        write(answer(header, HeartbeatResponse()))

    async with running(handler) as broker, await connect(broker) as connection:
        with pytest.raises(EncodeError):
            await connection.request(HeartbeatRequest(group_id="x" * 0x8000), 0)
        assert await connection.request(HeartbeatRequest(), 0) == HeartbeatResponse()


async def test_a_port_where_nobody_listens_is_one_clear_error() -> None:
    async with running(silent) as broker:
        port = broker.port
    with pytest.raises(ClientError, match=f"cannot reach 127.0.0.1:{port}"):
        await KafkaConnection.connect("127.0.0.1", port)


async def test_an_abort_fails_what_waits_and_the_broker_sees_the_end() -> None:
    broker: FrameBroker
    async with running(silent) as broker, asyncio.timeout(60):
        connection = await connect(broker)
        asking = asyncio.ensure_future(connection.request(HeartbeatRequest(), 4))
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(ClientError, match="was given up"):
            await asking
        assert connection.is_broken
        await broker.client_gone.wait()
        await connection.close()


class StandingStream:
    """Sends nothing whole: bytes come for so many looks, and then no more."""

    def __init__(self, looks: int) -> None:
        self.looks = 0
        self._last = looks
        self.is_aborted = False
        self.is_woken = False

    def wake_for_any(self) -> None:
        self.is_woken = True

    @property
    def received(self) -> int:
        self.looks += 1
        return min(self.looks, self._last)

    async def readexactly(self, _: int) -> memoryview:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    def writelines(self, _: object) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True

    async def wait_closed(self) -> None: ...


@pytest.mark.parametrize("looks", [0, 20])
async def test_a_broker_that_stands_still_is_given_up_and_one_that_is_slow_is_not(looks: int) -> None:
    """Else a request to it would wait for as long as its kernel keeps the connection."""
    stream = StandingStream(looks)
    connection = KafkaConnection(stream, "here:1", None, 100, silence_seconds=0.001)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"here:1 has been silent for 0.001 s"):
        await connection.request(HeartbeatRequest(), 4)
    assert stream.looks >= looks
    assert stream.is_woken, "little that has come counts as well"
    assert stream.is_aborted, "nothing is waited for"
    with pytest.raises(ClientError, match="silent"):
        await connection.request(HeartbeatRequest(), 4)
    await connection.close()


async def test_a_broker_that_answers_is_not_silent() -> None:
    async def handler(header: RequestHeader, body: memoryview, write: Write) -> None:
        write(answer(header, HeartbeatResponse(throttle_time_ms=7)))

    async with running(handler) as broker, await connect(broker, silence_seconds=60) as connection:
        assert (await connection.request(HeartbeatRequest(), 4)).throttle_time_ms == 7
