"""A node on stores in memory: what it does when it starts, when something is wrong, when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
from structlog.testing import capture_logs
from tests.services.batches import batch, plain

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import ClockGuard, LevelKeeper, LevelTooNew, Membership, open_cluster
from dray.broker.cluster.identity import encode_cluster
from dray.broker.cluster.levels import BASE, ClusterLevel
from dray.broker.groups.coordinator import Groups
from dray.broker.security.audit import MADE_UP, ListLine
from dray.broker.server import AddressInUse, Connection
from dray.broker.topics import NewTopic, Topics
from dray.broker.topics.retention import RetentionLoop
from dray.daemons.assembly.settings import (
    broker_configs,
    log_settings,
    server_settings,
)
from dray.daemons.assembly.store_work import FAILING_SECONDS
from dray.daemons.broker.broker_parts import UNMERGED_OBJECTS, UnmergedBulk
from dray.daemons.broker.node import LEAST_STOP_SECONDS, Node
from dray.daemons.broker.security import BrokerSecurity
from dray.daemons.config import FlagValue, Settings, load
from dray.inspection.brokers import Brokers
from dray.inspection.topics.views import topic_view, topics_page
from dray.kafka.client import ClientError, Cluster, Dialer, KafkaConnection, RequestFailed
from dray.kafka.client.admin import describe_topics, offsets_at
from dray.kafka.client.records import LATEST
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.log import Log
from dray.log.append.carried_hints import survey_carried
from dray.log.stream_store import StreamStore
from dray.log.types import ObjectCorrupt
from dray.metadata import keys
from dray.metadata.contract import (
    MetadataError,
    MetadataStore,
    Operation,
    Outcome,
    Put,
    StoredValue,
    Unavailable,
)
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects import Buffer, ObjectError
from dray.objects.contract import ObjectInfo, ObjectStore
from dray.objects.memory import MemoryObjects
from dray.objects.remote.failures import RemoteFailure


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
        self.failure = ObjectError("the store is on fire")
        self.closed = False

    async def head(self, path: str) -> ObjectInfo:
        if self.broken:
            raise self.failure
        return await super().head(path)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        if self.broken:
            raise ObjectError("the store is on fire")
        if not self.gate.is_set():
            self.arrived.set()
        await self.gate.wait()
        await super().put(path, parts)

    async def get(self, path: str) -> Buffer:
        if self.broken:
            raise self.failure
        return await super().get(path)

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


class AdjustableClock(SystemRuntime):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Parts:
    def __init__(self, config: Settings | None = None, state: MemoryState | None = None) -> None:
        self.runtime = AdjustableClock()
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
    return int((await http_body(node, path)).split()[1])


async def http_body(node: Node, path: str) -> str:
    """With its head."""
    assert node.http_address is not None
    reader, writer = await asyncio.open_connection(*node.http_address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()


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
    given = settings()
    parts = Parts(replace(given, log=replace(given.log, carry_backlog=64 << 10)))
    await parts.node.start()
    await eventually(lambda: parts.node.is_carrying)
    assert await http_status(parts.node, "/readyz") == 200
    parts.objects.broken = True
    parts.runtime.ahead += FAILING_SECONDS
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
    parts.node.parts.reads = BASE  # so it does not carry, whatever the setting says
    await parts.node.start()
    parts.objects.broken = True
    assert await http_status(parts.node, "/readyz") == 200, "it worked a moment ago"
    parts.runtime.ahead += FAILING_SECONDS
    assert await http_status(parts.node, "/readyz") == 503
    parts.objects.broken = False
    assert await http_status(parts.node, "/readyz") == 200
    parts.metadata.broken = True
    parts.runtime.ahead += FAILING_SECONDS
    assert await http_status(parts.node, "/readyz") == 503
    assert await http_status(parts.node, "/healthz") == 200
    parts.metadata.broken = False
    assert await http_status(parts.node, "/readyz") == 200
    await parts.node.stop()


async def test_a_broker_whose_log_finds_all_its_answers_bad_is_not_ready() -> None:
    parts = Parts(settings())
    parts.node.parts.reads = BASE
    await parts.node.start()
    for _ in range(2):
        parts.node.parts.observed.read_badly(ObjectCorrupt("wal/a: damaged"))
        parts.runtime.ahead += FAILING_SECONDS
    assert await http_status(parts.node, "/readyz") == 503
    parts.node.parts.observed.read_well()
    assert await http_status(parts.node, "/readyz") == 200
    await parts.node.stop()


async def test_a_start_waits_for_a_store_that_is_overloaded_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker listens meanwhile, is alive, and is not ready."""
    monkeypatch.setattr("dray.daemons.assembly.parts._FIRST_PAUSE", 0.001)
    parts = Parts()
    parts.objects.broken = True
    parts.objects.failure = RemoteFailure("cannot head dray-cluster: 503 (SlowDown)", 503, "SlowDown")
    waits = asyncio.Event()
    monkeypatch.setattr("dray.daemons.assembly.parts.tell_manager", lambda **_: waits.set())
    with capture_logs() as lines:
        starting = asyncio.ensure_future(parts.node.start())
        await waits.wait()
        assert await http_status(parts.node, "/healthz") == 200
        assert await http_status(parts.node, "/readyz") == 503
        for _ in range(3):
            waits.clear()
            await waits.wait()
        parts.objects.broken = False
        await starting
        assert await http_status(parts.node, "/readyz") == 200
    told = [line["error"] for line in lines if line["event"] == "the start waits for the object store"]
    assert told == ["the store is overloaded (cannot head dray-cluster: 503 (SlowDown))"]
    await parts.node.stop()


