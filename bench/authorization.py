"""What authorization costs: the check of a produce request beside the request itself, and memory by ACL.

    python -m bench.authorization [--requests 3000] [--partitions 16]

No sockets. A request holds one record for each partition, all of one topic: the least that a produce can be,
so the worst that the check can be beside it. Everything is processor time of this process, so that other work
on the machine counts for little. What a request with ACLs does more (who the client is, and the check) is
measured alone, with as many calls as that takes; brokers with and without authorization are shown too, and
differ by noise: take the machine for yourself before you compare them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
import tracemalloc
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from bench.groups import TOPIC, Nowhere, broker, framed
from dray.base.runtime import SystemRuntime
from dray.broker.api import Dispatcher
from dray.broker.api.produce.batches import ProducedPart
from dray.broker.api.produce.handler import _refuse_forbidden
from dray.broker.api.shared import Context
from dray.broker.security.acls.authorization import Authorization
from dray.broker.security.acls.decision import Authorizer
from dray.broker.security.acls.store import Acls
from dray.broker.security.quotas.throttle import Throttle
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import RequestHeader
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import Record, twin
from dray.metadata.memory import MemoryStore

CLIENT = "User:app-7"
ACL_COUNTS = (1_000, 10_000, 100_000)
IN_FLIGHT = 8
CHECKS = 50_000


def bindings(count: int) -> Iterable[AclBinding]:
    """Of many users and topics: half by name, half by prefixes of all lengths; one is the client's."""
    yield AclBinding(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        TOPIC,
        CLIENT,
        "*",
        AclOperation.WRITE,
        Permission.ALLOW,
    )
    for number in range(count - 1):
        is_prefix = number % 2 == 0
        name = f"team-{number}-orders"
        yield AclBinding(
            AclResourceType.TOPIC,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            name[: 6 + number % 12] if is_prefix else name,
            f"User:app-{number % 5000}",
            "*",
            AclOperation.READ,
            Permission.DENY if number % 10 == 0 else Permission.ALLOW,
        )


def authorization(runtime: SystemRuntime, count: int) -> Authorization:
    acls = Acls(MemoryStore(runtime), runtime)
    for binding in bindings(count):
        acls.index.add(binding)
    return Authorization(acls, runtime, ["User:admin"])


def produced(partitions: int) -> memoryview:
    batch = bytes(twin.encode([Record(0, 1_700_000_000_000, None, b"x" * 100)]))
    parts = [PartitionProduceData(partition, bytearray(batch)) for partition in range(partitions)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=parts)]
    )
    return framed(request, 9)


async def produce_seconds(partitions: int, requests: int, asked: Authorization | None) -> float:
    """Processor seconds of one request."""
    runtime = SystemRuntime()
    frame = produced(partitions)
    async with broker(MemoryStore(runtime), runtime, partitions, asked) as bench:

        async def one_after_the_other(count: int) -> None:
            connection = Nowhere()
            connection.principal = CLIENT
            for _ in range(count):
                answer = await bench.dispatcher.dispatch(memoryview(bytearray(frame)), connection)
                assert answer is not None

        await one_after_the_other(50)
        gc.collect()
        began = time.process_time()
        await asyncio.gather(*(one_after_the_other(requests // IN_FLIGHT) for _ in range(IN_FLIGHT)))
        seconds = time.process_time() - began
    runtime.close()
    return seconds / (requests // IN_FLIGHT * IN_FLIGHT)


def check_seconds(asked: Authorization, partitions: int) -> float:
    """Processor seconds of what a produce request does more, on a connection that stands."""
    connection: Any = Nowhere()
    connection.principal = CLIENT
    services: Any = SimpleNamespace(
        authorization=asked, runtime=SystemRuntime(threads=1), throttle=Throttle()
    )
    dispatcher = Dispatcher(services)
    header = RequestHeader(ProduceRequest.API_KEY, 9, 1, "bench")
    topic: Any = SimpleNamespace(name=TOPIC)
    parts = [ProducedPart(TopicProduceData(name=TOPIC), PartitionProduceData()) for _ in range(partitions)]
    for part in parts:
        part.topic = topic
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(CHECKS):
            access = dispatcher._access(connection)
            context = Context(services, (), header, connection, access)
            _refuse_forbidden(context, parts)
        best = min(best, time.process_time() - began)
    assert not any(part.refused for part in parts)
    services.runtime.close()
    return best / CHECKS


def first_check_seconds(asked: Authorization) -> float:
    """Of a topic that no client has asked about since an ACL changed: what is not remembered yet."""
    authorizer: Authorizer = asked._authorizer
    names = [f"team-{number}-orders" for number in range(10_000)]
    began = time.process_time()
    for name in names:
        authorizer.bits(CLIENT, "127.0.0.1", AclResourceType.TOPIC, name)
    return (time.process_time() - began) / len(names)


def bytes_of(runtime: SystemRuntime, count: int) -> float:
    """Memory of one ACL."""
    gc.collect()
    tracemalloc.start()
    kept = authorization(runtime, count)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.acls is not None
    assert len(kept.acls.index) <= count
    return used / count


async def run(partitions: int, requests: int) -> None:
    runtime = SystemRuntime(threads=1)
    without = await produce_seconds(partitions, requests, None)
    print(
        f"produce, {partitions} partitions, without authorization: {without * 1e6:.0f} us of processor time"
    )
    for count in ACL_COUNTS:
        asked = authorization(runtime, count)
        check, first = check_seconds(asked, partitions), first_check_seconds(asked)
        having = await produce_seconds(partitions, requests, asked)
        print(
            f"{count} ACLs: they take {check * 1e6:.1f} us more, {check / without:.2%} of that request "
            f"(measured whole: {having * 1e6:.0f} us); of a topic not remembered {first * 1e6:.1f} us; "
            f"{bytes_of(runtime, count):.0f} B of memory by ACL"
        )
    runtime.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--partitions", type=int, default=16)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.partitions, arguments.requests))


if __name__ == "__main__":
    main()
