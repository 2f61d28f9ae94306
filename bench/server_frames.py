"""How fast the server moves frames, beside a plain asyncio-streams server doing the same.

Each server runs in a process of its own, driven over loopback by one blocking connection that keeps
a window of requests in flight. Printed: frames and bytes per second as the client sees them, and the
server's own CPU time, which is what a broker has left over for Kafka. Run it alone on a machine:

    python -m bench.server_frames
"""

from __future__ import annotations

import asyncio
import socket
import timeit
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from struct import pack
from threading import Semaphore, Thread

import psutil
import uvloop
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as PrometheusHistogram
from rich.console import Console
from rich.table import Table
from tests.services import room_settings

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics, bind_request
from dray.broker.server import Connection, Listener, Server
from dray.daemons.assembly.process import tune_memory
from dray.kafka.records import uninitialised

MEBIBYTE = 1024 * 1024
LARGE = memoryview(bytes(MEBIBYTE))


@dataclass(frozen=True)
class Load:
    name: str
    request: int
    answer: int
    count: int
    window: int


LOADS = (
    Load("small echo, 5 in flight", 100, 100, 100_000, 5),
    Load("small echo, 100 in flight", 100, 100, 200_000, 100),
    Load("16 KiB in", 16 * 1024, 8, 50_000, 20),
    Load("1 MiB in", MEBIBYTE, 8, 2_000, 5),
    Load("1 MiB out", 8, MEBIBYTE, 2_000, 5),
)
KINDS = ("dray on uvloop", "dray on asyncio", "streams on uvloop", "streams on asyncio")


def serve(kind: str, answer_size: int, pipe: Pipe) -> None:
    """The child process: serve until killed, with the allocator set as a broker sets it."""
    tune_memory()
    answer = LARGE[:answer_size]

    async def dispatch(_request: memoryview, _connection: Connection) -> tuple[memoryview]:
        return (answer,)

    async def with_dray() -> None:
        settings = room_settings.server(listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),))
        server = Server(dispatch, SystemRuntime(), settings, Metrics(), allocate=uninitialised)
        await server.start()
        pipe.send(server.address)
        await asyncio.Event().wait()

    async def with_streams() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            prefix = pack(">i", answer_size)
            try:
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    await reader.readexactly(size)
                    writer.writelines((prefix, answer))
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname())
        await asyncio.Event().wait()

    program = with_dray if kind.startswith("dray") else with_streams
    if kind.endswith("uvloop"):
        uvloop.run(program())
    else:
        asyncio.run(program())


def drive(address: tuple[str, int], load: Load) -> float:
    """Seconds for the whole load over one connection."""
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = pack(">i", load.request) + bytes(load.request)
    # Small requests go out several at a time, as they do from a client with a full window.
    burst = max(1, min(load.window // 2, 65_536 // len(request)))
    room = Semaphore(load.window // burst)

    def send() -> None:
        for _ in range(load.count // burst):
            room.acquire()
            connection.sendall(request * burst)

    started = timeit.default_timer()
    sender = Thread(target=send)
    sender.start()
    buffer = bytearray(4 * MEBIBYTE)
    per_burst = (4 + load.answer) * burst
    received = released = 0
    expected = per_burst * (load.count // burst)
    while received < expected:
        count = connection.recv_into(buffer)
        if not count:
            raise ConnectionError("the server hung up")
        received += count
        while (released + 1) * per_burst <= received:
            released += 1
            room.release()
    seconds = timeit.default_timer() - started
    sender.join()
    connection.close()
    return seconds


def measure(kind: str, load: Load) -> tuple[float, float]:
    """Wall seconds and the server's CPU seconds."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=serve, args=(kind, load.answer, theirs), daemon=True)
    child.start()
    try:
        address = ours.recv()
        process = psutil.Process(child.pid)
        before = process.cpu_times()
        seconds = drive(address, load)
        after = process.cpu_times()
    finally:
        child.kill()
        child.join()
    return seconds, after.user + after.system - before.user - before.system


def telemetry_costs() -> list[tuple[str, float]]:
    """Microseconds for what a request pays to be counted and named."""
    metrics = Metrics(process=False)
    ours = metrics.api("Produce")
    theirs = PrometheusHistogram("seconds", "help", ["api"], registry=CollectorRegistry()).labels("Produce")

    def cost(statement: str, **names: object) -> float:
        timer = timeit.Timer(statement, globals=names)
        return min(timer.repeat(5, 100_000)) * 10

    return [
        ("count and time a request (ours)", cost("f(0.01, failed=False)", f=ours.finished)),
        ("histogram (ours)", cost("f(0.01)", f=ours.seconds.observe)),
        ("histogram (prometheus_client, label resolved)", cost("f(0.01)", f=theirs.observe)),
        ("bind_request", cost("f(1, None, 'Produce', 'client', 'peer')", f=bind_request)),
    ]


def main() -> None:
    console = Console(width=120)
    for load in LOADS:
        table = Table(title=f"{load.name} ({load.count} frames)")
        for column in ("server", "frames/s", "MB/s", "server CPU µs/frame", "server CPU s/GB"):
            table.add_column(column, justify="left" if column == "server" else "right")
        moved = load.count * (load.request + load.answer)
        for kind in KINDS:
            seconds, processor = measure(kind, load)
            table.add_row(
                kind,
                f"{load.count / seconds:,.0f}",
                f"{moved / seconds / 1e6:,.0f}",
                f"{processor / load.count * 1e6:.1f}",
                f"{processor / moved * 1e9:.2f}",
            )
        console.print(table)
    for name, microseconds in telemetry_costs():
        console.print(f"{name}: {microseconds:.2f} µs")


if __name__ == "__main__":
    main()
