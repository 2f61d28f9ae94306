"""A node on stores in memory: what it does when it starts, when something is wrong, when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
from tests.services.batches import batch, plain

from dray.client import ClientError, KafkaConnection
from dray.cluster import ClockGuard
from dray.config import FlagValue, Settings, load
from dray.daemon.node import Node
from dray.daemon.settings import api_settings, broker_configs, log_settings, server_settings, topics_options
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore, Operation, Outcome, Put, Unavailable
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects import Buffer, ObjectError
from dray.objects.contract import ObjectStore
from dray.objects.memory import MemoryObjects
from dray.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.runtime import SystemRuntime
from dray.server import AddressInUse, Connection


def settings(**environment: str) -> Settings:
    flags = [
        FlagValue("--listen", "broker.listen", "127.0.0.1:0"),
        FlagValue("--http", "broker.http", "127.0.0.1:0"),
    ]
    return load(None, environment, flags).settings


class Objects(MemoryObjects):
    """Puts arrive and wait while `gate` is closed; `broken` fails everything."""

    def __init__(self, runtime: SystemRuntime) -> None:
        super().__init__(runtime)
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()
        self.broken = False
        self.closed = False

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        if self.broken:
            raise ObjectError("the store is on fire")
        if not self.gate.is_set():
            self.arrived.set()
        await self.gate.wait()
        await super().put(path, parts)

    async def head(self, path: str) -> object:  # type: ignore[override]
        if self.broken:
            raise ObjectError("the store is on fire")
        return await super().head(path)

    async def close(self) -> None:
        self.closed = True
        if self.broken:
            raise ObjectError("the store is on fire")
        await super().close()


class Metadata(MemoryStore):
    """Commits of appends arrive and wait while `commits` is closed."""

    closed = False
    broken = False

    def __init__(self, runtime: SystemRuntime, state: MemoryState | None) -> None:
        super().__init__(runtime, state)
        self.commits = asyncio.Event()
        self.commits.set()
        self.committing = asyncio.Event()

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        commits = any(isinstance(each, Put) and each.key.endswith("/hwm") for each in operations)
        if commits and not self.commits.is_set():
            self.committing.set()
            await self.commits.wait()
        return await super().write(domain, operations)

    async def get(self, domain: int, key: str) -> object:  # type: ignore[override]
        if self.broken:
            raise Unavailable("no metadata today")
        return await super().get(domain, key)

    async def close(self) -> None:
        self.closed = True
        await super().close()


class Parts:
    def __init__(self, config: Settings | None = None, state: MemoryState | None = None) -> None:
        self.runtime = SystemRuntime()
        self.objects = Objects(self.runtime)
        self.metadata = Metadata(self.runtime, state)
        self.node = Node(
            config or settings(),
            self.runtime,
            cast(MetadataStore, self.metadata),
            cast(ObjectStore, self.objects),
        )


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[KafkaConnection]:
    async with await KafkaConnection.connect(*node.address) as connection:
        await connection.negotiate()
        yield connection


async def http_status(node: Node, path: str) -> int:
    assert node.http_address is not None
    reader, writer = await asyncio.open_connection(*node.http_address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


async def make_topic(connection: KafkaConnection, name: str) -> MetadataRequestTopic:
    """By auto-creation, as a producer's first metadata request does it."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    while True:
        [topic] = (await connection.request(asked)).topics
        if topic.error_code == 0:
            return MetadataRequestTopic(topic_id=topic.topic_id, name=name)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - plain state of the node
            await asyncio.sleep(0.01)


async def test_a_node_serves_is_ready_and_stops() -> None:
    parts = Parts()
    node = parts.node
    await node.start()
    assert await http_status(node, "/healthz") == 200
    assert await http_status(node, "/readyz") == 200
    async with connected(node) as connection:
        cluster = await connection.request(DescribeClusterRequest())
    assert [(broker.broker_id, broker.port) for broker in cluster.brokers] == [(0, node.address[1])]
    await node.stop()
    assert parts.objects.closed
    assert parts.metadata.closed
    with pytest.raises(ClientError):
        await KafkaConnection.connect(*node.address)