async def test_a_start_says_that_it_waits_for_a_store_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not when the client gives up, which is after a minute."""
    monkeypatch.setattr("dray.daemons.assembly.parts.NO_ANSWER_SECONDS", 0.001)
    parts = Parts()
    answers, waits = asyncio.Event(), asyncio.Event()
    head = parts.objects.head

    async def silent(path: str) -> ObjectInfo:
        await answers.wait()
        return await head(path)

    monkeypatch.setattr(parts.objects, "head", silent)
    monkeypatch.setattr("dray.daemons.assembly.parts.tell_manager", lambda **_: waits.set())
    with capture_logs() as lines:
        starting = asyncio.ensure_future(parts.node.start())
        async with asyncio.timeout(60):
            for _ in range(3):
                waits.clear()
                await waits.wait()
            answers.set()
            await starting
    told = [line["error"] for line in lines if line["event"] == "the start waits for the object store"]
    assert told == ["it is slow, or gives no answer"]
    await parts.node.stop()


async def test_a_start_does_not_wait_for_what_waiting_cannot_mend() -> None:
    parts = Parts()
    parts.objects.broken = True
    parts.objects.failure = RemoteFailure("cannot head dray-cluster: 403", 403, "AccessDenied")
    with pytest.raises(ObjectError, match="403"):
        await asyncio.wait_for(parts.node.start(), 60)
    parts.objects.broken = False
    await parts.node.stop()


async def test_a_doubted_clock_is_shown_and_the_broker_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    node = parts.node
    await node.start()
    monkeypatch.setattr(ClockGuard, "doubt", lambda _: "it is 691200 s ahead of others")
    assert node.http_address is not None
    reader, writer = await asyncio.open_connection(*node.http_address)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 200 " in answer.splitlines()[0]
    assert b"691200 s ahead of others" in answer
    assert b"dray_clock_doubted 1.0" in node.metrics.exposition()
    monkeypatch.setattr(ClockGuard, "doubt", lambda _: None)
    assert b"dray_clock_doubted 0.0" in node.metrics.exposition()
    await node.stop()


async def test_a_broker_warns_of_bulk_that_no_compactor_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    node = parts.node
    await node.start()
    asked = []

    def unseen_seconds(_: ClockGuard, role: str) -> float:
        asked.append(role)
        return 7 * 3600.0

    monkeypatch.setattr(ClockGuard, "unseen_seconds", unseen_seconds)
    with capture_logs() as logs:
        for _ in range(UNMERGED_OBJECTS):
            node.metrics.wal_flush_seconds.observe(0.01)
        await node.parts.need(ClockGuard).until_certain()
    assert asked[0] == "compactor"
    [warning] = [line for line in logs if line["event"].startswith("no compactor was seen")]
    assert (warning["log_level"], warning["hours"], warning["objects"]) == ("warning", 7, UNMERGED_OBJECTS)
    await node.stop()


def test_bulk_without_a_compactor_is_told_when_it_is_much_and_once_a_day() -> None:
    objects = 500
    bulk = UnmergedBulk(lambda: objects)

    def told(hours: float) -> int:
        with capture_logs() as logs:
            bulk.look(hours * 3600)
        return len(logs)

    assert told(100) == 0, "nothing was written since"
    objects += UNMERGED_OBJECTS - 1
    assert told(101) == 0
    objects += 1
    assert told(5.9) == 0, "one was seen lately: it sees to these"
    assert told(7) == 0
    objects += UNMERGED_OBJECTS
    assert told(8) == 1
    assert told(8.1) == 0
    assert told(31.9) == 0
    assert told(32) == 1
    assert told(0) == 0
    objects += UNMERGED_OBJECTS
    assert told(6) == 1, "another absence"


async def test_whatever_expires_in_a_broker_asks_its_guarded_clock() -> None:
    parts = Parts()
    node = parts.node
    await node.start()
    clocks, log = node.parts.need(ClockGuard), node.parts.need(Log)
    assert log._expiry is clocks
    assert all(committer._expiry is clocks for committer in log._committers)
    assert node.parts.need(RetentionLoop)._retention._retention._expiry is clocks
    assert node.parts.need(Groups).expiry is clocks
    await node.stop()
    store = MemoryStore(parts.runtime, parts.metadata._state)
    assert await store.scan(keys.CLUSTER_DOMAIN, keys.CLOCKS, keys.prefix_end(keys.CLOCKS)) == []


async def test_a_client_that_comes_while_the_broker_starts_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    node = parts.node
    started, go_on = asyncio.Event(), asyncio.Event()

    async def open_slowly(*arguments: object) -> object:
        started.set()
        await go_on.wait()
        return await open_cluster(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("dray.daemons.broker.broker_parts.open_cluster", open_slowly)
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

    async def open_slowly(*arguments: object) -> object:
        started.set()
        await go_on.wait()
        return await open_cluster(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("dray.daemons.broker.broker_parts.open_cluster", open_slowly)
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
        going_on.append(asyncio.ensure_future(node._entrance.dispatch(memoryview(frame), connection)))

    class Dispatching:
        def __init__(self, *_: object, **__: object) -> None:
            self.dispatch = dispatch
            ask(b"third")  # it is begun before those that wait are woken

    started, go_on = asyncio.Event(), asyncio.Event()

    async def open_slowly(*arguments: object) -> object:
        started.set()
        await go_on.wait()
        return await open_cluster(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("dray.daemons.broker.broker_parts.open_cluster", open_slowly)
    monkeypatch.setattr("dray.daemons.broker.broker_parts.Dispatcher", Dispatching)
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


def numbers(node: Node, *names: str) -> dict[str, float]:
    """Of series that begin so, those that are not 0."""
    lines = [line.rpartition(" ") for line in node.metrics.exposition().decode().splitlines()]
    return {name: float(value) for name, _, value in lines if name.startswith(names) and float(value)}


async def test_a_value_of_a_newer_build_is_seen_by_whoever_asks() -> None:
    """A head in a format that this build does not know: errors are counted, `/readyz` has the reason, and so
    have those who describe the topic."""
    parts = Parts()
    node, store = parts.node, parts.metadata
    await node.start()
    async with connected(node) as connection:
        named = await make_topic(connection, "t")
        records = bytearray(batch(plain(b"one")))
        assert not numbers(node, "dray_errors_total", "dray_unreadable_values")
        topic = await node.parts.need(Topics).get("t")
        assert topic is not None
        [stream] = topic.streams
        domain = keys.domain_of_stream(stream, node.parts.cluster.domains)
        head = cast(StoredValue, await store.get(domain, keys.high_watermark(stream)))
        await store.write(domain, [Put(head.key, b"\x09" + head.value[1:])])
        answer = await connection.request(produce_request(named, bytearray(records)))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert numbers(node, "dray_errors_total", "dray_unreadable", 'dray_requests_total{api="Produce') == {
            'dray_errors_total{api="Produce",error="REQUEST_TIMED_OUT"}': 1,
            'dray_unreadable_values{kind="high watermark"}': 1,
            'dray_requests_total{api="Produce",outcome="error"}': 1,
        }
        assert not numbers(node, "dray_partitions_acknowledged")
        why = "a high watermark is stored in format 9, and this build reads formats up to 3: upgrade it"
        assert f"t-0: {why}" in await http_body(node, "/readyz")
        cluster = Cluster([node.address], Dialer(client_id="test"), parts.runtime)
        async with cluster:
            [described] = await describe_topics(cluster, ["t"])
            with pytest.raises(RequestFailed, match=r"cannot look up t-0: KAFKA_STORAGE_ERROR: .*upgrade it"):
                await offsets_at(cluster, ["t"], LATEST)
        assert why in (described.partitions[0].trouble or "")
        brokers = Brokers([node.address], parts.runtime)
        view = await topic_view(brokers, "t")
        assert why in (view.partitions[0].trouble or "")
        assert view.partitions[0].end is None
        [row] = (await topics_page(brokers)).rows
        assert why in (row.trouble or "")
        await brokers.close()
    await node.stop()


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


async def test_a_broker_carries_unless_it_is_told_not_to() -> None:
    state = MemoryState()
    first = Parts(settings(), state)
    await first.node.start()
    await eventually(lambda: first.node.is_carrying)
    told = Parts(settings(DRAY_LOG__CARRY_BYTES="0"), state)
    await told.node.start()
    await told.node.parts.need(ClockGuard).until_certain()
    assert not told.node.is_carrying
    for parts in (first, told):
        await parts.node.stop()


async def test_no_broker_carries_until_the_level_allows_it() -> None:
    """A cluster that an older build made. It is raised when that one has gone and all others read it."""
    state = MemoryState()
    given = settings()
    soon = replace(given, cluster=replace(given.cluster, level_wait=0.0))
    older, newer = Parts(soon, state), Parts(soon, state)
    older.node.parts.keeps_tally = newer.node.parts.keeps_tally = False  # each has a bucket of its own
    older.node.parts.reads = BASE
    await older.node.start()
    await newer.node.start()
    await newer.node.parts.need(ClockGuard).until_certain()
    await newer.node.parts.need(LevelKeeper).look()
    assert not newer.node.is_carrying
    await older.node.stop()
    await eventually(lambda: newer.node.parts.looks_after(keys.CLUSTER_DOMAIN))
    for _ in range(2):  # all read it; that was so for long enough
        await newer.node.parts.need(LevelKeeper).look()
    assert newer.node.is_carrying
    await newer.node.stop()


async def test_a_broker_that_is_older_than_the_level_does_not_start() -> None:
    state = MemoryState()
    newer, older = Parts(settings(), state), Parts(settings(), state)
    await newer.node.start()
    older.node.parts.reads = BASE
    with pytest.raises(LevelTooNew, match="is at level 2, and this build reads levels up to 1"):
        await older.node.start()
    await older.node.stop()
    await newer.node.stop()


async def test_a_broker_asks_for_the_level_once_more_when_it_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may have raised it while it was not seen by them yet."""
    state = MemoryState()
    newer, older = Parts(settings(), state), Parts(settings(), state)
    await newer.node.start()
    older.node.parts.reads = BASE
    monkeypatch.setattr("dray.daemons.broker.broker_parts.check_level", lambda *_: None)
    with pytest.raises(LevelTooNew):
        await older.node.start()
    await older.node.stop()
    await newer.node.stop()


