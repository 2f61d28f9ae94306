"""The protocol against a transport of paper: what a real socket does only by chance."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.services import room_settings
from tests.unit.broker.server.harness import SETTINGS, PaperTransport, echo, frame, progress, until

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import MemoryBudget
from dray.broker.server.limits.patience import Patience
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.shared import ServerResources
from dray.kafka.records import uninitialised


def connected(dispatch=echo, **bounds) -> tuple[FrameProtocol, PaperTransport, ServerResources]:
    chosen = replace(SETTINGS, **bounds)
    shared = ServerResources(
        dispatch,
        SystemRuntime(),
        settings=chosen,
        metrics=Metrics(process=False),
        budget=MemoryBudget(chosen.buffer_bytes),
        allocate=uninitialised,
    )
    protocol = FrameProtocol(shared, "PLAINTEXT", tls=False)
    transport = PaperTransport(protocol)
    protocol.connection_made(transport)
    return protocol, transport, shared


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=300), max_size=15),
    st.lists(st.integers(1, 400), min_size=1),
    st.integers(1, 4),
    st.integers(300, 700),
)
def test_any_split_and_any_bound_give_all_answers_in_order(payloads, cuts, in_flight, budget):
    async def scenario():
        async def dispatch(request, _connection):
            for _ in range(len(request) % 4):
                await asyncio.sleep(0)
            return (request,)

        protocol, transport, shared = connected(
            dispatch, max_in_flight=in_flight, buffer_bytes=budget, receive_buffer_bytes=64
        )
        stream = b"".join(map(frame, payloads))
        position = turn = 0
        while position < len(stream):
            cut = cuts[turn % len(cuts)]
            position += transport.deliver(stream[position : position + cut])
            assert shared.budget.used <= budget
            turn += 1
            await asyncio.sleep(0)
        await until(lambda: b"".join(transport.written) == stream)
        assert shared.budget.used == 0
        protocol.connection_lost(None)
        assert not shared.members

    asyncio.run(scenario())


async def test_answers_that_are_ready_together_leave_in_one_write():
    gate = asyncio.Event()

    async def dispatch(request, _connection):
        await gate.wait()
        return (request,)

    _, transport, _ = connected(dispatch)
    transport.deliver(frame(b"a") + frame(b"b") + frame(b"c"))
    await settle()
    gate.set()
    await settle()
    assert transport.writes == 1
    assert b"".join(transport.written) == frame(b"a") + frame(b"b") + frame(b"c")


async def test_while_the_transport_is_full_nothing_is_written_or_read():
    protocol, transport, _ = connected()
    protocol.pause_writing()
    transport.deliver(frame(b"a"))
    await settle()
    assert not transport.reading, "the gate closes at the next frame"
    assert transport.written == []
    protocol.resume_writing()
    await settle()
    assert transport.reading
    assert b"".join(transport.written) == frame(b"a")


async def test_an_answer_that_is_done_while_the_transport_is_full_waits():
    gate = asyncio.Event()

    async def dispatch(request, _connection):
        await gate.wait()
        return (request,)

    protocol, transport, _ = connected(dispatch)
    transport.deliver(frame(b"a"))
    await settle()
    protocol.pause_writing()
    gate.set()
    await settle()
    assert transport.written == []
    protocol.resume_writing()
    assert b"".join(transport.written) == frame(b"a")


async def test_many_large_answers_do_not_pile_up_in_the_transport():
    gate = asyncio.Event()

    async def dispatch(_request, _connection):
        await gate.wait()
        return (bytes(1000),)

    protocol, transport, _ = connected(dispatch, max_unsent_bytes=2500)
    transport.deliver(frame(b"?") * 9)
    await settle()
    take = transport.writelines

    def write_and_pause(buffers: Iterable[Any]) -> None:
        take(buffers)
        protocol.pause_writing()

    transport.writelines = write_and_pause  # type: ignore[method-assign, assignment]
    gate.set()
    await settle()
    assert len(b"".join(transport.written)) == 3 * 1004, "the first that reach the bound, and no more"
    protocol.resume_writing()
    assert len(b"".join(transport.written)) == 6 * 1004


async def test_a_dead_connection_gives_its_place_in_the_queue_for_memory_up():
    protocol, transport, shared = connected(buffer_bytes=1000)
    assert shared.budget.try_reserve(900)
    transport.deliver(frame(bytes(500)))
    assert shared.budget.waiting == 1
    protocol.connection_lost(None)
    assert shared.budget.waiting == 0
    shared.budget.release(900)
    assert shared.budget.used == 0


async def test_answers_for_a_peer_that_has_left_take_no_memory():
    """Those of a connection stayed until its last request was done: gigabytes, where somebody meant it."""
    gates = [asyncio.Event(), asyncio.Event()]

    async def dispatch(request, _connection):
        await gates[request[0]].wait()
        return (bytes(1000),)

    protocol, transport, _ = connected(dispatch)
    transport.deliver(frame(b"\0") + frame(b"\1"))
    await settle()
    protocol.connection_lost(None)
    gates[0].set()
    await settle()
    assert [(each.done, each.buffers) for each in protocol._queue] == [(True, ()), (False, ())]
    gates[1].set()
    await settle()


async def test_after_a_bad_frame_all_that_comes_is_thrown_away():
    seen: list[bytes] = []

    async def dispatch(request, _connection):
        seen.append(bytes(request))

    protocol, transport, _ = connected(dispatch, receive_buffer_bytes=64)
    transport.deliver(b"\xff\xff\xff\xff")
    await settle()
    assert transport.ended
    late = frame(b"late") * 100
    assert transport.deliver(late) == len(late), "read, so that closing does not reset the connection"
    await settle()
    assert seen == []
    protocol.connection_lost(None)


async def test_answers_that_wait_for_their_turn_count_as_unsent():
    first = asyncio.Event()

    async def dispatch(request, _connection):
        if bytes(request) == b"first":
            await first.wait()
        return (bytes(1000),)

    _, transport, shared = connected(dispatch, max_unsent_bytes=2500, max_in_flight=100)
    for payload in [b"first", *[b"x"] * 10]:
        transport.deliver(frame(payload))
        await settle()
    assert not transport.reading
    assert shared.metrics.requests_in_flight.value == 1
    assert transport.written == []
    first.set()
    await settle()
    assert transport.reading


async def test_a_peer_that_floods_the_gate_is_not_buffered_beyond_one_scratch():
    stuck = asyncio.Event()

    async def dispatch(_request, _connection):
        await stuck.wait()

    _, transport, _ = connected(dispatch, max_in_flight=1, receive_buffer_bytes=64)
    taken = transport.deliver(frame(b"x" * 10) * 1000)
    assert taken <= 64 + 14
    stuck.set()
    await settle()


async def test_the_frame_is_the_receivers_own():
    kept: list[memoryview] = []

    async def dispatch(request, _connection):
        kept.append(request)

    _, transport, _ = connected(dispatch, receive_buffer_bytes=64)
    payloads = [bytes([n]) * (n * 10) for n in range(30)]
    for payload in payloads:
        transport.deliver(frame(payload))
        await settle()
    assert [bytes(each) for each in kept] == payloads
    for each in kept:
        each[:] = bytes(len(each))


async def test_a_cancelled_request_closes_with_one_line():
    async def dispatch(_request, _connection):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    _, transport, shared = connected(dispatch)
    with capture_logs() as lines:
        transport.deliver(frame(b"x"))
        await settle()
    assert transport.ended
    assert len(lines) == 1
    assert shared.budget.used == 0


@pytest.mark.parametrize("last", [b"\0\0\1\0partial", b"\xff\xff\xff\xff"])
async def test_a_lost_connection_leaves_no_garbage_to_the_collector(last):
    protocol, transport, shared = connected()
    transport.deliver(frame(b"x") + last)
    await settle()
    gc.disable()
    try:
        transport.close()
        cast(Any, transport).protocol = None  # as asyncio's own transports do
        alive = weakref.ref(protocol.connection), weakref.ref(transport)
        del protocol, transport
        await settle()
        assert [each() for each in alive] == [None, None]
    finally:
        gc.enable()
    assert shared.budget.used == 0


BOUNDS = room_settings.server(frame_seconds=30, idle_seconds=600, slowest_frame_bytes_per_second=1000)


def test_patience_with_a_frame_that_stops():
    patience = Patience(0)
    assert patience.exhausted(10, progress(received_bytes=5, unfinished=100), BOUNDS) is None
    assert patience.exhausted(40, progress(received_bytes=5, unfinished=100), BOUNDS) is None
    assert patience.exhausted(41, progress(received_bytes=5, unfinished=100), BOUNDS) is not None


def test_patience_with_a_frame_that_trickles():
    patience = Patience(0)
    for now in range(0, 131, 10):
        state = progress(received_bytes=now + 1, unfinished=100_000)
        assert patience.exhausted(now, state, BOUNDS) is None, "100 KB at 1 KB/s may take 130 s"
    assert (
        patience.exhausted(131, progress(received_bytes=200, unfinished=100_000), BOUNDS) == "frame too slow"
    )


def test_patience_begins_anew_with_each_frame():
    patience = Patience(0)
    for frames in range(100):
        state = progress(received_bytes=frames + 1, frames=frames, unfinished=1000)
        assert patience.exhausted(frames * 25, state, BOUNDS) is None


def test_patience_with_an_idle_peer_and_with_a_busy_one():
    idle, busy = Patience(0), Patience(0)
    assert idle.exhausted(600, progress(), BOUNDS) is None
    assert idle.exhausted(601, progress(), BOUNDS) == "idle"
    assert busy.exhausted(5000, progress(busy=True), BOUNDS) is None
    assert busy.exhausted(5600, progress(), BOUNDS) is None, "idle only since its request was answered"
    assert busy.exhausted(5601, progress(), BOUNDS) == "idle"


def test_patience_with_answers_not_read():
    patience = Patience(0)
    assert patience.exhausted(100, progress(unsent=500, busy=True), BOUNDS) is None
    assert patience.exhausted(699, progress(unsent=400, busy=True), BOUNDS) is None
    assert patience.exhausted(1299, progress(unsent=400, busy=True), BOUNDS) is None
    assert patience.exhausted(1300, progress(unsent=400, busy=True), BOUNDS) == "answers not read"


def test_patience_at_close():
    patience = Patience(0)
    assert patience.exhausted(1, progress(unsent=400, closing=True), BOUNDS) is None
    late = progress(received_bytes=999, unsent=400, closing=True)
    assert patience.exhausted(32, late, BOUNDS) is not None, "what it still sends is no excuse"


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": ()},
        {"listeners": (SETTINGS.listeners[0], SETTINGS.listeners[0])},
        {"max_in_flight": 0},
        {"frame_seconds": -1},
        {"receive_buffer_bytes": 4},
    ],
)
def test_senseless_settings_are_refused(changes):
    with pytest.raises(ValueError):
        replace(SETTINGS, **changes)
