"""A storm of clients that connect and authenticate, and what it does to one that is served meanwhile.

    python -m bench.reconnects [--connections 10000] [--at-once 100] [--mechanism SCRAM-SHA-512]

A broker is a process of its own, and so is the storm: each connection asks for the versions, authenticates,
asks for the versions again, and is closed. Meanwhile one client, which authenticated before, produces a
record at a time (acks=all) and notes how long each takes; before the storm it does so alone. All processes
share this machine's cores, so what is printed is an upper bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from random import Random

from tests.services.batches import batch, plain
from tests.services.commands import run
from tests.services.dray import DrayProcess, drayd_path
from tests.services.process import free_port

import dray.kafka.sasl.client as exchanges
from bench.harness import cpu_seconds_of
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.kafka.sasl.client import ClientCredential, begin_exchange

USER, PASSWORD, TOPIC = "alice", "correct-horse-battery", "bench"
VERSIONS = ApiVersionsRequest("bench", "1")


async def login(port: int, mechanism: str) -> KafkaConnection:
    connection = await KafkaConnection.connect("127.0.0.1", port, client_id="bench")
    await connection.request(VERSIONS, 4)
    await connection.request(SaslHandshakeRequest(mechanism), 1)
    exchange = begin_exchange(ClientCredential(mechanism, USER, PASSWORD), Random())
    token: bytes | None = exchange.begin()
    while token is not None:
        answer = await connection.request(SaslAuthenticateRequest(token), 2)
        assert answer.error_code == 0, answer
        token = exchange.answer(bytes(answer.auth_bytes))
    assert exchange.is_complete
    return connection


async def storm(port: int, connections: int, at_once: int, mechanism: str) -> None:
    """Prints how long it took. The salt of a user stays the same, so its password is hashed once: else the
    storm would be limited by its own hashing."""
    vars(exchanges)["salted_password"] = cache(vars(exchanges)["salted_password"])
    left = iter(range(connections))

    async def one_by_one() -> None:
        for _ in left:
            connection = await login(port, mechanism)
            await connection.request(VERSIONS, 4)
            await connection.close()

    begun = time.monotonic()
    await asyncio.gather(*(one_by_one() for _ in range(at_once)))
    print(time.monotonic() - begun)


def record() -> ProduceRequest:
    part = PartitionProduceData(0, bytearray(batch(plain(b"x" * 100))))
    data = TopicProduceData(name=TOPIC, partition_data=[part])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


async def produce_until(done: asyncio.Event, connection: KafkaConnection, most: int = 10**9) -> list[float]:
    took: list[float] = []
    while not done.is_set() and len(took) < most:
        begun = time.monotonic()
        answer = await connection.request(record(), 9)
        took.append(time.monotonic() - begun)
        assert answer.responses[0].partition_responses[0].error_code == 0
        await asyncio.sleep(0.002)
    return took


async def measure(port: int, arguments: argparse.Namespace, pid: int) -> None:
    served = await login(port, arguments.mechanism)
    await served.request(CreateTopicsRequest([CreatableTopic(TOPIC, 1, -1)], timeout_ms=10_000), 7)
    show("alone", await produce_until(asyncio.Event(), served, 1000))
    before = cpu_seconds_of(pid)
    done = asyncio.Event()
    command = [sys.executable, "-m", "bench.reconnects", "--storm", str(port)]
    command += ["--connections", str(arguments.connections), "--at-once", str(arguments.at_once)]
    command += ["--mechanism", arguments.mechanism]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    probing = asyncio.ensure_future(produce_until(done, served))
    out, _ = await process.communicate()
    done.set()
    show("in the storm", await probing)
    seconds, spent, count = float(out), cpu_seconds_of(pid) - before, arguments.connections
    print(f"{count} logins in {seconds:.1f} s: {count / seconds:.0f} a second")
    print(f"the broker worked {1000 * spent / count:.2f} ms for each, with the records")
    await served.close()


def show(when: str, took: list[float]) -> None:
    cuts = statistics.quantiles(took, n=1000)
    found = {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998], "max": max(took)}
    print(
        f"{when}: {len(took)} produces, "
        + ", ".join(f"{name} {1000 * v:.1f} ms" for name, v in found.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--mechanism", default="SCRAM-SHA-512")
    parser.add_argument("--storm", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.storm is not None:
        asyncio.run(storm(arguments.storm, arguments.connections, arguments.at_once, arguments.mechanism))
        return
    with tempfile.TemporaryDirectory(prefix="dray-reconnects-") as made:
        directory, port = Path(made), free_port()
        listener = {
            "address": f"127.0.0.1:{port}",
            "protocol": "SASL_PLAINTEXT",
            "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"],
        }
        settings = {"DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener})}
        broker = DrayProcess(directory / "broker", settings=settings)
        (directory / "password").write_text(PASSWORD)
        add = ["admin", "user", "add", USER, "--password-file", str(directory / "password")]
        run(str(drayd_path()), *add, "--data-dir", str(broker.data_directory))
        with broker:
            asyncio.run(measure(port, arguments, broker.pid))


if __name__ == "__main__":
    main()
