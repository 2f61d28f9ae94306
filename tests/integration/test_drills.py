"""Clouds that fail, as they do: each drill is a kind of failure that lasts, before a real S3 server, and a
broker that keeps every record in an object.

What holds in all of them: what was acknowledged is read, in order, once, and byte for byte, and the collector
takes nothing of it; whoever reads hears of nothing on which clients give up; the log tells of an outage once,
and of its end. What differs is in the table: whether records are written and read meanwhile, and what
`/readyz` says once the failure has lasted. Time passes by the test's own clock."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest
import structlog
from tests.services.batches import batch, joined, plain
from tests.services.compaction_cluster import ALL
from tests.services.s3 import BUCKET, S3Process
from tests.services.s3_proxy import (
    BARE_MISSING,
    MISSING,
    SLOW_DOWN,
    Answer,
    Bent,
    Cut,
    Fault,
    Late,
    Request,
    S3Proxy,
    Silence,
    s3_proxy,
)
from tests.simulation.scripted import bucket_is_ours

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import configure_logging
from dray.broker.topics.live import StoredTopics
from dray.daemons.assembly.parts import NO_ANSWER_SECONDS
from dray.daemons.assembly.settings import log_settings
from dray.daemons.assembly.store_work import FAILING_SECONDS, HANGING_SECONDS
from dray.daemons.broker.node import Node
from dray.daemons.config import FlagValue, load
from dray.kafka.client import KafkaConnection
from dray.kafka.client.admin import create_topic
from dray.kafka.client.records import fetch
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import decode, read_header
from dray.log import Log
from dray.log.stream_store import StreamStore
from dray.metadata.memory import MemoryStore
from dray.objects import ObjectError, open_store
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.writing.executor import LocalUnitWriter

TOPIC = "drilled"
PARTITIONS = 3
BEFORE = 9
"""Records that are written in good weather, each an object of its own."""
MEANWHILE = 6
"""So many are written while the failure lasts, where they are at all."""
LINES = 12
"""Of the log, of a whole drill, whatever fails and however often."""

SETTINGS = {
    "DRAY_LOG__CARRY_BYTES": "0",
    "DRAY_LOG__TAIL_CACHE_BYTES": "0",
    "DRAY_LOG__FLUSH_LINGER": "0ms",
    "DRAY_LOG__ORPHAN_TTL": "1s",
    "DRAY_LOG__COLLECT_GRACE": "0s",
}


def everything(_: Request) -> bool:
    return True


def puts(request: Request) -> bool:
    return request.method == "PUT"


def gets(request: Request) -> bool:
    return request.method == "GET" and "/wal/" in request.target and not lists(request)


def looks(request: Request) -> bool:
    """Whoever asks for an object of the log, by GET or by HEAD."""
    return gets(request) or (request.method == "HEAD" and "/wal/" in request.target)


def lists(request: Request) -> bool:
    return "list-type=" in request.target


def deletes(request: Request) -> bool:
    return request.method in ("DELETE", "POST")


@dataclass(frozen=True)
class Drill:
    name: str  # what the report of the first drills called it
    fault: Fault
    of: Callable[[Request], bool]
    writes: bool = True
    reads: bool = True
    ready: str = ""
    """What `/readyz` says is wrong; nothing: it is ready."""
    after: float = FAILING_SECONDS
    some: tuple[int, int] = (1, 1)
    """Of so many such requests, so many meet it."""

    def __str__(self) -> str:
        return self.name

    def requests(self) -> Callable[[Request], bool]:
        numbers = itertools.count()
        out_of, fail = self.some
        return lambda request: self.of(request) and next(numbers) % out_of >= out_of - fail


APPLIED = Answer("500 Internal Server Error", "InternalError", after=True)


def reads_nothing(name: str, fault: Fault, ready: str = "", after: float = FAILING_SECONDS) -> Drill:
    return Drill(name, fault, gets, reads=False, ready=ready, after=after)


def writes_nothing(name: str, fault: Fault, ready: str, after: float = FAILING_SECONDS) -> Drill:
    return Drill(name, fault, puts, writes=False, ready=ready, after=after)


def does_nothing(name: str, fault: Fault, ready: str, after: float = FAILING_SECONDS) -> Drill:
    return Drill(name, fault, everything, writes=False, reads=False, ready=ready, after=after)


DRILLS = [
    reads_nothing("get_full", Bent.WHOLE, "reads fail since"),
    reads_nothing("get_flip", Bent.FLIPPED, "answers about records fail since"),
    reads_nothing("get_short", Bent.SHORT, "answers about records fail since"),
    reads_nothing("get_short_honest", Bent.OTHER_RANGE, "reads fail since"),
    reads_nothing("404_all", MISSING, "answers about records fail since"),
    Drill("404_new", MISSING, looks, reads=False, ready="answers about records fail since"),
    reads_nothing("404_bare", BARE_MISSING, "answers about records fail since"),
    reads_nothing("get_reset_all", Bent.TORN, "reads fail since"),
    reads_nothing("noend", Bent.ENDLESS, "reads fail since"),
    reads_nothing("chunked", Bent.CHUNKED, "reads fail since"),
    reads_nothing("trickle", Bent.DRIPPING, "reads fail since", after=HANGING_SECONDS),
    reads_nothing("get403kms", Answer("403 Forbidden", "KMS.DisabledException"), "the bucket's key"),
    writes_nothing("put500after", APPLIED, "uploads fail since"),
    writes_nothing("put200html", Bent.PAGE, "the answer is not the store's"),
    writes_nothing("put403kms", Answer("400 Bad Request", "KMS.DisabledException"), "the bucket's key"),
    writes_nothing("put_hang", Silence(), "uploads fail since", after=HANGING_SECONDS),
    Drill("put500after60", APPLIED, puts, some=(5, 3)),
    Drill("put_reset", Cut(after=False), puts, some=(5, 3)),
    Drill("put_slow5", Late(20.0), puts, some=(5, 1)),
    does_nothing("all_503", SLOW_DOWN, "the store is overloaded"),
    does_nothing("all_403expired", Answer("403 Forbidden", "ExpiredToken"), "the credentials have expired"),
    does_nothing("all_skew", Answer("403 Forbidden", "RequestTimeTooSkewed"), "this machine's clock"),
    does_nothing("all_301", Answer("301 Moved Permanently", "PermanentRedirect"), "in another region"),
    does_nothing("404_bucket", Answer("404 Not Found", "NoSuchBucket"), "the bucket does not exist"),
    does_nothing("all_hang", Silence(), "no answer for", after=NO_ANSWER_SECONDS),
    does_nothing("lat30", Late(30.0), "no answer for", after=NO_ANSWER_SECONDS),
    Drill("503_80", SLOW_DOWN, everything, some=(5, 4)),
    Drill("503_20", SLOW_DOWN, everything, some=(5, 1)),
    Drill("hang50", Silence(), everything, some=(10, 1)),
    Drill("lat2", Late(0.3), everything),
    Drill("list_empty", Bent.EMPTY, lists),
    Drill("list_omit", Bent.HALF, lists),
    Drill("del500after", APPLIED, deletes),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
async def proxy(server: S3Process) -> AsyncIterator[S3Proxy]:
    async with s3_proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def world(server: S3Process, proxy: S3Proxy) -> AsyncIterator[World]:
    async with drilled(server, proxy) as world:
        yield world


class FastClock(SystemRuntime):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class World:
    """A broker, and clients of it that do as Kafka's do: what is refused they send again."""

    def __init__(self, node: Node, runtime: FastClock, proxy: S3Proxy, log: io.StringIO) -> None:
        self.node = node
        self.runtime = runtime
        self.proxy = proxy
        self.log = log
        self.compactor: Compactor | None = None
        self.met = 0
        """So many requests have met the failure."""
        self.topic_id = UUID(int=0)
        self.batches: list[bytes] = []
        """What was acknowledged: record n is in partition n % PARTITIONS."""
        self.told: set[ErrorCode] = set()
        """What readers heard that was not good."""
        self.refusals = 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[KafkaConnection]:
        connection = await KafkaConnection.connect(*self.node.address)
        try:
            await connection.negotiate()
            yield connection
        finally:
            await connection.close()

    async def begin(self) -> None:
        async with self.connected() as connection:
            kept = {"retention.ms": "-1"}  # the records are from 1970
            await create_topic(connection, TOPIC, partitions=PARTITIONS, configs=kept)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            self.topic_id = (await connection.request(asked)).topics[0].topic_id

    def fail(self, drill: Drill) -> None:
        meets = drill.requests()

        def matches(request: Request) -> bool:
            self.met += (met := meets(request))
            return met

        self.proxy.matches, self.proxy.always = matches, drill.fault

    async def write(self, records: int) -> None:
        """As an idempotent producer: the same batch again until it is acknowledged."""
        async with self.connected() as connection:
            producer = await connection.request(InitProducerIdRequest(transactional_id=None))
            for number in range(records):
                place = len(self.batches)
                data = batch(
                    plain(b"%d" % place * 500),
                    producer=producer.producer_id,
                    epoch=producer.producer_epoch,
                    sequence=number // PARTITIONS,
                )
                partition = PartitionProduceData(index=place % PARTITIONS, records=bytearray(data))
                topic = TopicProduceData(topic_id=self.topic_id, name=TOPIC, partition_data=[partition])
                asked = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
                while (await connection.request(asked)).responses[0].partition_responses[0].error_code:
                    self.refusals += 1
                    await asyncio.sleep(0.05)
                self.batches.append(data)

    async def read(self, records: int) -> None:
        """All of them, from the start."""
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        async with self.connected() as connection:
            while sum(offsets.values()) < records:
                for answer in await fetch(connection, TOPIC, self.topic_id, offsets, max_bytes=1 << 20):
                    if answer.error_code:
                        self.told.add(ErrorCode(answer.error_code))
                    else:
                        offsets[answer.partition_index] += self.compared(
                            answer.partition_index, offsets[answer.partition_index], joined(answer.records)
                        )

    def compared(self, partition: int, offset: int, data: bytes) -> int:
        """How many records these are, which are as they were written (but for offset and epoch, which the
        broker gives, and for the batch, where they were compacted)."""
        position = found = 0
        while position < len(data):
            header = read_header(memoryview(data), position)
            batch = memoryview(data)[position : position + header.size]
            for record in decode(batch).records():
                if record.offset >= offset:
                    assert record.offset == offset + found
                    sent = self.batches[record.offset * PARTITIONS + partition]
                    [written] = decode(memoryview(sent)).records()
                    assert record._replace(offset=0) == written
                    assert self.compactor is not None or batch[16:] == sent[16:]
                    found += 1
            position += header.size
        return found

    def add_compactor(self) -> None:
        """One whose writer reads and writes through the same store. Tables have a drill of their own."""
        settings, metadata, objects = self.node._settings, self.node.parts.metadata, self.node.parts.objects
        expiry = log_settings(settings).producer_expiry_ms
        self.compactor = Compactor(
            CompactorStores(StreamStore(metadata, settings.domains, expiry), objects, bucket_is_ours),
            self.runtime,
            LocalUnitWriter(objects, self.runtime),
            None,
            StoredTopics(metadata, settings.topics.defaults),
            replace(ALL, failed_pause_seconds=3600.0),
            log_settings(settings),
        )

    async def compact(self) -> CycleSummary:
        assert self.compactor is not None
        return await self.compactor.run_cycle(everything=True)

    async def collect(self) -> None:
        await self.node.parts.need(Log).collector.run(audit=True)

    async def readyz(self) -> tuple[int, str]:
        assert self.node.http_address is not None
        reader, writer = await asyncio.open_connection(*self.node.http_address)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        return int(answer.split()[1]), answer

    async def objects(self) -> int:
        return len([info async for info in self.node.parts.objects.list("wal/")])

    def lines(self, event: str = "") -> list[dict[str, object]]:
        found = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in found if not event or line["event"] == event]


