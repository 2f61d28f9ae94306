"""Arbitrary bytes from outside, into the frame reader, a whole connection, and the HTTP reader.

Whatever comes, in whatever pieces: no exception escapes, nothing is allocated that was not admitted,
the memory budget holds and is empty at the end, and what was well-formed before the nonsense is
delivered.
"""

from __future__ import annotations

import asyncio
from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services import room_settings

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import CloseConnection, Listener, MemoryBudget
from dray.broker.server.frames import BadFrame, FrameReader
from dray.broker.server.http.requests import MAX_HEAD_BYTES, BadRequest, RequestReader
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.shared import ServerResources
from dray.kafka.records import uninitialised

LARGEST = 5_000

lengths = st.sampled_from([-(2**31), -1, 0, 1, 3, LARGEST, LARGEST + 1, 2**31 - 1]) | st.integers(
    -(2**31), 2**31 - 1
)
well_formed = st.binary(max_size=400).map(lambda payload: pack(">i", len(payload)) + payload)
nonsense = st.binary(max_size=100) | st.builds(
    lambda length, body: pack(">i", length) + body, lengths, st.binary(max_size=50)
)
streams = st.lists(well_formed | nonsense, max_size=20).map(b"".join)
pieces = st.lists(st.integers(1, 500), min_size=1, max_size=10)


def expected(stream: bytes) -> tuple[list[bytes], bool]:
    """The plain reading of the format: the whole frames, and whether a bad length follows them."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        size = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if not 0 <= size <= LARGEST:
            return frames, True
        if position + 4 + size > len(stream):
            break
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return frames, False


@settings(max_examples=300, deadline=None)
@given(streams, pieces, st.integers(16, 300))
def test_the_reader_agrees_with_the_plain_reading(stream, sizes, scratch):
    frames: list[memoryview] = []
    admitted: list[int] = []
    allocated: list[int] = []

    def admit(size: int) -> bool:
        admitted.append(size)
        return True

    def allocate(size: int) -> bytearray:
        allocated.append(size)
        return uninitialised(size)

    reader = FrameReader(bytearray(scratch), LARGEST, admit, frames.append, allocate)
    refused = False
    position = turn = 0
    try:
        while position < len(stream):
            buffer = reader.buffer()
            count = min(len(buffer), sizes[turn % len(sizes)], len(stream) - position)
            buffer[:count] = stream[position : position + count]
            reader.received(count)
            position += count
            turn += 1
    except BadFrame:
        refused = True
    assert ([bytes(frame) for frame in frames], refused) == expected(stream)
    assert set(allocated) <= set(admitted)
    assert all(0 <= size <= LARGEST for size in admitted)


class Wire(asyncio.Transport):
    """Only as much of a transport as a connection needs, with a moody peer behind it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.reading = True
        self.over = False
        self.unsent = 0
        self.written: list[bytes] = []

    def writelines(self, list_of_data) -> None:
        assert not self.over
        self.written.extend(map(bytes, list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.over = True

    def close(self) -> None:
        self.over = True

    abort = close


@settings(max_examples=200, deadline=None)
@given(streams, pieces, st.lists(st.sampled_from(["read", "turn", "full", "empty"]), min_size=1), st.data())
def test_a_connection_survives_any_bytes_and_any_mood(stream, sizes, moods, data):
    ending = data.draw(st.sampled_from(["end of file", "lost", "drained", "aborted"]))

    async def dispatch(request, _connection):
        for _ in range(len(request) % 3):
            await asyncio.sleep(0)
        if request[:1] == b"\x07":
            raise CloseConnection("fuzzed")
        return None if request[:1] == b"\x01" else (b"re", request)

    async def scenario():
        bounds = room_settings.server(
            listeners=(Listener("P", "127.0.0.1", 0),),
            frame_bytes=LARGEST,
            buffer_bytes=LARGEST + 500,
            max_in_flight=3,
            max_unsent_bytes=1000,
            receive_buffer_bytes=64,
            small_frame_bytes=data.draw(st.sampled_from([50, 200, 10_000])),
        )
        budget = MemoryBudget(bounds.buffer_bytes, bounds.small_budget_bytes)
        shared = ServerResources(
            dispatch,
            SystemRuntime(),
            settings=bounds,
            metrics=Metrics(process=False),
            budget=budget,
            allocate=uninitialised,
        )
        protocol = FrameProtocol(shared, "P", tls=False)
        wire = Wire()
        protocol.connection_made(wire)
        position = turn = 0
        while position < len(stream) and turn < 500:
            mood = moods[turn % len(moods)]
            if mood == "read" and wire.reading:
                buffer = protocol.get_buffer(-1)
                count = min(len(buffer), sizes[turn % len(sizes)], len(stream) - position)
                buffer[:count] = stream[position : position + count]
                protocol.buffer_updated(count)
                position += count
            elif mood == "full":
                wire.unsent = 1500
                protocol.pause_writing()
            elif mood == "empty":
                wire.unsent = 10
                protocol.resume_writing()
            else:
                await asyncio.sleep(0)
            assert 0 <= budget.used <= budget.limit
            turn += 1
        protocol.resume_writing()
        if ending == "end of file" and wire.reading:
            protocol.eof_received()
        elif ending == "drained":
            protocol.drain()
        elif ending == "aborted":
            await asyncio.sleep(0)
            protocol.abort()
        if ending != "lost":
            for _ in range(30):
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        for _ in range(30):
            await asyncio.sleep(0)
        assert budget.used == 0
        assert budget.waiting == 0
        assert shared.answers.used == 0
        assert not shared.members
        assert shared.metrics.requests_in_flight.value == 0
        answers, _ = expected(b"".join(wire.written))
        wanted = [b"re" + frame for frame in expected(stream)[0] if frame[:1] != b"\x01"]
        assert answers == wanted[: len(answers)], "in order, none invented"

    asyncio.run(scenario())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"GET ", b"/ ", b"HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"Connection: close\r\n", b":"]
        )
        | st.binary(max_size=30)
        | st.just(b"a" * 5000),
        max_size=30,
    ),
    pieces,
)
def test_the_http_reader_parses_refuses_or_waits(parts, sizes):
    stream = b"".join(parts)
    reader = RequestReader()
    position = turn = 0
    status = None
    try:
        while position < len(stream):
            count = sizes[turn % len(sizes)]
            reader.feed(stream[position : position + count])
            position += count
            turn += 1
            while (request := reader.next()) is not None:
                assert request.method in {"GET", "HEAD"}
                assert request.path.startswith("/")
            assert reader.buffered < MAX_HEAD_BYTES
    except BadRequest as error:
        status = error.status
    assert status in {None, 400, 405, 413, 431, 505}