async def test_a_ceiling_ends_carrying_and_what_is_carried_is_packed() -> None:
    parts = Parts(settings())
    await parts.node.start()
    await eventually(lambda: parts.node.is_carrying)
    async with connected(parts.node) as connection:
        topic = await make_topic(connection, "t")
        await connection.request(produce_request(topic, bytearray(batch(plain(b"one")))))
    streams = StreamStore(cast(MetadataStore, parts.metadata), 4, 1000)
    assert (await survey_carried(streams)).carried_entries
    cluster = replace(parts.node.parts.cluster, level=ClusterLevel(2, ceiling=1))
    await parts.metadata.write(keys.CLUSTER_DOMAIN, [Put(keys.CLUSTER, encode_cluster(cluster))])
    await parts.node.parts.need(LevelKeeper).look()
    assert (parts.node.is_carrying, parts.node.parts.writes) == (False, BASE)
    for rounds in parts.node.parts.need(Log)._packing:
        await rounds.run()
    assert not (await survey_carried(streams)).carried_entries
    await parts.node.stop()


async def test_a_store_that_hangs_does_not_keep_a_stop_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.daemons.broker.node.LEAST_STOP_SECONDS", 0.2)
    parts = Parts(settings(DRAY_BROKER__SHUTDOWN_GRACE="0s", DRAY_LOG__CARRY_BYTES="0"))
    await parts.node.start()
    async with connected(parts.node) as connection:
        topic = await make_topic(connection, "t")
        parts.objects.gate.clear()
        producing = asyncio.ensure_future(
            connection.request(produce_request(topic, bytearray(batch(plain(b"one", b"two", b"three")))))
        )
        await parts.objects.arrived.wait()
        with capture_logs() as lines, pytest.raises(TimeoutError, match="no time left for: log"):
            await parts.node.stop()
        with pytest.raises(ClientError):  # never acknowledged
            await producing
    errors = [line for line in lines if line["log_level"] == "error"]
    assert [(line["part"], "exc_info" in line) for line in errors] == [("log", False)], "in one line"
    assert parts.runtime.background.names() == [], "nothing is left to be torn down"
    assert parts.runtime.background.ended() == {}
    assert parts.metadata.closed
    parts.objects.gate.set()