async def test_while_small_appends_are_carried_a_broker_without_its_object_store_is_ready() -> None:
    """Clients that begin find it, and all that does not need that store: until the bound is reached."""
    parts = Parts(settings(DRAY_LOG__CARRY_BACKLOG="64KiB"))
    await parts.node.start()
    await eventually(lambda: parts.node.is_carrying)
    assert await http_status(parts.node, "/readyz") == 200
    parts.objects.broken = True
    assert await http_status(parts.node, "/readyz") == 200
    async with connected(parts.node) as connection:
        topic = await make_topic(connection, "t")
        data = batch(plain(bytes(6000)))
        error = 0
        while not error:
            answer = await connection.request(produce_request(topic, bytearray(data)))
            error = answer.responses[0].partition_responses[0].error_code
            assert await http_status(parts.node, "/readyz") == (503 if error else 200)
    parts.objects.broken = False
    assert await http_status(parts.node, "/readyz") == 200
    await parts.node.stop()


@pytest.mark.parametrize("carry_bytes", ["0", "auto"])
async def test_readiness_follows_each_store(carry_bytes: str) -> None:
    parts = Parts(settings(DRAY_LOG__CARRY_BYTES=carry_bytes))
    parts.node.reads_carried = False  # so it does not carry, whatever the setting says
    await parts.node.start()
    parts.objects.broken = True
    assert await http_status(parts.node, "/readyz") == 503
    parts.objects.broken = False
    parts.metadata.broken = True
    assert await http_status(parts.node, "/readyz") == 503
    assert await http_status(parts.node, "/healthz") == 200
    parts.metadata.broken = False
    assert await http_status(parts.node, "/readyz") == 200
    await parts.node.stop()


async def test_a_doubted_clock_is_shown_and_the_broker_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    node = parts.node
    await node.start()
    monkeypatch.setattr(ClockGuard, "doubt", lambda _: "it is 691200 s ahead of others")
    assert node.http_address is not None
    reader, writer = await asyncio.open_connection(*node.http_address)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 200 " in answer.splitlines()[0]
    assert b"691200 s ahead of others" in answer
    assert b"dray_clock_doubted 1.0" in node.metrics.exposition()
    monkeypatch.setattr(ClockGuard, "doubt", lambda _: None)
    assert b"dray_clock_doubted 0.0" in node.metrics.exposition()
    await node.stop()


async def test_whatever_expires_in_a_broker_asks_its_guarded_clock() -> None:
    parts = Parts()
    node = parts.node
    await node.start()
    clocks = node._clocks
    assert clocks is not None
    assert node._log is not None
    assert node._log._expiry is clocks
    assert all(committer._expiry is clocks for committer in node._log._committers)
    assert node._retention is not None
    assert node._retention._retention._retention._expiry is clocks
    assert node._groups is not None
    assert node._groups.expiry is clocks
    await node.stop()
    store = MemoryStore(parts.runtime, parts.metadata._state)
    assert await store.scan(keys.CLUSTER_DOMAIN, keys.CLOCKS, keys.prefix_end(keys.CLOCKS)) == []


async def test_a_client_that_comes_while_the_broker_starts_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    node = parts.node
    started, go_on = asyncio.Event(), asyncio.Event()
    open_cluster = node.start.__globals__["open_cluster"]

    async def open_slowly(*arguments: object) -> object:
        started.set()
        await go_on.wait()
        return await open_cluster(*arguments)

    monkeypatch.setattr("dray.daemon.node.open_cluster", open_slowly)
    starting = asyncio.ensure_future(node.start())
    await started.wait()
    connection = await KafkaConnection.connect(*node.address)
    negotiating = asyncio.ensure_future(connection.negotiate())
    assert await http_status(node, "/readyz") == 503
    assert not negotiating.done()
    go_on.set()
    await starting
    assert (await negotiating).error_code == 0
    await connection.close()
    await node.stop()