@asynccontextmanager
async def drilled(server: S3Process, proxy: S3Proxy, **changed: str) -> AsyncIterator[World]:
    runtime = FastClock()
    options = server.options() | {"endpoint": proxy.endpoint, "backoff": "1ms", "max_backoff": "5ms"}
    url = f"s3://{BUCKET}/{uuid4().hex}"
    objects = await open_store(url, options, runtime, server.secrets(), check=True)
    addresses = [("listen", "127.0.0.1:0"), ("http", "127.0.0.1:0")]
    flags = [FlagValue(f"--{name}", f"broker.{name}", value) for name, value in addresses]
    settings = load(None, SETTINGS | changed | {"DRAY_OBJECTS__URL": url}, flags).settings
    # What is bad for long is called corrupt, and a drill may take long where its machine is busy.
    settings = replace(settings, log=replace(settings.log, doubt_seconds=600.0))
    with logged(runtime) as log:
        node = Node(settings, runtime, MemoryStore(runtime), objects)
        world = World(node, runtime, proxy, log)
        try:
            await node.start()
            await world.begin()
            yield world
        finally:
            proxy.always = None
            await node.stop()
            runtime.close()


@contextmanager
def logged(runtime: SystemRuntime) -> Iterator[io.StringIO]:
    """All lines as they are configured; the process's own configuration afterwards."""
    root = logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()
    output = io.StringIO()
    configure_logging("json", "info", runtime, output)
    try:
        yield output
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**before)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - plain state of others
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("drill", DRILLS, ids=str)
async def test_a_drill(world: World, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.daemons.assembly.parts.ASK_SECONDS", 0.2)
    await world.write(BEFORE)
    if drill.of is deletes:
        await leave_an_orphan(world)
    world.fail(drill)
    began = world.runtime.monotonic()
    refusals = world.refusals
    collecting = asyncio.create_task(collected(world))
    if drill.of in (gets, looks):
        await collecting  # it reads whose bucket it is, and that goes well: not all reads would fail
    clients = [
        asyncio.create_task(world.write(MEANWHILE)),
        asyncio.create_task(world.read(BEFORE)),
    ]
    writing, reading = clients
    try:
        if drill.writes:
            await writing
        if drill.reads:
            await reading
        await until(lambda: world.met > 0)
        is_ready = (await world.readyz())[0] == 200
        assert is_ready or world.runtime.monotonic() - began >= FAILING_SECONDS, "it has not lasted yet"
        if drill.ready:
            await until_unready(world, drill.ready, drill.after / 2)
        else:
            world.runtime.ahead += drill.after
            status, text = await world.readyz()
            assert status == 200, text
        assert drill.writes or not writing.done()
        assert drill.reads or not reading.done()
        if not drill.writes and not isinstance(drill.fault, (Silence, Late)):
            await until(lambda: world.refusals > refusals)
    finally:
        world.proxy.always = None
    await asyncio.gather(*clients)
    await world.write(1)
    await collecting
    await world.collect()
    assert world.told <= {ErrorCode.KAFKA_STORAGE_ERROR}, "on others clients give up"
    await until_ready(world)
    await until_only_what_is_needed_is_left(world)
    await world.read(BEFORE + MEANWHILE + 1)
    assert_told_once(world)


CARRIED = [
    Answer("403 Forbidden", "ExpiredToken"),
    SLOW_DOWN,
    Silence(),
]


@pytest.mark.parametrize("fault", CARRIED, ids=repr)
async def test_small_appends_go_on_while_the_store_is_away(
    server: S3Process, proxy: S3Proxy, fault: Fault
) -> None:
    """As configured by default: they ride in their commits, and the broker stays ready."""
    async with drilled(server, proxy, DRAY_LOG__CARRY_BYTES="auto") as world:
        await until(lambda: world.node.is_carrying)
        world.fail(Drill("carry", fault, everything))
        await world.write(BEFORE)
        await world.read(BEFORE)
        assert (await world.readyz())[0] == 200
        assert world.refusals == 0
        proxy.always = None
        await world.write(1)
        await world.read(BEFORE + 1)
        assert world.told == set()


def compacted(request: Request) -> bool:
    return request.method == "GET" and "/compaction/" in request.target and not lists(request)


def reads(request: Request) -> bool:
    return gets(request) or compacted(request)


COMPACTED = [
    Drill("404_all", MISSING, reads),
    Drill("404_all only_parquet", MISSING, compacted),
    Drill("get_flip", Bent.FLIPPED, reads),
    Drill("get_short", Bent.SHORT, reads),
    Drill("put500after60", APPLIED, puts, some=(5, 3)),
    Drill("list_empty", Bent.EMPTY, lists),
]


@pytest.mark.parametrize("drill", COMPACTED, ids=str)
async def test_a_drill_with_a_compactor(world: World, drill: Drill) -> None:
    """What it met costs it a minute at most, and consumers read on, from whatever there is by then."""
    world.add_compactor()
    await world.write(BEFORE)
    assert (await world.compact()).finished == PARTITIONS
    await world.collect()
    assert not await world.objects(), "what is in files is read from there"
    await world.write(BEFORE)
    world.fail(drill)
    reading = asyncio.create_task(world.read(2 * BEFORE))
    writing = asyncio.create_task(world.write(MEANWHILE))
    try:
        for _ in range(3):
            await world.compact()
            with suppress(ObjectError):
                await world.collect()
        await until(lambda: world.met > 0)
        await writing
        assert drill.of in (puts, lists) or not reading.done()
    finally:
        world.proxy.always = None
    async with asyncio.timeout(60):
        await reading
    world.runtime.ahead += 61
    for _ in range(3):  # the first may find units that begin behind others
        assert not (await world.compact()).troubles
    await until_only_what_is_needed_is_left(world)
    await world.read(2 * BEFORE + MEANWHILE)
    assert world.told <= {ErrorCode.KAFKA_STORAGE_ERROR}, "on others clients give up"


async def collected(world: World) -> None:
    """A round of the collector, which may fail if the store does."""
    with suppress(ObjectError):
        await world.collect()


async def leave_an_orphan(world: World) -> None:
    world.proxy.matches, world.proxy.always = puts, APPLIED
    writing = asyncio.create_task(world.write(1))
    await until(lambda: world.refusals > 0)
    world.proxy.always = None
    await writing


async def until_unready(world: World, reason: str, seconds: float) -> None:
    """Time passes in steps, each of which something that fails follows."""
    met = 0
    async with asyncio.timeout(60):
        while (told := await world.readyz())[0] == 200:
            if met < world.met:
                met = world.met
                world.runtime.ahead += seconds
            await asyncio.sleep(0.05)
    assert reason in told[1], told[1]


async def until_ready(world: World) -> None:
    async with asyncio.timeout(60):
        while (await world.readyz())[0] != 200:  # noqa: ASYNC110 - as a prober does
            await asyncio.sleep(0.05)


async def until_only_what_is_needed_is_left(world: World) -> None:
    """An object for each record, or none where all were compacted, and none of those that failed halfway."""
    needed = 0 if world.compactor is not None else len(world.batches)
    async with asyncio.timeout(60):
        while await world.objects() > needed:
            world.runtime.ahead += 2
            await world.collect()
            await asyncio.sleep(0.01)
    assert await world.objects() == needed


def assert_told_once(world: World) -> None:
    lines = world.lines()
    assert len(lines) <= LINES, [line["event"] for line in lines]
    outages = [(line["store"], line["work"]) for line in world.lines("a store fails")]
    ends = [(line["store"], line["work"]) for line in world.lines("a store works again")]
    assert sorted(outages) == sorted(ends)
    assert len(set(outages)) == len(outages)