async def test_no_part_of_a_stop_has_more_time_than_the_grace_while_puts_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All share it, and what comes after the answers has its part of it."""
    parts = Parts(settings(DRAY_BROKER__SHUTDOWN_GRACE="40s", DRAY_LOG__CARRY_BYTES="0"))
    await parts.node.start()
    server_stop = parts.node._server.stop
    answers: list[float] = []
    took: list[float] = []

    def note(seconds: float) -> Coroutine[None, None, None]:
        answers.append(seconds)
        return server_stop(seconds)

    async def hang(step: Coroutine[None, None, None], seconds: float) -> None:
        """The server keeps to what it was given; every other part takes all that it may."""
        took.append(seconds if took else answers[0])
        parts.runtime.ahead += took[-1]
        step.close()
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(parts.node._server, "stop", note)
        patched.setattr("dray.daemons.broker.node.asyncio.wait_for", hang)
        with pytest.raises(TimeoutError):
            await parts.node.stop()
    assert took[0] == 40 - LEAST_STOP_SECONDS
    assert took[1] <= LEAST_STOP_SECONDS
    assert sum(took) <= 40 + 0.5 * len(took), "a moment for each that comes when the time is up"
    await parts.node.stop()


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


async def test_parts_stop_in_their_order_also_after_one_that_failed_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that failed is stopped too; those that come after it have not begun."""

    async def fail(_: Membership) -> None:
        raise ValueError("no")

    parts = Parts()
    with monkeypatch.context() as patched, pytest.raises(ValueError, match="no"):
        patched.setattr(Membership, "start", fail)
        await parts.node.start()
    assert [name for name, _ in parts.node.parts.stops()] == [
        "security",
        "retention",
        "audit of foreign segments",
        "topics",
        "log",
        "membership",
        "tally",
        "clocks",
        "http",
        "http's files",
        "object store",
        "metadata store",
    ]
    await parts.node.stop()
    assert parts.metadata.closed


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


