from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.server.frames import BadFrame, FrameReader


class Socket:
    """Feeds a reader; `admit` can be told to say no."""

    def __init__(self, scratch: int = 64, largest: int = 1000):
        self.frames: list[memoryview] = []
        self.open = True
        self.asked: list[int] = []
        self.allocated: list[int] = []
        self.reader = FrameReader(bytearray(scratch), largest, self.admit, self.frames.append, self.allocate)

    def admit(self, size: int) -> bool:
        self.asked.append(size)
        return self.open

    def allocate(self, size: int) -> bytearray:
        self.allocated.append(size)
        return bytearray(size)

    def feed(self, data: bytes, chunk: int = 1 << 30) -> int:
        taken = 0
        while taken < len(data) and not self.reader.stalled:
            buffer = self.reader.buffer()
            assert len(buffer) > 0
            count = min(len(buffer), len(data) - taken, chunk)
            buffer[:count] = data[taken : taken + count]
            self.reader.received(count)
            taken += count
        return taken

    @property
    def payloads(self) -> list[bytes]:
        return [bytes(each) for each in self.frames]


def framed(payloads: list[bytes]) -> bytes:
    return b"".join(pack(">i", len(payload)) + payload for payload in payloads)


payload_lists = st.lists(st.binary(max_size=200), max_size=12)


@given(payload_lists, st.lists(st.integers(1, 90), min_size=1), st.integers(16, 100))
def test_any_split_of_the_stream_gives_the_same_frames(payloads, cuts, scratch):
    socket = Socket(scratch)
    stream = framed(payloads)
    position = 0
    for turn in range(len(stream)):
        if position == len(stream):
            break
        step = stream[position : position + cuts[turn % len(cuts)]]
        position += socket.feed(step)
    assert socket.payloads == payloads
    assert socket.reader.unfinished == -1


@given(payload_lists, st.lists(st.booleans(), min_size=1))
def test_stalling_anywhere_loses_nothing(payloads, answers):
    socket = Socket(scratch=50)
    stream = framed(payloads)
    position = 0
    turn = 0
    while position < len(stream) or socket.reader.stalled:
        socket.open = answers[turn % len(answers)] or turn > 200
        turn += 1
        if socket.reader.stalled:
            socket.reader.proceed()
        position += socket.feed(stream[position : position + 37])
    assert socket.payloads == payloads


def test_frames_are_writable_and_never_reused():
    socket = Socket()
    socket.feed(framed([b"one", b"two"]))
    socket.frames[0][:] = b"ONE"
    socket.feed(framed([b"six", b"ten" * 100]))
    assert socket.payloads == [b"ONE", b"two", b"six", b"ten" * 100]
    assert not any(each.readonly for each in socket.frames)


def test_a_long_frame_is_received_in_place():
    socket = Socket(scratch=64)
    body = bytes(range(250))
    stream = framed([body])
    assert socket.feed(stream[:64]) == 64
    assert socket.allocated == [250]
    buffer = socket.reader.buffer()
    assert len(buffer) == 250 - 60, "exactly what is missing, so nothing of the next frame gets in"
    buffer[:] = body[60:]
    socket.reader.received(len(buffer))
    assert socket.payloads == [body]
    assert socket.frames[0].obj is buffer.obj, "no second copy"


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1, 0x47455420])
def test_absurd_lengths_are_refused_before_anything_is_allocated(size):
    socket = Socket(largest=1000)
    with pytest.raises(BadFrame):
        socket.feed(pack(">i", size) + b"whatever")
    assert socket.asked == []
    assert socket.allocated == []


def test_frames_before_a_bad_length_are_delivered():
    socket = Socket()
    with pytest.raises(BadFrame):
        socket.feed(framed([b"good"]) + pack(">i", -5))
    assert socket.payloads == [b"good"]


def test_the_largest_frame_is_allowed():
    socket = Socket(largest=1000)
    socket.feed(framed([bytes(1000), b""]))
    assert socket.payloads == [bytes(1000), b""]


def test_nothing_is_allocated_until_admitted():
    socket = Socket()
    socket.open = False
    socket.feed(pack(">i", 900) + b"begin")
    assert socket.reader.stalled
    assert socket.allocated == []
    socket.open = True
    socket.reader.proceed()
    assert not socket.reader.stalled
    assert socket.allocated == [900]
    assert socket.reader.unfinished == 900
    socket.reader.abandon()
    assert socket.reader.unfinished == -1


def test_a_begun_length_counts_as_unfinished():
    socket = Socket()
    socket.feed(b"\0\0")
    assert socket.reader.unfinished == 0
