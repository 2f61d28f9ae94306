"""What a broker's groups cost: heartbeats, offset commits, rebalances and memory, through the dispatcher.

    python -m bench.groups [--seconds 3] [--directory DIR]

No sockets: a request is encoded, dispatched and its answer encoded, as a connection would have it. Rates of
heartbeats are per second of processor time, so that other work on the machine does not count; commits on
SQLite are also given per second of wall time, since they wait for the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.services import room_settings

from dray.base.runtime import EndlessRoom, SystemRuntime
from dray.broker.api import Dispatcher, Services
from dray.broker.cluster import AdvertisedListener, Broker, Membership, open_cluster
from dray.broker.groups.coordinator import Groups
from dray.broker.security.acls.authorization import Authorization
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.quotas.throttle import Throttle
from dray.broker.security.users import Users
from dray.broker.topics import NewTopic, Topics
from dray.kafka.protocol import (
    ErrorCode,
    Request,
    RequestHeader,
    Response,
    encode_request_header,
    parse_response_header,
    response_class,
)
from dray.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dray.log import Log
from dray.metadata.contract import MetadataStore
from dray.metadata.memory import MemoryStore
from dray.metadata.sqlite import SqliteStore
from dray.migration.groups.gate import GroupGate
from dray.objects.memory import MemoryObjects

ResponseType = TypeVar("ResponseType", bound=Response)

TOPIC = "bench"
CLASSIC = room_settings.groups(initial_rebalance_delay=0.2, session_ttl=60.0, sweep_interval=3600.0)


class Nowhere:
    """A connection that nobody is at the other end of."""

    peer = "127.0.0.1:40000"
    listener = "PLAINTEXT"
    ending = False

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.principal: Any = None

    def welcome(self) -> None: ...

    def throttle(self, seconds: float) -> None: ...

    def when_ending(self, callback: Callable[[], None]) -> None: ...

    def forget(self, callback: Callable[[], None]) -> None: ...

    async def turn(self) -> None: ...

    room = EndlessRoom


class Bench:
    """A broker without sockets."""

    def __init__(self, dispatcher: Dispatcher, groups: Groups) -> None:
        self.dispatcher = dispatcher
        self.groups = groups
        self.connection = Nowhere()

    async def ask(self, request: Request[ResponseType], version: int) -> ResponseType:
        buffers = await self.dispatcher.dispatch(framed(request, version), self.connection)
        assert buffers is not None
        answer = memoryview(b"".join(buffers))
        _, position = parse_response_header(answer, request.API_KEY, version)
        response: Any
        response, _ = response_class(request.API_KEY).decode(answer, position, version)
        return response  # type: ignore[no-any-return]


def framed(request: Request[Any], version: int) -> memoryview:
    header = RequestHeader(request.API_KEY, version, 1, "bench")
    return memoryview(bytearray(encode_request_header(header) + b"".join(request.encode(version))))


@asynccontextmanager
async def broker(
    store: MetadataStore,
    runtime: SystemRuntime,
    partitions: int,
    authorization: Authorization | None = None,
) -> AsyncIterator[Bench]:
    cluster = await open_cluster(store, runtime, 4)
    log = Log(store, MemoryObjects(runtime), runtime, cluster.domains, room_settings.log())
    await log.start()
    topics = Topics(store, runtime, log, room_settings.topics())
    await topics.start()
    if await topics.get(TOPIC) is None:
        await topics.create(NewTopic(TOPIC, partitions))
    membership = Membership(store, runtime, Broker(0, (AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092),)))
    await membership.start()
    gate = GroupGate(store, runtime, cluster.domains)
    groups = Groups(store, runtime, topics, membership, cluster.domains, CLASSIC, admission=gate)
    await groups.start()
    services = Services(
        log,
        topics,
        membership,
        cluster,
        runtime,
        room_settings.api(),
        groups=groups,
        users=Users(store, runtime),
        authorization=authorization,
        quotas=Quotas(store, runtime),
        throttle=Throttle(),
    )
    try:
        yield Bench(Dispatcher(services), groups)
    finally:
        await groups.stop()
        await membership.stop()
        await topics.stop()
        await log.stop()
        await store.close()


# --- members


async def join_classic(bench: Bench, group_id: str, members: int) -> list[tuple[str, int]]:
    """A stable classic group: (member id, generation) of each."""

    def request(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"\0\0\0\0\0\1\0\5bench\0\0\0\0")],
        )

    ids = [(await bench.ask(request(""), 9)).member_id for _ in range(members)]
    joined = await asyncio.gather(*(bench.ask(request(member_id), 9) for member_id in ids))
    leader = next(answer for answer in joined if answer.leader == answer.member_id)

    def sync(member_id: str) -> SyncGroupRequest:
        assignments = [SyncGroupRequestAssignment(member, bytes(60)) for member in ids]
        return SyncGroupRequest(
            group_id=group_id,
            generation_id=leader.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments if member_id == leader.member_id else [],
        )

    answers = await asyncio.gather(*(bench.ask(sync(member_id), 5) for member_id in ids))
    assert all(answer.error_code == ErrorCode.NONE for answer in answers)
    return [(member_id, leader.generation_id) for member_id in ids]


class ConsumerMember:
    """A member of a KIP-848 group that does as it is told."""

    def __init__(self, bench: Bench, group_id: str, member_id: str) -> None:
        self._bench = bench
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    async def beat(self) -> bool:
        """Whether anything was new."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [TOPIC]
            request.topic_partitions = []
        else:
            request.topic_partitions = self.owned
        answer = await self._bench.ask(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        changed = answer.member_epoch != self.epoch or answer.assignment is not None
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
        return changed


async def settle(members: Sequence[ConsumerMember]) -> int:
    """Rounds of heartbeats until nothing changes."""
    rounds = 0
    while True:
        rounds += 1
        if not any(await asyncio.gather(*(member.beat() for member in members))):
            return rounds


# --- what is measured


async def heartbeats(bench: Bench, name: str, frames: Sequence[memoryview], seconds: float) -> None:
    count = 0
    before, end = time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for frame in frames:
            await bench.dispatcher.dispatch(frame, bench.connection)
        count += len(frames)
    used = time.process_time() - before
    print(f"{name:42} {count / used:10.0f} per core second   (target 10,000)")


async def measure_members(runtime: SystemRuntime, seconds: float) -> None:
    async with broker(MemoryStore(runtime), runtime, 500) as bench:
        names = [f"classic-{number}" for number in range(20)]
        started = time.perf_counter()
        members = await asyncio.gather(*(join_classic(bench, name, 500) for name in names))
        print(f"{'classic: 20 groups of 500 joined in':42} {time.perf_counter() - started:10.2f} s")
        frames = [
            framed(HeartbeatRequest(name, generation, member_id), 4)
            for name, group in zip(names, members, strict=True)
            for member_id, generation in group
        ]
        await heartbeats(bench, "classic: heartbeats", frames, seconds)
    async with broker(MemoryStore(runtime), runtime, 500) as bench:
        consumers = consumers_of(bench, 20, 500)
        started = time.perf_counter()
        for group in consumers:
            await settle(group)
        print(f"{'KIP-848: 20 groups of 500 settled in':42} {time.perf_counter() - started:10.2f} s")
        frames = [
            framed(ConsumerGroupHeartbeatRequest(member.group_id, member.member_id, member.epoch), 1)
            for group in consumers
            for member in group
        ]
        await heartbeats(bench, "KIP-848: heartbeats", frames, seconds)


def consumers_of(bench: Bench, groups: int, members: int) -> list[list[ConsumerMember]]:
    return [
        [ConsumerMember(bench, f"consumer-{number}", f"member-{index}") for index in range(members)]
        for number in range(groups)
    ]


async def measure_memory(runtime: SystemRuntime, directory: Path) -> None:
    """What is allocated for 1,000 members and still there, the store's own copies left aside."""
    for kind in ("classic", "KIP-848"):
        store = SqliteStore(directory / f"memory-{kind}.sqlite", runtime)
        await store.open()
        async with broker(store, runtime, 500) as bench:
            gc.collect()
            tracemalloc.start()
            if kind == "classic":
                await asyncio.gather(*(join_classic(bench, f"group-{number}", 100) for number in range(10)))
            else:
                for group in consumers_of(bench, 10, 100):
                    await settle(group)
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            print(f"{f'{kind}: memory per member':42} {size / 1e6:10.2f} KB   (target 20)")


async def measure_rebalance(runtime: SystemRuntime, directory: Path) -> None:
    store = SqliteStore(directory / "rebalance.sqlite", runtime)
    await store.open()
    async with broker(store, runtime, 5_000) as bench:
        started = time.perf_counter()
        await join_classic(bench, "classic", 500)
        print(f"{'SQLite: classic group of 500 settled in':42} {time.perf_counter() - started:10.2f} s")
        members = [ConsumerMember(bench, "consumer", f"member-{index}") for index in range(500)]
        started = time.perf_counter()
        rounds = await settle(members)
        seconds = time.perf_counter() - started
        print(f"{'SQLite: KIP-848, 500 over 5,000 partitions':42} {seconds:10.2f} s   ({rounds} rounds)")


async def measure_commits(runtime: SystemRuntime, directory: Path, seconds: float) -> None:
    for partitions, callers in ((1, 64), (10, 16), (100, 8), (1000, 4)):
        store = SqliteStore(directory / f"commits-{partitions}.sqlite", runtime)
        await store.open()
        async with broker(store, runtime, 1_000) as bench:
            done = 0

            async def commit(
                caller: int,
                bench: Bench = bench,
                partitions: int = partitions,
                end: float = time.perf_counter() + seconds,
            ) -> int:
                count = 0
                while time.perf_counter() < end:
                    offsets = [
                        OffsetCommitRequestPartition(index, count, 0, "") for index in range(partitions)
                    ]
                    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)
                    answer = await bench.ask(
                        OffsetCommitRequest(group_id=f"group-{caller}", topics=[topic]), 9
                    )
                    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer
                    count += partitions
                return count

            before = time.process_time()
            done = sum(await asyncio.gather(*(commit(caller) for caller in range(callers))))
            used = time.process_time() - before
            print(
                f"{f'SQLite: commits of {partitions}, {callers} groups':42} {done / seconds:10.0f} offsets/s "
                f"({done / used:.0f} per core second; target 20,000)"
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    runtime = SystemRuntime()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        await measure_members(runtime, arguments.seconds)
        await measure_memory(runtime, Path(directory))
        await measure_rebalance(runtime, Path(directory))
        await measure_commits(runtime, Path(directory), arguments.seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory {peak / 1000:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