async def test_what_a_client_asked_of_a_starting_broker_and_then_left_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks again, here or elsewhere: the older request must not overtake the newer one."""
    parts = Parts()
    node = parts.node
    started, go_on = asyncio.Event(), asyncio.Event()
    open_cluster = node.start.__globals__["open_cluster"]

    async def open_slowly(*arguments: object) -> object:
        started.set()
        await go_on.wait()
        return await open_cluster(*arguments)

    monkeypatch.setattr("dray.daemon.node.open_cluster", open_slowly)
    starting = asyncio.ensure_future(node.start())
    await started.wait()
    connection = await KafkaConnection.connect(*node.address)
    negotiating = asyncio.ensure_future(connection.negotiate())
    await until(lambda: node.metrics.requests_in_flight.value)
    await connection.close()
    with pytest.raises(ClientError):
        await negotiating
    await until(lambda: all(member.connection.ending for member in node._server._shared.members))
    go_on.set()
    await starting
    await until(lambda: not node.metrics.requests_in_flight.value)
    assert node.metrics.connections_closed.labels("request").value == 1
    await node.stop()


async def test_no_request_overtakes_those_that_waited_for_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that arrives just when the broker begins to serve comes after them."""
    node = Parts().node
    begun: list[bytes] = []
    going_on: list[asyncio.Task[object]] = []
    connection = Connection(1, "peer", "PLAINTEXT", False)

    async def dispatch(frame: memoryview, _: Connection) -> None:
        begun.append(bytes(frame))

    def ask(frame: bytes) -> None:
        going_on.append(asyncio.ensure_future(node._dispatch(memoryview(frame), connection)))

    class Dispatching:
        def __init__(self, *_: object, **__: object) -> None:
            self.dispatch = dispatch
            ask(b"third")  # it is begun before those that wait are woken

    started, go_on = asyncio.Event(), asyncio.Event()
    open_cluster = node.start.__globals__["open_cluster"]

    async def open_slowly(*arguments: object) -> object:
        started.set()
        await go_on.wait()
        return await open_cluster(*arguments)

    monkeypatch.setattr("dray.daemon.node.open_cluster", open_slowly)
    monkeypatch.setattr("dray.daemon.node.Dispatcher", Dispatching)
    starting = asyncio.ensure_future(node.start())
    await started.wait()
    ask(b"first")
    ask(b"second")
    go_on.set()
    await starting
    await asyncio.gather(*going_on)
    ask(b"fourth")
    await asyncio.gather(*going_on)
    assert begun == [b"first", b"second", b"third", b"fourth"]
    await node.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def produce_request(topic: MetadataRequestTopic, records: bytearray) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic_id=topic.topic_id, name=topic.name or "", partition_data=[data])],
    )


async def test_a_stop_answers_what_is_in_flight_and_settles_the_log() -> None:
    state = MemoryState()
    parts = Parts(settings(DRAY_LOG__CARRY_BYTES="0"), state)
    await parts.node.start()
    async with connected(parts.node) as connection:
        topic = await make_topic(connection, "t")
        parts.objects.gate.clear()
        producing = asyncio.ensure_future(
            connection.request(produce_request(topic, bytearray(batch(plain(b"one", b"two", b"three")))))
        )
        await parts.objects.arrived.wait()
        stopping = asyncio.ensure_future(parts.node.stop())
        await asyncio.sleep(0)
        assert not producing.done()
        parts.objects.gate.set()
        answer = (await producing).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
        await stopping
    assert [key for domain in range(4) for key in await staging_keys(state, domain)] == []


