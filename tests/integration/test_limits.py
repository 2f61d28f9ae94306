"""Peers that do not read, that announce much and send little, and a store that stalls: plain sockets against
a broker process, whose memory and other clients must not suffer."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.harness import resident_bytes_of
from bench.slow_broker import SlowBrokerProcess
from tests.referee.log.fetch_cases import fetch
from tests.referee.log.produce_cases import produce
from tests.services.batches import batch, plain
from tests.services.dray import OPENER, DrayProcess
from tests.services.topics import create_topic

from dray.protocol import Request, RequestHeader, encode_request_header, frame_message
from dray.protocol.messages.api_versions import ApiVersionsRequest
from dray.protocol.messages.fetch import FetchResponse
from dray.protocol.messages.heartbeat import HeartbeatRequest
from dray.protocol.messages.produce import ProduceResponse

MIB = 1024 * 1024
FETCH, PRODUCE, HEARTBEAT, API_VERSIONS = 12, 9, 4, 0


def framed(request: Request[Any], version: int) -> bytes:
    header = encode_request_header(RequestHeader(request.API_KEY, version, 7, "test"))
    return b"".join(frame_message(header, request.encode(version)))


class Peer:
    """A socket that speaks frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Request[Any], version: int) -> None:
        self.socket.sendall(framed(request, version))

    def receive(self) -> memoryview:
        """An answer, behind its correlation id."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return memoryview(self._exactly(size))[4:]

    def ask(self, request: Request[Any], version: int) -> memoryview:
        self.send(request, version)
        return self.receive()

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.socket.recv_into(view)
            assert count, "the broker hung up"
            view = view[count:]
        return data


def write(peer: Peer, topic: str, partition: int, records: bytes) -> None:
    answer, _ = ProduceResponse.decode(peer.ask(produce(topic, (partition, records)), PRODUCE), 1, PRODUCE)
    assert answer.responses[0].partition_responses[0].error_code == 0


def metric(port: int, name: str) -> float:
    with OPENER.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextmanager
def broker(directory: Path, **limits: str) -> Iterator[DrayProcess]:
    settings = {f"DRAY_LIMITS__{name.upper()}": value for name, value in limits.items()}
    caches = {"DRAY_LOG__TAIL_CACHE_BYTES": "32MiB", "DRAY_LOG__SEGMENT_CACHE_BYTES": "32MiB"}
    with DrayProcess(directory, settings=caches | settings) as process:
        yield process


def test_consumers_that_do_not_read_hold_no_more_than_the_budget_and_others_read_on(tmp_path: Path) -> None:
    """Before answers were counted, 16 of them took 500 MiB here."""
    with broker(tmp_path, answer_bytes="64MiB", frame_bytes="8MiB") as server, ExitStack() as stack:
        create_topic(server.bootstrap, "much", 16)
        value = batch(plain(bytes(900_000)))
        with Peer(server.port) as producer:
            for number in range(16 * 20):
                write(producer, "much", number % 16, value)
        before = resident_bytes_of(server.pid)
        everything = fetch(
            "much",
            *[(partition, 0) for partition in range(16)],
            max_bytes=50 * MIB,
            partition_max_bytes=4 * MIB,
        )
        for _ in range(16):
            stack.enter_context(Peer(server.port)).send(everything, FETCH)
        reader = stack.enter_context(Peer(server.port))
        received = 0
        deadline = time.monotonic() + 60
        while received < 20 * MIB:
            answer, _ = FetchResponse.decode(reader.ask(everything, FETCH), 1, FETCH)
            received += sum(
                len(part.records or b"") for topic in answer.responses for part in topic.partitions
            )
            assert time.monotonic() < deadline, f"the consumer that reads got {received} bytes in a minute"
        grown = resident_bytes_of(server.pid) - before
        assert metric(server.http_port, "dray_answer_memory_peak_bytes") <= 64 * MIB + 17 * 100_000
        assert grown < 64 * MIB + 64 * MIB, f"grew by {grown / MIB:.0f} MiB"


def test_sockets_that_announce_much_and_send_little_stop_nobody(tmp_path: Path) -> None:
    """Before memory was claimed as bytes arrive, none of the records got through."""
    with broker(tmp_path) as server, ExitStack() as stack:
        create_topic(server.bootstrap, "orders")
        drips = [stack.enter_context(Peer(server.port)) for _ in range(8)]
        done = threading.Event()

        def drip() -> None:
            for peer in drips:
                peer.socket.sendall(struct.pack(">i", 85 * MIB) + b"\0\0\0\x09" + bytes(80 * 1024))
            while not done.wait(0.1):
                for peer in drips:
                    peer.socket.sendall(bytes(8 * 1024))

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            wait_until(lambda: metric(server.http_port, "dray_frame_memory_bytes") >= 8 * 80 * 1024)
            with Peer(server.port) as producer:
                for _ in range(200):
                    write(producer, "orders", 0, batch(plain(bytes(200_000))))
            held = metric(server.http_port, "dray_frame_memory_bytes")
            assert 8 * 80 * 1024 <= held < 8 * 6 * MIB, "what they sent and a little more"
        finally:
            done.set()
            dripping.join()


def test_heartbeats_are_answered_while_the_object_store_stalls(tmp_path: Path) -> None:
    with SlowBrokerProcess(tmp_path, 120.0, 16 * MIB, 8 * MIB) as server, ExitStack() as stack:
        producers = [stack.enter_context(Peer(server.port)) for _ in range(40)]
        create = stack.enter_context(Peer(server.port))
        create_topic(server.bootstrap, "orders")
        for peer in producers[:20]:
            peer.send(produce("orders", (0, batch(plain(bytes(900_000))))), PRODUCE)
        for peer in producers[20:]:
            peer.socket.settimeout(1)
            small = framed(produce("orders", (0, batch(plain(bytes(40_000))))), PRODUCE)
            peer.socket.sendall(small * 5)
        wait_until(lambda: metric(server.http_port, "dray_frame_memory_waiting_connections") >= 15)
        beat = HeartbeatRequest(group_id="group", generation_id=1, member_id="nobody")
        for _ in range(20):
            assert create.ask(beat, HEARTBEAT)
            assert create.ask(ApiVersionsRequest(), API_VERSIONS)
        assert metric(server.http_port, "dray_frame_memory_waiting_connections") >= 15, "all the while"
        assert metric(server.http_port, "dray_frame_memory_peak_bytes") <= 16 * MIB


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("it did not come to that")
        time.sleep(0.02)
