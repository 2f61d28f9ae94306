from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.unit.broker.server.harness import until

from dray.base.runtime import SystemRuntime, keep_running
from dray.base.telemetry import Metrics
from dray.broker.server import AddressInUse, Health, HttpAnswer, HttpServer, HttpSettings
from dray.broker.server.http.requests import MAX_HEAD_BYTES, BadRequest, HttpRequest, RequestReader


@asynccontextmanager
async def serving(checks=None, routes=None, check_seconds=2.0, notes=None, excuses=None, **settings):
    runtime = SystemRuntime()
    health = Health(checks or {}, Metrics(), runtime, check_seconds, notes, excuses)
    server = HttpServer({**health.routes(), **(routes or {})}, runtime, HttpSettings(port=0, **settings))
    cast(Any, server).health = health
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        await until(lambda: not server.connections)


def buffered(server) -> int:
    """What the only connection holds and has not looked at."""
    return sum(connection._reader.buffered for connection in server.connections)


async def exchange(server, data: bytes) -> bytes:
    """Send, and read to the end of the connection."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


async def get(server, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    head, _, body = (await exchange(server, request)).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def test_a_note_is_shown_and_makes_nothing_less_ready(run):
    async def scenario():
        said = ["a clock is doubted", None]
        async with serving(notes={"clock": lambda: said[0], "other": lambda: None}) as server:
            status, _, body = await get(server, "/readyz")
            assert (status, json.loads(body)["notes"]) == (200, {"clock": "a clock is doubted"})
            said.pop(0)
            status, _, body = await get(server, "/readyz")
            assert (status, "notes" in json.loads(body)) == (200, False)

    run(scenario())


def test_a_check_that_fails_may_be_excused(run):
    async def scenario():
        async def bad():
            raise ConnectionError("no route")

        said = ["it goes on", None]
        checks = {"objects": bad}
        async with serving(checks, excuses={"objects": lambda: said[0]}) as server:
            status, _, body = await get(server, "/readyz")
            assert (status, json.loads(body)) == (
                200,
                {
                    "status": "ready",
                    "checks": {"objects": {"ok": False, "error": "ConnectionError: no route"}},
                    "notes": {"objects": "it goes on"},
                },
            )
            said.pop(0)
            status, _, body = await get(server, "/readyz")
            assert (status, "notes" in json.loads(body)) == (503, False)
        async with serving({**checks, "metadata": bad}, excuses={"objects": lambda: "it goes on"}) as server:
            assert (await get(server, "/readyz"))[0] == 503, "of one check, and not of another"

    run(scenario())


def test_alive_index_and_numbers(run):
    async def scenario():
        async with serving() as server:
            status, headers, body = await get(server, "/healthz")
            assert (status, json.loads(body)) == (200, {"status": "alive"})
            assert headers["content-type"] == "application/json"
            assert int(headers["content-length"]) == len(body)
            assert (await get(server, "/"))[0] == 200
            assert (await get(server, "/nothing"))[0] == 404
            status, headers, body = await get(server, "/metrics?name=x")
            assert status == 200
            assert headers["content-type"].startswith("text/plain; version=")
            assert b"dray_connections_active 0.0" in body
            assert b"process_resident_memory_bytes" in body

    run(scenario())


def test_head_sends_the_length_but_no_body(run):
    async def scenario():
        async with serving() as server:
            status, headers, body = await get(server, "/healthz", "HEAD")
            assert (status, body) == (200, b"")
            assert int(headers["content-length"]) > 0

    run(scenario())


def test_ready_names_each_check_and_its_error(run):
    async def scenario():
        async def good():
            pass

        async def bad():
            raise ConnectionError("no route")

        async def stuck():
            await asyncio.Event().wait()

        async with serving({"objects": good}) as server:
            status, _, body = await get(server, "/readyz")
            assert (status, json.loads(body)["status"]) == (200, "ready")
            server.health.draining = True
            status, _, body = await get(server, "/readyz")
            assert (status, json.loads(body)["status"]) == (503, "draining")
        checks = {"objects": good, "metadata": bad, "catalog": stuck}
        async with serving(checks, check_seconds=0.02) as server:
            status, _, body = await get(server, "/readyz")
            assert status == 503
            assert json.loads(body) == {
                "status": "unavailable",
                "checks": {
                    "objects": {"ok": True},
                    "metadata": {"ok": False, "error": "ConnectionError: no route"},
                    "catalog": {"ok": False, "error": "no answer within 0.02 s"},
                },
            }

    run(scenario())


def test_many_probes_are_one_question(run):
    async def scenario():
        asked = 0
        go = asyncio.Event()

        async def check():
            nonlocal asked
            asked += 1
            await go.wait()

        async with serving({"store": check}) as server:
            probes = [asyncio.create_task(get(server, "/readyz")) for _ in range(5)]
            await until(lambda: len(server.connections) == 5 and asked == 1)
            go.set()
            assert [answer[0] for answer in await asyncio.gather(*probes)] == [200] * 5
            assert asked == 1
            await get(server, "/readyz")
            assert asked == 2, "an old answer is no answer"

    run(scenario())


def test_keeps_a_connection_and_answers_pipelined_requests_in_order(run):
    async def scenario():
        gate = asyncio.Event()

        async def slow(_request):
            await gate.wait()
            return HttpAnswer(200, b"slow")

        async with serving(routes={"/slow": slow}) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            slow_request = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
            writer.write(slow_request + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: buffered(server) > 0)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: buffered(server) > 40)
            await asyncio.sleep(0.01)
            gate.set()
            answers = await reader.readuntil(b"slow") + await reader.readuntil(b"}\n")
            await reader.readuntil(b"Prometheus\n")
            assert answers.count(b"HTTP/1.1 200 OK") == 2
            assert answers.index(b"slow") < answers.index(b'"alive"')
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await reader.read()).endswith(b"}\n"), "HTTP/1.0 closes"
            writer.close()

    run(scenario())


def test_what_is_pipelined_behind_a_slow_request_is_bounded(run):
    async def scenario():
        gate = asyncio.Event()

        async def slow(_request):
            await gate.wait()
            return HttpAnswer(200, b"slow")

        async with serving(routes={"/slow": slow}) as server:
            _, writer = await asyncio.open_connection(*server.address)
            request = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
            writer.write(request * 200_000)
            await until(lambda: buffered(server) > MAX_HEAD_BYTES)
            await asyncio.sleep(0.05)
            assert buffered(server) < 1_000_000, "one read of the event loop, not all seven megabytes"
            writer.transport.abort()
            gate.set()

    run(scenario())


def test_a_client_may_hang_up_halfway(run):
    async def scenario():
        async with serving() as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writer.write_eof()
            assert b"200 OK" in await reader.read()
            writer.close()

    run(scenario())


def test_a_failing_route_is_a_500_and_one_line(run):
    async def scenario():
        async def broken(_request):
            raise KeyError("bug")

        async with serving(routes={"/broken": broken}) as server:
            with capture_logs() as lines:
                assert (await get(server, "/broken"))[0] == 500
            assert [line["path"] for line in lines] == ["/broken"]

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: localhost\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /" + b"a" * MAX_HEAD_BYTES, 431),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
)
def test_what_is_not_understood_is_refused_and_closed(run, request_bytes, status):
    async def scenario():
        async with serving() as server:
            answer = await exchange(server, request_bytes)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert answer.count(b"Content-Length") == 1
            assert (b"Allow: GET, HEAD" in answer) == (status == 405)

    run(scenario())


def test_a_refusal_reaches_a_peer_that_is_still_sending(run):
    async def scenario():
        async with serving() as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n")
            writer.write(bytes(9_000_000))
            await writer.drain()
            assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
            writer.close()

    run(scenario())


def test_a_request_that_does_not_come_and_an_idle_peer_are_dropped(run):
    async def scenario():
        async with serving(request_seconds=0.05, idle_seconds=0.05) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"GET / HT")
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"}\n")
            await until(lambda: not server.connections)
            writer.close()

    run(scenario())


def test_the_idlest_connection_makes_room_for_another(run):
    """256 sockets that asked once, and stay, were enough to silence the probes of a broker."""

    async def scenario():
        async with serving(max_connections=2, request_seconds=600, idle_seconds=600) as server:
            idle = [await asyncio.open_connection(*server.address) for _ in range(2)]
            await until(lambda: len(server.connections) == 2)
            for _ in range(3):
                assert (await get(server, "/healthz"))[0] == 200
            with suppress(ConnectionError):
                assert await asyncio.wait_for(idle[0][0].read(), 60) == b"", "at once, not when it is idle"
            for _, writer in idle:
                writer.close()

    run(scenario())


def test_an_address_gives_up_its_own(run):
    """Connections of other addresses stay, however many come of this one."""

    async def scenario():
        async with serving(max_connections=8, max_connections_per_address=4, idle_seconds=600) as server:
            reader, writer = await asyncio.open_connection(*server.address, local_addr=("127.0.0.9", 0))
            flood = [await asyncio.open_connection(*server.address) for _ in range(20)]
            await until(lambda: server.connections.count_of("127.0.0.1") == 4)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await reader.readuntil(b"}\n")
            for each in [writer, *(other for _, other in flood)]:
                each.close()

    run(scenario())


def test_answers_that_nobody_reads_are_bounded(run, monkeypatch):
    monkeypatch.setattr("dray.broker.server.http.server._MOST_UNREAD_BYTES", 40_000_000)

    async def scenario():
        async def large(_request):
            return HttpAnswer(200, bytes(20_000_000))

        async with serving(routes={"/large": large}, idle_seconds=600, request_seconds=600) as server:
            clients = []
            for count in range(1, 6):
                reader, writer = await asyncio.open_connection(*server.address, limit=1024)
                writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                clients.append((reader, writer))
                await until(lambda: len(server.connections) == min(count, 2))  # noqa: B023
                assert sum(each.unread_bytes for each in server.connections) < 40_000_000
            assert len(await clients[-1][0].readexactly(20_000_000)) == 20_000_000, "the first went"
            for _, writer in clients:
                writer.close()

    run(scenario())


def test_an_answer_that_nobody_reads_has_a_deadline(run):
    async def scenario():
        async def large(_request):
            return HttpAnswer(200, bytes(20_000_000))

        routes = {"/large": large}
        async with serving(routes=routes, idle_seconds=600, request_seconds=0.05) as server:
            _, writer = await asyncio.open_connection(*server.address, limit=1024)
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: bool(server.connections))
            await until(lambda: not server.connections)
            writer.close()

    run(scenario())


def test_numbers_cost_a_part_of_the_processor_however_many_ask(run):
    async def scenario():
        async with serving() as server:
            made, now = [], 100.0

            def exposition() -> bytes:
                nonlocal now
                made.append(now)
                now += 0.01
                return b"%d" % len(made)

            metrics = SimpleNamespace(exposition=exposition, content_type="text/plain")
            server.health._metrics = cast(Any, metrics)
            server.health._runtime = cast(Any, SimpleNamespace(monotonic=lambda: now))
            for asked in range(1, 6):
                assert (await get(server, "/metrics"))[2] == b"%d" % asked, "as they are now"
            for _ in range(200):
                await get(server, "/metrics")
            in_advance = len(made)
            assert 10 <= in_advance <= 15
            now += 1.0
            for _ in range(20):
                await get(server, "/metrics")
            assert len(made) - in_advance in (5, 6), "a twentieth of a second in a second"

    run(scenario())


def test_a_turn_of_the_loop_has_one_answer(run):
    """And accepts one connection: behind a crowd that asks much, a probe waited for eight answers each."""

    async def scenario():
        turn, begun = 0, []

        async def counting():
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        async def noted(_request):
            begun.append(turn)
            return HttpAnswer(200, b"")

        async with serving(routes={"/noted": noted}) as server:
            crowd = [await asyncio.open_connection(*server.address) for _ in range(20)]
            await until(lambda: len(server.connections) == 20)
            beside = asyncio.ensure_future(counting())
            for _, writer in crowd:
                writer.write(b"GET /noted HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: len(begun) == 20)
            beside.cancel()
            for _, writer in crowd:
                writer.close()
        assert len(set(begun)) == 20, begun

    run(scenario())


def test_a_peer_that_does_not_read_is_not_worked_for(run):
    async def scenario():
        served = 0

        async def large(_request):
            nonlocal served
            served += 1
            return HttpAnswer(200, bytes(1_000_000))

        async with serving(routes={"/large": large}) as server:
            reader, writer = await asyncio.open_connection(*server.address, limit=1024)
            writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            await until(lambda: served > 0)
            await asyncio.sleep(0.1)
            assert served < 50
            for _ in range(500):
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(1_000_000)
            assert served == 500
            writer.close()

    run(scenario())


def test_a_taken_port_is_one_clear_error(run):
    async def scenario():
        async with serving() as server:
            other = HttpServer({}, SystemRuntime(), HttpSettings(*server.address))
            with pytest.raises(AddressInUse):
                await other.start()

    run(scenario())


@given(
    st.binary(max_size=300) | st.just(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    st.lists(st.integers(1, 50)),
)
def test_any_bytes_give_requests_a_refusal_or_a_wait(data, cuts):
    whole = _read_all(data, [len(data)])
    assert _read_all(data, cuts) == whole, "however they are split"


def _read_all(data: bytes, cuts: list[int]) -> list[HttpRequest | int]:
    reader = RequestReader()
    outcome: list[HttpRequest | int] = []
    position = 0
    for cut in [*cuts, len(data)]:
        reader.feed(data[position : position + cut])
        position += cut
        try:
            while (request := reader.next()) is not None:
                outcome.append(request)
        except BadRequest as error:
            return [*outcome, error.status]
    return outcome


def test_a_task_that_ended_is_named_and_counted(run):
    async def scenario():
        async with serving() as server:
            runtime, metrics = server.health._runtime, server.health._metrics
            metrics.follow(runtime.background)

            async def returns():
                return

            keep_running(runtime, "retention", returns)
            await until(runtime.background.ended)
            status, _, body = await get(server, "/healthz")
            assert status == 503
            assert json.loads(body)["ended"] == {"retention": "it returned"}
            runtime.background.report("an errand", ValueError("not foreseen"))
            numbers = (await get(server, "/metrics"))[2]
            assert b"dray_background_tasks_ended 1.0" in numbers
            assert b'dray_background_failures_total{task="an errand"} 1.0' in numbers
            kept = keep_running(runtime, "retention", cast(Any, asyncio.Event().wait))
            assert (await get(server, "/healthz"))[0] == 200, "another has taken its place"
            await kept.stop()

    run(scenario())