async def test_a_stop_answers_what_is_being_carried() -> None:
    """The twin of the one above: a small append, whose commit is under way and another waits behind it."""
    parts = Parts(settings())
    await parts.node.start()
    async with connected(parts.node) as connection, connected(parts.node) as another:
        topic = await make_topic(connection, "t")
        data = batch(plain(b"one", b"two", b"three"))
        await eventually(lambda: parts.node.is_carrying)
        parts.metadata.commits.clear()
        producing = [
            asyncio.ensure_future(each.request(produce_request(topic, bytearray(data))))
            for each in (connection, another)
        ]
        await parts.metadata.committing.wait()
        stopping = asyncio.ensure_future(parts.node.stop())
        await asyncio.sleep(0)
        assert not any(each.done() for each in producing)
        parts.metadata.commits.set()
        answers = [(await each).responses[0].partition_responses[0] for each in producing]
        assert sorted((answer.error_code, answer.base_offset) for answer in answers) == [(0, 0), (0, 3)]
        await stopping
    assert [path async for path in parts.objects.list("wal/")] == [], "nothing became an object"


async def test_a_broker_carries_unless_it_is_told_not_to_or_an_older_build_is_there() -> None:
    state = MemoryState()
    first = Parts(settings(), state)
    await first.node.start()
    await eventually(lambda: first.node.is_carrying)
    told = Parts(settings(DRAY_LOG__CARRY_BYTES="0"), state)
    await told.node.start()
    assert not told.node.is_carrying
    older = Parts(settings(), state)
    older.node.reads_carried = False
    await older.node.start()
    newer = Parts(settings(), state)
    await newer.node.start()
    assert not older.node.is_carrying
    await eventually(lambda: not newer.node.is_carrying)
    for parts in (first, told, older, newer):
        await parts.node.stop()


async def test_a_store_that_hangs_does_not_keep_a_stop_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.daemon.node.LEAST_STOP_SECONDS", 0.2)
    parts = Parts(settings(DRAY_BROKER__SHUTDOWN_GRACE="0s", DRAY_LOG__CARRY_BYTES="0"))
    await parts.node.start()
    async with connected(parts.node) as connection:
        topic = await make_topic(connection, "t")
        parts.objects.gate.clear()
        producing = asyncio.ensure_future(
            connection.request(produce_request(topic, bytearray(batch(plain(b"one", b"two", b"three")))))
        )
        await parts.objects.arrived.wait()
        with pytest.raises(TimeoutError):
            await parts.node.stop()
        with pytest.raises(ClientError):  # never acknowledged
            await producing
    assert parts.metadata.closed
    parts.objects.gate.set()


async def staging_keys(state: MemoryState, domain: int) -> list[str]:
    from dray.metadata import keys

    store = MemoryStore(SystemRuntime(), state)
    found = [record.key for record in await store.scan(domain, keys.STAGING, keys.prefix_end(keys.STAGING))]
    await store.close()
    return found


async def test_a_taken_address_is_told_and_leaves_nothing_behind() -> None:
    first = Parts()
    await first.node.start()
    flags = [
        FlagValue("--listen", "broker.listen", f"127.0.0.1:{first.node.address[1]}"),
        FlagValue("--http", "broker.http", "off"),
    ]
    second = Parts(load(None, {}, flags).settings)
    with pytest.raises(AddressInUse):
        await second.node.start()
    await second.node.stop()
    assert second.metadata.closed
    await first.node.stop()


async def test_a_metadata_store_out_of_reach_is_told() -> None:
    parts = Parts()
    parts.metadata.broken = True
    with pytest.raises(MetadataError):
        await parts.node.start()
    await parts.node.stop()
    assert parts.objects.closed


async def test_a_part_that_fails_to_stop_does_not_keep_the_others_open() -> None:
    parts = Parts()
    await parts.node.start()
    parts.objects.broken = True
    with pytest.raises(ObjectError, match="on fire"):
        await parts.node.stop()
    assert parts.metadata.closed


