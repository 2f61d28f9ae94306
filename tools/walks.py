"""The way of a request through the code, counted: `python -m tools.walks` prints it.

A broker and a compactor run in this process on SQLite and files, one request at a time. A walk is the
distinct functions of `dray` that are entered until the answer has left. Each is walked a few times, every
time on a topic or a group of its own, and counts what all of them have: so a timer that comes by is none of
it. *Own* leaves out the wire's codec, the insides of stores, metrics, getters and constructors. *Reading* is
own on the scale of those who once read the walks by hand. `tools/budgets.json` holds the most that own may
be, and a test holds the walks to it.
"""

from __future__ import annotations

import ast
import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import dray
from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.assembly.stores import open_stores
from dray.daemons.broker.node import Node
from dray.daemons.compactor.pipeline import open_pipeline
from dray.daemons.config import FlagValue, Settings, load
from dray.kafka.protocol import ErrorCode, Request, RequestHeader, Response, response_class
from dray.kafka.protocol.frames import encode_request_header, frame_message, parse_response_header
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import Record, twin
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.writing.executor import LocalUnitWriter

TIMES: Final = 5
SOURCE: Final = str(Path(dray.__file__).parent) + os.sep
BESIDE: Final = (
    "base/runtime/",
    "base/telemetry/",
    "daemons/assembly/",
    "kafka/protocol/",
    "kafka/records/",
    "metadata/",
    "objects/",
)
"""Of `dray`, and no part of a walk's own functions: what is read once, for all walks."""
CONSTRUCTORS: Final = {"__init__", "__new__", "__post_init__"}


class Scale(NamedTuple):
    """A walk as it was at `e6c57445`: what the tracer counted then, and what was read by hand."""

    own: int
    read: int


SCALES: Final = {
    "small produce": Scale(87, 48),
    "bulk produce": Scale(129, 72),
    "tail fetch": Scale(55, 56),
    "Parquet fetch": Scale(157, 87),
    "JoinGroup": Scale(144, 76),
    "compaction": Scale(320, 139),
}


class Walk(NamedTuple):
    functions: set[CodeType]

    @property
    def own(self) -> set[CodeType]:
        return {code for code in self.functions if _is_own(code)}


def _place(code: CodeType) -> str:
    return code.co_filename.removeprefix(SOURCE)


def _is_own(code: CodeType) -> bool:
    if _place(code).startswith(BESIDE) or code.co_name in CONSTRUCTORS:
        return False
    return code.co_firstlineno not in getters(code.co_filename)


@cache
def getters(filename: str) -> set[int]:
    """Where the functions of a module begin that do nothing but return one thing."""
    tree = ast.parse(Path(filename).read_text(encoding="utf-8"))
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    return {_first_line(each) for each in functions if isinstance(_told_apart(each)[0], ast.Return)}


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _told_apart(function: ast.FunctionDef) -> list[ast.stmt]:
    """The body without its docstring."""
    return function.body[1:] if ast.get_docstring(function) and function.body[1:] else function.body


class Tracer:
    """Counts in all threads that are started after it was made."""

    def __init__(self) -> None:
        self._entered: set[CodeType] | None = None
        threading.setprofile(self._enter)

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self._entered is not None:
            self._entered.add(frame.f_code)

    async def once(self, step: Callable[[int], Awaitable[object]], number: int) -> set[CodeType]:
        self._entered = entered = set[CodeType]()
        sys.setprofile(self._enter)
        try:
            await step(number)
        finally:
            sys.setprofile(None)
            self._entered = None
        return entered

    @staticmethod
    def shared(times: list[set[CodeType]]) -> Walk:
        """The first time has ways that are gone once: what is loaded, or looked for."""
        codes = set.intersection(*times[1:])
        return Walk(
            {code for code in codes if code.co_filename.startswith(SOURCE) and code.co_name[0] != "<"}
        )

    async def walk(self, step: Callable[[int], Awaitable[object]]) -> Walk:
        return self.shared([await self.once(step, number) for number in range(TIMES + 1)])


