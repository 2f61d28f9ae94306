"""Peers that do not read, that announce much and send little, and a store that stalls: plain sockets against
a broker process, whose memory and other clients must not suffer."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from bench.harness import resident_bytes_of
from bench.slow_broker import SlowBrokerProcess
from tests.referee.log.fetch_cases import fetch
from tests.referee.log.produce_cases import produce
from tests.services.batches import batch, plain
from tests.services.certificates import make_certificates
from tests.services.dray import OPENER, DrayProcess
from tests.services.marks import longer
from tests.services.process import free_port
from tests.services.topics import create_topic

from dray.daemons.assembly.process import raise_file_limit
from dray.kafka.protocol import Request, RequestHeader, encode_request_header, frame_message
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.fetch import FetchResponse
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.produce import ProduceResponse

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
    caches = {"DRAY_LOG__TAIL_CACHE_BYTES": "32MiB", "DRAY_TEST_KNOB__LOG__SEGMENT_CACHE_BYTES": "33554432"}
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


class HalfOpen:
    """Keeps so many handshakes of TLS unfinished: one byte of each per second, and a new one for each that
    the broker ends. Beside them, frames of 85 MiB that are announced and come as slowly."""

    def __init__(self, tls_port: int, port: int, count: int) -> None:
        said = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname="x").do_handshake()
        self._hello = said.read()
        self._announced = struct.pack(">i", 85 * MIB) + bytes(MIB)
        self._ports = [(tls_port, self._hello)] * count + [(port, self._announced)] * 8
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.made = 0

    def __enter__(self) -> HalfOpen:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        sockets: list[tuple[socket.socket, int]] = []
        try:
            for number, (port, said) in enumerate(self._ports):
                sockets.append(self._connect(port, said, number))
            while not self._done.wait(1.0):
                for place, (made, sent) in enumerate(sockets):
                    port, said = self._ports[place]
                    try:
                        made.send(said[sent : sent + 1])
                        sockets[place] = made, sent + 1
                    except BlockingIOError:
                        pass
                    except OSError:
                        made.close()
                        sockets[place] = self._connect(port, said, place)
        finally:
            for made, _ in sockets:
                made.close()

    def _connect(self, port: int, said: bytes, number: int) -> tuple[socket.socket, int]:
        made = socket.create_connection(("127.0.0.1", port), 30)
        made.setblocking(False)
        begun = 5 + number % (len(self._hello) // 2)
        made.send(said[:begun])
        self.made += 1
        return made, begun


def seconds_of_writes(peer: Peer, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        write(peer, "orders", 0, batch(plain(bytes(100))))
        found.append(time.perf_counter() - begun)
    return sorted(found)


def is_served(port: int, trusting: ssl.SSLContext) -> bool:
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 30) as made,
            trusting.wrap_socket(made, server_hostname="127.0.0.1") as encrypted,
        ):
            encrypted.sendall(framed(ApiVersionsRequest(), API_VERSIONS))
            return bool(encrypted.recv(4))
    except (ConnectionError, ssl.SSLEOFError):  # refused, while all handshakes are new
        return False


@pytest.mark.parametrize("is_timed", [False, longer(True)])
def test_handshakes_that_are_not_finished_hold_up_nobody(tmp_path: Path, is_timed: bool) -> None:
    raise_file_limit()
    half_open, writes = 1000, 1000 if is_timed else 50
    made = make_certificates(tmp_path / "certificates")
    listener = {"certificate_file": str(made.certificate), "key_file": str(made.key), "protocol": "SSL"}
    tls_port = free_port()
    listener["address"] = f"127.0.0.1:{tls_port}"
    settings = {"DRAY_BROKER__LISTENERS": json.dumps({"TLS": listener})}
    with DrayProcess(tmp_path, settings=settings) as server, ExitStack() as stack:
        create_topic(server.bootstrap, "orders")
        producer = stack.enter_context(Peer(server.port))
        alone = seconds_of_writes(producer, writes)
        before = resident_bytes_of(server.pid)
        half = stack.enter_context(HalfOpen(tls_port, server.port, half_open))
        wait_until(lambda: half.made >= half_open)
        beside = seconds_of_writes(producer, writes)
        trusting = ssl.create_default_context(cafile=str(made.authority))
        wait_until(lambda: is_served(tls_port, trusting))  # once one of the others is not new any more
        grown = resident_bytes_of(server.pid) - before
        assert grown < half_open * 100 * 1024, f"grew by {grown / MIB:.0f} MiB"
    if is_timed:
        late = int(0.99 * writes)
        assert beside[late] < 2 * alone[late] + 0.05, (
            f"p99 of {alone[late]:.3f} s became {beside[late]:.3f} s"
        )


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("it did not come to that")
        time.sleep(0.02)