async def test_the_audit_log_lists_a_topic_that_is_there_however_many_are_made_up() -> None:
    parts = Parts(settings(DRAY_SECURITY__AUTHORIZATION="acls", DRAY_SECURITY__SUPER_USERS="User:admin"))
    await parts.node.start()
    authorization = parts.node.parts.need(BrokerSecurity).authorization
    assert authorization is not None
    topics = parts.node.parts.need(Topics)
    listed: list[ListLine] = []
    authorization.audit._write_list = listed.append
    written: list[str] = []  # a slow machine gives the rate time for a line of its own
    authorization.audit._write = lambda act, *_: written.append(act.name)
    await topics.create(NewTopic("payroll", 1))
    async with connected(parts.node) as connection:
        for start in range(0, 4_000, 1_000):
            noise = [MetadataRequestTopic(name=f"noise-{number}") for number in range(start, start + 1_000)]
            await connection.request(MetadataRequest(topics=noise))
        await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="payroll")]))
    authorization.audit.write_counted()
    names = [name for line in listed for name in line.names]
    assert "payroll" in names + written
    assert MADE_UP.of_one <= len(names) <= MADE_UP.of_one + 1
    await parts.node.stop()


def test_every_setting_reaches_its_room() -> None:
    config = settings(
        DRAY_BROKER__ZONE="z1",
        DRAY_BROKER__RACK="r1",
        DRAY_BROKER__ADVERTISED="kafka.example:9999",
        DRAY_LOG__FLUSH_LINGER="7ms",
        DRAY_LOG__OBJECT_BYTES="3MiB",
        DRAY_LOG__TAIL_CACHE_BYTES="5MiB",
        DRAY_LOG__ORPHAN_TTL="11s",
        DRAY_LOG__COLLECT_GRACE="12s",
        DRAY_LIMITS__FRAME_BYTES="14MiB",
        DRAY_LIMITS__BUFFER_BYTES="15MiB",
        DRAY_LIMITS__CONNECTIONS="16",
        DRAY_TOPICS__AUTO_CREATE="false",
        DRAY_TOPICS__PARTITIONS="3",
        DRAY_TOPICS__DEFAULTS="{retention.ms: 5}",
    )
    log = log_settings(config)
    assert (log.zone, log.linger_seconds, log.object_bytes) == ("z1", 0.007, 3 << 20)
    assert log.tail_bytes == 5 << 20
    assert (log.orphan_ttl, log.collect_grace) == (11, 12)
    server = server_settings(config)
    assert (server.frame_bytes, server.buffer_bytes) == (14 << 20, 15 << 20)
    assert server.connections == 16
    topics = config.topics
    assert (topics.auto_create, topics.partitions) == (False, 3)
    assert topics.defaults == {"retention.ms": "5"}
    shown = broker_configs(config)
    assert shown["auto.create.topics.enable"] == "false"
    assert shown["num.partitions"] == "3"
    assert (shown["connections.max.idle.ms"], shown["producer.id.expiration.ms"]) == ("600000", "86400000")
    assert (shown["group.min.session.timeout.ms"], shown["offsets.retention.minutes"]) == ("6000", "10080")
    assert shown["broker.rack"] == "r1"
    assert shown["advertised.listeners"] == "PLAINTEXT://kafka.example:9999"