class Client:
    """Frames are made before a walk begins, and read after it: only the broker is seen."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def frame(self, request: Request[Any], version: int) -> list[Any]:
        header = RequestHeader(request.API_KEY, version, 1, "walker")
        return frame_message(encode_request_header(header), request.encode(version))

    async def send(self, frame: list[Any]) -> bytes:
        self._writer.writelines(frame)
        size = int.from_bytes(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, request: Request[Any], version: int) -> Any:
        return answer_of(request, version, await self.send(self.frame(request, version)))


def answer_of(request: Request[Any], version: int, frame: bytes) -> Response:
    _, position = parse_response_header(memoryview(frame), request.API_KEY, version)
    response, _ = response_class(request.API_KEY).decode(memoryview(frame), position, version)
    return response


PRODUCE, FETCH, JOIN, CREATE = 9, 12, 5, 5


def produce(topic: str, size: int) -> ProduceRequest:
    records = bytes(twin.encode([Record(0, SystemRuntime().wall_ms(), None, b"x" * size)]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, records)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def fetch(topic: str) -> FetchRequest:
    partition = FetchPartition(0, partition_max_bytes=1 << 20)
    return FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])])


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        group_instance_id="one",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", bytes(10))],
    )


SMALL, BULK = 100, 512 << 10
"""Bytes of a record: one that rides in its commit, and one that becomes an object."""


def config(folder: Path) -> Settings:
    given = {
        "data_dir": str(folder),
        "broker.listen": "127.0.0.1:0",
        "broker.http": "off",
        "cluster.tally_interval": "30s",  # it comes by while a request waits
    }
    return load(None, {}, [FlagValue("walks", name, value) for name, value in given.items()]).settings


@asynccontextmanager
async def broker(settings: Settings, runtime: SystemRuntime) -> AsyncIterator[Client]:
    stores = await open_stores(settings, runtime)
    node = Node(settings, runtime, stores.metadata, stores.objects)
    await node.start()
    try:
        reader, writer = await asyncio.open_connection(*node.address)
        yield Client(reader, writer)
        writer.close()
    finally:
        await node.stop()


async def _produced(client: Client, topic: str, *sizes: int) -> None:
    created = await client.ask(
        CreateTopicsRequest(topics=[CreatableTopic(topic, 1, 1)], timeout_ms=30_000), CREATE
    )
    assert created.topics[0].error_code == ErrorCode.NONE, created
    for size in sizes:
        answer = await client.ask(produce(topic, size), PRODUCE)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, answer


async def _walk_of(
    tracer: Tracer, client: Client, version: int, requests: Callable[[int], Request[Any]]
) -> Walk:
    frames = [client.frame(requests(number), version) for number in range(TIMES + 1)]
    return await tracer.walk(lambda number: client.send(frames[number]))


async def _compaction(tracer: Tracer, settings: Settings, runtime: SystemRuntime, client: Client) -> Walk:
    stores = await open_stores(settings, runtime)
    pipeline = await open_pipeline(settings, runtime, stores)
    compactor = Compactor(
        CompactorStores(pipeline.streams, stores.objects),
        runtime,
        LocalUnitWriter(stores.objects, runtime),
        pipeline.tables,
        pipeline.topics,
        compaction_settings(settings),
        log_settings(settings),
    )

    async def cycle(_: int) -> None:
        await compactor.run_cycle(everything=True)

    walks = []
    for number in range(TIMES + 1):
        await _produced(client, f"compacted-{number}", SMALL, BULK)
        walks.append(await tracer.once(cycle, number))
    await stores.close()
    return tracer.shared(walks)


async def walks() -> dict[str, Walk]:
    try:
        return await _walks(Tracer())
    finally:
        threading.setprofile(None)


async def _walks(tracer: Tracer) -> dict[str, Walk]:
    found: dict[str, Walk] = {}
    with TemporaryDirectory() as folder:
        runtime = SystemRuntime()
        settings = config(Path(folder))
        async with broker(settings, runtime) as client:
            topics = [f"topic-{number}" for number in range(TIMES + 1)]
            for topic in topics:
                await _produced(client, topic, SMALL)
            found["tail fetch"] = await _walk_of(tracer, client, FETCH, lambda _: fetch(topics[0]))
            found["small produce"] = await _walk_of(
                tracer, client, PRODUCE, lambda number: produce(topics[number], SMALL)
            )
            found["bulk produce"] = await _walk_of(
                tracer, client, PRODUCE, lambda number: produce(topics[number], BULK)
            )
            found["JoinGroup"] = await _walk_of(tracer, client, JOIN, lambda number: join(f"group-{number}"))
            found["compaction"] = await _compaction(tracer, settings, runtime, client)
        async with broker(settings, runtime) as client:  # with cold caches
            found["Parquet fetch"] = await _walk_of(
                tracer, client, FETCH, lambda number: fetch(topics[number])
            )
        runtime.close()
    return {name: found[name] for name in SCALES}


def as_table(found: dict[str, Walk]) -> str:
    rows: list[tuple[str, ...]] = [("walk", "all", "files", "own", "files", "reading")]
    for name, walk in found.items():
        own = walk.own
        scale = SCALES[name]
        numbers = len(walk.functions), _files(walk.functions), len(own), _files(own)
        rows.append((name, *map(str, numbers), str(round(len(own) * scale.read / scale.own))))
    return "\n".join(f"{row[0]:<14}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows)


def _files(codes: set[CodeType]) -> int:
    return len({code.co_filename for code in codes})


def main(arguments: list[str]) -> None:
    found = asyncio.run(walks())
    for name in arguments:
        own = found[name].own
        print(*sorted(f"{_place(code)}:{code.co_firstlineno} {code.co_qualname}" for code in own), sep="\n")
    print(as_table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
