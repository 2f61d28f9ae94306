"""A request with a large answer waits for its turn: what is answered ahead of the peer is bounded."""

from __future__ import annotations

import asyncio

from tests.unit.broker.server.harness import Client, serving, until

LARGE = bytes(4 << 20)


def test_large_answers_are_made_one_at_a_time_and_only_as_fast_as_the_peer_reads(run):
    async def scenario():
        made = waiting = 0

        async def dispatch(request, connection):
            nonlocal made, waiting
            waiting += 1
            await connection.turn()
            made += 1
            return (LARGE,)

        async with serving(dispatch, max_unsent_bytes=1 << 20) as server:
            client = await Client.to(server.address)
            client.send(*[b"more"] * 50)
            await until(lambda: waiting == 50 and made > 0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert made < 10, "the peer has read nothing yet"
            for _ in range(50):
                assert len(await client.receive()) == len(LARGE)
            assert made == 50
            await client.close()

    run(scenario())


def test_a_request_that_waits_for_its_turn_is_let_go_when_the_connection_ends(run):
    async def scenario():
        first, ended = asyncio.Event(), []

        async def dispatch(request, connection):
            if bytes(request) == b"first":
                await first.wait()
            else:
                await connection.turn()
                ended.append(bytes(request))
            return (request,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"first", b"second", b"third")
            await until(lambda: server.metrics.requests_in_flight.value == 3)
            client.reset()
            await until(lambda: len(ended) == 2)
            first.set()

    run(scenario())