async def test_two_nodes_on_one_state_take_different_ids_and_see_each_other() -> None:
    state = MemoryState()
    first, second = Parts(state=state), Parts(state=state)
    await first.node.start()
    await second.node.start()
    assert (first.node.broker_id, second.node.broker_id) == (0, 1)
    async with connected(second.node) as connection:
        cluster = await connection.request(DescribeClusterRequest())
        assert {broker.port for broker in cluster.brokers} == {
            first.node.address[1],
            second.node.address[1],
        }
    await first.node.stop()
    await second.node.stop()


def test_every_setting_reaches_its_room() -> None:
    config = settings(
        DRAY_BROKER__ZONE="z1",
        DRAY_BROKER__RACK="r1",
        DRAY_BROKER__ADVERTISED="kafka.example:9999",
        DRAY_LOG__FLUSH_LINGER="7ms",
        DRAY_LOG__OBJECT_BYTES="3MiB",
        DRAY_LOG__UPLOADS_IN_FLIGHT="9",
        DRAY_LOG__TAIL_CACHE_BYTES="5MiB",
        DRAY_LOG__SEGMENT_CACHE_BYTES="6MiB",
        DRAY_LOG__INDEX_CACHE_ENTRIES="77",
        DRAY_LOG__PRODUCER_EXPIRY="2h",
        DRAY_LOG__ORPHAN_TTL="11s",
        DRAY_LOG__COLLECT_GRACE="12s",
        DRAY_LOG__COLLECT_INTERVAL="13s",
        DRAY_LOG__AUDIT_INTERVAL="130s",
        DRAY_LIMITS__FRAME_BYTES="14MiB",
        DRAY_LIMITS__BUFFER_BYTES="15MiB",
        DRAY_LIMITS__CONNECTIONS="16",
        DRAY_LOG__JOB_TTL="22s",
        DRAY_LOG__COLLECT_PERCENT="7",
        DRAY_LIMITS__REQUESTS_IN_FLIGHT="17",
        DRAY_LIMITS__IDLE_TIMEOUT="18s",
        DRAY_LIMITS__DECOMPRESSED_BYTES="19MiB",
        DRAY_LIMITS__FETCH_BYTES="20MiB",
        DRAY_TOPICS__AUTO_CREATE="false",
        DRAY_TOPICS__PARTITIONS="3",
        DRAY_TOPICS__MAX_PARTITIONS="21",
        DRAY_TOPICS__DEFAULTS="{retention.ms: 5}",
    )
    log = log_settings(config)
    assert (log.zone, log.linger_seconds, log.max_object_bytes) == ("z1", 0.007, 3 << 20)
    assert (log.uploads_in_flight, log.tail_cache_bytes, log.segment_cache_bytes) == (9, 5 << 20, 6 << 20)
    assert (log.index_cache_entries, log.producer_expiry_ms) == (77, 7_200_000)
    assert (log.orphan_seconds, log.grace_seconds, log.collect_seconds) == (11, 12, 13)
    assert log.audit_every_rounds == 10
    assert (log.job_seconds, log.brake.share) == (22, 0.07)
    server = server_settings(config)
    assert (server.max_frame_bytes, server.memory_budget_bytes) == (14 << 20, 15 << 20)
    assert (server.max_connections, server.max_in_flight, server.idle_seconds) == (16, 17, 18)
    api = api_settings(config)
    assert (api.auto_create_topics, api.max_decompressed_bytes, api.fetch_max_bytes) == (
        False,
        19 << 20,
        20 << 20,
    )
    topics = topics_options(config)
    assert (topics.default_partitions, topics.max_partitions) == (3, 21)
    assert topics.defaults == {"retention.ms": "5"}
    shown = broker_configs(config)
    assert shown["auto.create.topics.enable"] == "false"
    assert shown["num.partitions"] == "3"
    assert (shown["connections.max.idle.ms"], shown["producer.id.expiration.ms"]) == ("18000", "7200000")
    assert (shown["group.min.session.timeout.ms"], shown["offsets.retention.minutes"]) == ("6000", "10080")
    assert shown["broker.rack"] == "r1"
    assert shown["advertised.listeners"] == "PLAINTEXT://kafka.example:9999"
